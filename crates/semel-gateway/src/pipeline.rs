//! What all client connections share: the idempotency layer around the proxy, and the routes.

use std::sync::Arc;

use anyhow::Result;
use http::{HeaderName, HeaderValue, Method, header::HOST, request::Parts};
use semel::{
    Engine,
    http::{IdempotencyLayer, IdempotencyService, RoutePolicy, RouteTemplate},
};
use semel_service::settings::{GatewayConfig, PrincipalSource, RouteConfig};
use tower_layer::Layer;

use super::{
    checked_request::CheckedRequest,
    principal::{JwtVerifier, PrincipalExtractor, principal_header},
    proxy::{ConnectionPool, HeaderRules, ProxyUpstream, ReverseProxy},
    routes::Routes,
    store_health::StoreHealth,
};

/// Everything that the connections of all clients share.
pub(super) struct RequestPipeline {
    pub(super) protected: IdempotencyService<ReverseProxy>,
    pub(super) proxy: ReverseProxy,
    pub(super) routes: Routes,
    /// The header that names the caller.
    pub(super) principal: Option<HeaderName>,
    /// The `WWW-Authenticate` header of the response to a caller without a principal.
    pub(super) challenge: Option<HeaderValue>,
    pub(super) health: StoreHealth,
    /// Verifies tokens, if callers are found by JWT.
    pub(super) jwt: Option<JwtVerifier>,
}

impl RequestPipeline {
    /// Builds the idempotency layer around the proxy.
    pub(super) fn new(config: &GatewayConfig, engine: Engine) -> Result<Arc<Self>> {
        let upstreams = config.upstreams.iter().map(ProxyUpstream::new);
        let pools =
            upstreams.map(|upstream| ConnectionPool::new(upstream, config.timeouts)).collect();
        let extractor = PrincipalExtractor::new(config)?;
        let jwt = extractor.jwt.clone();
        let layer = layer(config, extractor, engine)?;
        let principal = principal_header(&config.principal);
        let rules =
            HeaderRules { trust_forwarded: config.trust_forwarded, principal: principal.clone() };
        let proxy = ReverseProxy::new(pools, rules);
        Ok(Arc::new(Self {
            protected: layer.layer(proxy.clone()),
            proxy,
            routes: Routes::new(&config.routes, config.default_upstream)?,
            principal,
            challenge: challenge(&config.principal),
            health: StoreHealth::new(config.store_options.cache.is_some()),
            jwt,
        }))
    }
}

fn layer(
    config: &GatewayConfig,
    principal: PrincipalExtractor,
    engine: Engine,
) -> Result<IdempotencyLayer> {
    let builder = IdempotencyLayer::builder(engine)
        .namespace(&config.namespace)
        .principal(principal)
        .route_template(RouteTemplate::closure(template))
        .policy(with_host(config, &config.policy))
        .buffer_bytes(config.buffer_bytes);
    let routes = config.routes.iter().flat_map(|route| protected_routes(route, config));
    Ok(routes.fold(builder, |builder, (route, policy)| builder.route(route, policy)).build()?)
}

/// Adds the `Host` header to the fingerprint: the upstream gets it, and may have a tenant on each host. Without
/// `compare_host` all hosts are the same service.
fn with_host(config: &GatewayConfig, policy: &RoutePolicy) -> RoutePolicy {
    let policy = policy.clone();
    if config.compare_host { policy.compare_header(HOST) } else { policy }
}

/// The layer's names for a route, and its policy. A route without a method is for all methods that are protected by
/// default, except those with a route of their own for the same template.
fn protected_routes(route: &RouteConfig, config: &GatewayConfig) -> Vec<(String, RoutePolicy)> {
    const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let Some(policy) = &route.policy else { return Vec::new() };
    let has_own = |method: &Method| {
        let mut others = config.routes.iter().filter(|other| other.template == route.template);
        others.any(|other| other.method.as_ref() == Some(method))
    };
    let methods: Vec<&Method> = match &route.method {
        Some(method) => vec![method],
        None => METHODS.iter().filter(|method| !has_own(method)).collect(),
    };
    let named =
        |method: &Method| (format!("{method} {}", route.template), with_host(config, policy));
    methods.into_iter().map(named).collect()
}

fn template(parts: &Parts) -> Option<String> {
    let checked = parts.extensions.get::<CheckedRequest>()?;
    checked.route.template.as_deref().map(str::to_owned)
}

fn challenge(source: &PrincipalSource) -> Option<HeaderValue> {
    match source {
        PrincipalSource::Authorization | PrincipalSource::Jwt(_) => {
            Some(HeaderValue::from_static("Bearer"))
        }
        PrincipalSource::Anonymous | PrincipalSource::Header(_) => None,
    }
}
