//! Finds the caller by a verified JSON Web Token. Nothing in a token is trusted before its signature is verified: the
//! key decides which algorithms are allowed, and no key is ever fetched.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use jsonwebtoken::{Validation, decode, decode_header, errors::ErrorKind};
use parking_lot::RwLock;
use semel::{Principal, http::ExtractPrincipal};
use semel_service::{
    bearer::bearer,
    settings::{JwtSettings, jwt::JwtKeys},
};
use serde::Deserialize;

use super::verified_tokens::VerifiedTokens;

/// Verifies the bearer token of a request; its principal is the issuer and the subject. Clones share the keys.
#[derive(Clone, Debug)]
pub(crate) struct JwtVerifier(Arc<VerifierState>);

#[derive(Debug)]
struct VerifierState {
    /// Locked for reading while a token is verified and cached, so that no token of the former keys is cached after
    /// they were replaced.
    keys: RwLock<JwtKeys>,
    verified: VerifiedTokens,
    expected: Validation,
    leeway: Duration,
}

/// Why a token is refused, without any text of the token.
type TokenError = &'static str;

#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    sub: String,
    /// The verification has checked that it is a number; fractions of a second do not matter here.
    exp: f64,
}

impl JwtVerifier {
    /// The longest token that is accepted.
    const MAX_BYTES: usize = 16 * 1024;
    /// Accepts tokens that the keys of the settings have signed.
    pub(crate) fn new(settings: &JwtSettings) -> Self {
        let expected = claims(settings);
        let keys = RwLock::new(settings.keys.clone().expecting(&expected));
        let (verified, leeway) = (VerifiedTokens::default(), settings.leeway);
        Self(Arc::new(VerifierState { keys, verified, expected, leeway }))
    }

    /// From now on, verifies with these keys only.
    pub(crate) fn replace(&self, keys: JwtKeys) {
        let keys = keys.expecting(&self.0.expected);
        let mut current = self.0.keys.write();
        *current = keys;
        self.0.verified.clear();
    }

    fn principal(&self, parts: &Parts) -> Result<Principal, TokenError> {
        let token = bearer(&parts.headers)?;
        if token.len() > Self::MAX_BYTES {
            return Err("the token is longer than 16 KiB");
        }
        match self.0.verified.find(token) {
            Some(principal) => Ok(principal),
            None => self.verify(token),
        }
    }

    fn verify(&self, token: &str) -> Result<Principal, TokenError> {
        let header = decode_header(token).map_err(|error| reason(error.kind()))?;
        if header.crit.is_some() {
            // RFC 7515 §4.1.11: a token with an extension that is not understood must be refused.
            return Err("the token demands an extension (crit)");
        }
        let keys = self.0.keys.read();
        let key = keys.find(header.kid.as_deref(), header.alg)?;
        let decoded = decode(token, &key.key, &key.validation);
        let claims: TokenClaims = decoded.map_err(|error| reason(error.kind()))?.claims;
        let principal = name(&claims)?;
        // A token whose expiry cannot be represented is not cached, and verified every time.
        if let Ok(expires) = Duration::try_from_secs_f64(claims.exp.floor()) {
            self.0.verified.insert(token, &principal, expires.saturating_add(self.0.leeway));
        }
        Ok(principal)
    }
}

impl ExtractPrincipal for JwtVerifier {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        self.principal(parts).inspect_err(|reason| tracing::info!(reason, "jwt refused")).ok()
    }
}

/// The claims that a token must have.
fn claims(settings: &JwtSettings) -> Validation {
    let mut validation = Validation {
        leeway: settings.leeway.as_secs(),
        validate_nbf: true,
        validate_aud: !settings.audiences.is_empty(),
        ..Validation::default()
    };
    let mut required = vec!["exp", "iss", "sub"];
    if validation.validate_aud {
        validation.set_audience(&settings.audiences);
        required.push("aud");
    }
    if !settings.issuers.is_empty() {
        validation.set_issuer(&settings.issuers);
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// Issuer and subject as a JSON array: two different pairs never give the same text.
fn name(TokenClaims { iss, sub, .. }: &TokenClaims) -> Result<Principal, TokenError> {
    if iss.is_empty() || sub.is_empty() {
        return Err("iss or sub is empty");
    }
    if iss.chars().chain(sub.chars()).any(char::is_control) {
        return Err("iss or sub has a control character");
    }
    let name = serde_json::json!([iss, sub]).to_string();
    match name.len() > Principal::MAX_BYTES {
        true => Err("iss and sub are too long"),
        false => Ok(Principal::from(name.as_str())),
    }
}

/// The gateway's own text for an error: the texts of the JWT crate may quote claims.
fn reason(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::InvalidSignature => "the signature is of another key",
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "another issuer",
        ErrorKind::InvalidAudience => "another audience",
        ErrorKind::InvalidAlgorithm => "another algorithm than the key's",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "exp is missing or no number",
            "aud" => "aud is missing or no text",
            _ => "iss or sub is missing or no text",
        },
        // Also for a token without `iss` or `sub`, and for an algorithm such as `none`.
        ErrorKind::Json(_) => "the header or a claim is not as it should be",
        _ => "this is no valid token",
    }
}

#[cfg(test)]
mod tests;
