//! Who asks, where the HTTP layer's own choices are not enough.

mod bearer;
mod jwks;
mod jwt;
mod keys;
mod pem;
mod seen;

pub(crate) use bearer::bearer;
pub(crate) use jwt::Jwt;
pub(crate) use keys::{KeyKind, Keys};
