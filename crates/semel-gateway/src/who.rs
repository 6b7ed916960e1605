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
use semel_service::settings::{Config, Who};

use super::{arrival::Arrival, principal::Jwt};

/// Finds the principal. Behind an upstream that sees the client's `Host`, the host is part of it: one
/// service may serve a tenant on each.
pub(super) struct Identify {
    who: Box<dyn ExtractPrincipal>,
    /// By upstream.
    with_host: Vec<bool>,
    /// Where the settings ask for tokens.
    pub(super) jwt: Option<Jwt>,
}

impl Identify {
    pub(super) fn new(config: &Config) -> Result<Self> {
        let with_host = config.upstreams.iter().map(|it| it.preserve_host).collect();
        let mut jwt = None;
        let who: Box<dyn ExtractPrincipal> = match &config.principal {
            Who::Anonymous => Box::new(Anonymous),
            Who::Authorization => Box::new(Authorization),
            Who::Header(name) => Box::new(TrustedHeader::new(name)?),
            Who::Jwt(settings) => Box::new(jwt.insert(Jwt::new(settings)).clone()),
        };
        Ok(Self { who, with_host, jwt })
    }
}

/// The header that names the caller.
pub(super) fn header(who: &Who) -> Option<HeaderName> {
    match who {
        Who::Anonymous => None,
        Who::Authorization | Who::Jwt(_) => Some(AUTHORIZATION),
        Who::Header(name) => name.parse().ok(),
    }
}

impl ExtractPrincipal for Identify {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        let principal = self.who.extract(parts)?;
        let arrival = parts.extensions.get::<Arrival>()?;
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
