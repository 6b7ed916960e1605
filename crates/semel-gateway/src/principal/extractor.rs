//! Who asks, as the settings say.

use anyhow::Result;
use http::{
    HeaderName,
    header::{AUTHORIZATION, HOST},
    request::Parts,
};
use semel::{
    Principal,
    http::{Anonymous, Authorization, ExtractPrincipal, TrustedHeader},
};
use semel_service::settings::{GatewayConfig, PrincipalSource};

use super::JwtVerifier;
use crate::checked_request::CheckedRequest;

/// Finds the principal. Behind an upstream that sees the client's `Host`, the host is part of it: one
/// service may serve a tenant on each.
pub(crate) struct PrincipalExtractor {
    who: Box<dyn ExtractPrincipal>,
    /// By upstream.
    with_host: Vec<bool>,
    /// Where the settings ask for tokens.
    pub(crate) jwt: Option<JwtVerifier>,
}

impl PrincipalExtractor {
    pub(crate) fn new(config: &GatewayConfig) -> Result<Self> {
        let with_host = config.upstreams.iter().map(|it| it.preserve_host).collect();
        let mut jwt = None;
        let who: Box<dyn ExtractPrincipal> = match &config.principal {
            PrincipalSource::Anonymous => Box::new(Anonymous),
            PrincipalSource::Authorization => Box::new(Authorization),
            PrincipalSource::Header(name) => Box::new(TrustedHeader::new(name)?),
            PrincipalSource::Jwt(settings) => {
                Box::new(jwt.insert(JwtVerifier::new(settings)).clone())
            }
        };
        Ok(Self { who, with_host, jwt })
    }
}

/// The header that names the caller.
pub(crate) fn principal_header(who: &PrincipalSource) -> Option<HeaderName> {
    match who {
        PrincipalSource::Anonymous => None,
        PrincipalSource::Authorization | PrincipalSource::Jwt(_) => Some(AUTHORIZATION),
        PrincipalSource::Header(name) => name.parse().ok(),
    }
}

impl ExtractPrincipal for PrincipalExtractor {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        let principal = self.who.extract(parts)?;
        let arrival = parts.extensions.get::<CheckedRequest>()?;
        if !self.with_host[arrival.found.upstream] {
            return Some(principal);
        }
        let host = parts.headers.get(HOST).map_or(Ok(""), |host| host.to_str()).ok()?;
        at_host(&host.to_ascii_lowercase(), principal)
    }
}

/// No host has a space in it, so nobody can be somebody else at another one.
fn at_host(host: &str, principal: Principal) -> Option<Principal> {
    Some(match principal {
        Principal::Named(name) => Principal::from(format!("{host} {name}")),
        Principal::Credential(secret) => Principal::credential(format!("{host} {secret}")),
        Principal::Anonymous => Principal::from(format!("{host} ")),
        // Somebody this release does not know is nobody it can tell from others.
        _ => return None,
    })
}
