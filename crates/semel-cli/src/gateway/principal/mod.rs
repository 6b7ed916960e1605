//! Who asks, where the HTTP layer's own choices are not enough.

mod jwks;
mod jwt;
mod keys;
mod pem;
mod seen;

pub(crate) use jwt::Jwt;
