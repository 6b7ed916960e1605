//! Finds the caller of a request in the way that the settings name.

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

/// Finds the principal. If the upstream gets the client's `Host`, the host is part of the principal: the service may
/// have a tenant on each host.
pub(crate) struct PrincipalExtractor {
    source: Box<dyn ExtractPrincipal>,
    /// Whether the host is part of the principal, by upstream.
    with_host: Vec<bool>,
    /// Set if callers are found by JWT.
    pub(crate) jwt: Option<JwtVerifier>,
}

impl PrincipalExtractor {
    pub(crate) fn new(config: &GatewayConfig) -> Result<Self> {
        let with_host = config.upstreams.iter().map(|it| it.preserve_host).collect();
        let mut jwt = None;
        let source: Box<dyn ExtractPrincipal> = match &config.principal {
            PrincipalSource::Anonymous => Box::new(Anonymous),
            PrincipalSource::Authorization => Box::new(Authorization),
            PrincipalSource::Header(name) => Box::new(TrustedHeader::new(name)?),
            PrincipalSource::Jwt(settings) => {
                Box::new(jwt.insert(JwtVerifier::new(settings)).clone())
            }
        };
        Ok(Self { source, with_host, jwt })
    }
}

/// The header that names the caller.
pub(crate) fn principal_header(source: &PrincipalSource) -> Option<HeaderName> {
    match source {
        PrincipalSource::Anonymous => None,
        PrincipalSource::Authorization | PrincipalSource::Jwt(_) => Some(AUTHORIZATION),
        PrincipalSource::Header(name) => name.parse().ok(),
    }
}

impl ExtractPrincipal for PrincipalExtractor {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        let principal = self.source.extract(parts)?;
        let checked = parts.extensions.get::<CheckedRequest>()?;
        if !self.with_host[checked.route.upstream] {
            return Some(principal);
        }
        let host = parts.headers.get(HOST).map_or(Ok(""), |host| host.to_str()).ok()?;
        at_host(&host.to_ascii_lowercase(), principal)
    }
}

/// A host name has no space, so the same name on two hosts, or two names, never give the same principal.
fn at_host(host: &str, principal: Principal) -> Option<Principal> {
    Some(match principal {
        Principal::Named(name) => Principal::from(format!("{host} {name}")),
        Principal::Credential(secret) => Principal::credential(format!("{host} {secret}")),
        Principal::Anonymous => Principal::from(format!("{host} ")),
        // Refuse a kind of principal that this release does not know: it could be mixed up with another.
        _ => return None,
    })
}
