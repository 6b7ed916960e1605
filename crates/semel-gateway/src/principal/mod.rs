//! Finds the caller of a request, beyond what the HTTP layer offers itself.

mod extractor;
mod jwt;
mod verified_tokens;

pub(crate) use extractor::{PrincipalExtractor, principal_header};
pub(crate) use jwt::JwtVerifier;
