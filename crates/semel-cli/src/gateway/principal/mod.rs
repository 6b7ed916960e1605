//! Who asks, where the HTTP layer's own choices are not enough.

mod jwks;
mod jwt;
mod keys;
mod pem;

pub(crate) use jwt::Jwt;
