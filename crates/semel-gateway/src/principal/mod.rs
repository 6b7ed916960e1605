//! Who asks, where the HTTP layer's own choices are not enough.

mod jwt;
mod seen;

pub(crate) use jwt::Jwt;
