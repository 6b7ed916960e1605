//! Who asks, where the HTTP layer's own choices are not enough.

mod extractor;
mod jwt;
mod verified_tokens;

pub(crate) use extractor::{PrincipalExtractor, principal_header};
pub(crate) use jwt::JwtVerifier;
