//! The principal of a verified JSON Web Token. Nothing a token says about itself is believed before its
//! signature holds: the key decides which algorithms count, and no key is ever fetched.

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

/// Issuer and subject of the bearer token of a request. Clones share the keys.
#[derive(Clone, Debug)]
pub(crate) struct JwtVerifier(Arc<VerifierState>);

#[derive(Debug)]
struct VerifierState {
    /// Read for as long as a token is verified and remembered: none that only the former keys have signed is
    /// remembered after they were replaced.
    keys: RwLock<JwtKeys>,
    seen: VerifiedTokens,
    expected: Validation,
    leeway: Duration,
}

/// Why a token is refused. Never has anything of the token in it.
type TokenError = &'static str;

#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    sub: String,
    /// A number, as the verification has seen by then; fractions of a second do not matter here.
    exp: f64,
}

impl JwtVerifier {
    /// The longest token that is looked at.
    const MAX_BYTES: usize = 16 * 1024;
    /// Accepts what the settings' keys have signed.
    pub(crate) fn new(settings: &JwtSettings) -> Self {
        let expected = claims(settings);
        let keys = RwLock::new(settings.keys.clone().expecting(&expected));
        let (seen, leeway) = (VerifiedTokens::default(), settings.leeway);
        Self(Arc::new(VerifierState { keys, seen, expected, leeway }))
    }

    /// Verifies with these keys from now on, and with these alone.
    pub(crate) fn replace(&self, keys: JwtKeys) {
        let keys = keys.expecting(&self.0.expected);
        let mut current = self.0.keys.write();
        *current = keys;
        self.0.seen.clear();
    }

    fn principal(&self, parts: &Parts) -> Result<Principal, TokenError> {
        let token = bearer(&parts.headers)?;
        if token.len() > Self::MAX_BYTES {
            return Err("the token is longer than 16 KiB");
        }
        match self.0.seen.find(token) {
            Some(principal) => Ok(principal),
            None => self.verified(token),
        }
    }

    fn verified(&self, token: &str) -> Result<Principal, TokenError> {
        let header = decode_header(token).map_err(|error| reason(error.kind()))?;
        if header.crit.is_some() {
            // RFC 7515 §4.1.11: whoever does not understand an extension refuses the token.
            return Err("the token demands an extension (crit)");
        }
        let keys = self.0.keys.read();
        let key = keys.find(header.kid.as_deref(), header.alg)?;
        let decoded = decode(token, &key.key, &key.validation);
        let claims: TokenClaims = decoded.map_err(|error| reason(error.kind()))?.claims;
        let principal = name(&claims)?;
        // One that cannot be told is verified again every time.
        if let Ok(expires) = Duration::try_from_secs_f64(claims.exp.floor()) {
            self.0.seen.keep(token, &principal, expires.saturating_add(self.0.leeway));
        }
        Ok(principal)
    }
}

impl ExtractPrincipal for JwtVerifier {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        self.principal(parts).inspect_err(|reason| tracing::info!(reason, "jwt refused")).ok()
    }
}

/// What a token must claim.
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

/// Issuer and subject as a JSON array: no two pairs are written the same.
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

/// The crate's own texts may quote claims.
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
        // Also a token without `iss` or `sub`, and an algorithm such as `none`.
        ErrorKind::Json(_) => "the header or a claim is not as it should be",
        _ => "this is no valid token",
    }
}

#[cfg(test)]
mod tests;
