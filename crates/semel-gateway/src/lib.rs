//! `semel gateway`: the layer of `semel-http` around a reverse proxy. [`run`] is all that the binary calls.
//!
//! This crate is internal to the binary: it is not published. Its settings are read and checked by `semel-service`.

mod checked_request;
mod client_service;
mod deadline;
mod demo;
mod framing;
mod metrics;
mod principal;
mod proxy;
mod readiness;
mod rotation;
mod routes;
mod server;
mod store_health;
#[cfg(test)]
mod tests;
mod upstream_probe;

use std::{
    io::{self, Write},
    sync::Arc,
};

use anyhow::{Result, ensure};
use http::{HeaderValue, Method, header::HOST, request::Parts};
use semel::{
    Engine,
    http::{IdempotencyLayer, RoutePolicy, RouteTemplate},
};
use semel_service::{
    admin::AdminListener,
    listener::BoundPort,
    settings::{GatewayConfig, PrincipalSource, RouteConfig},
    signals::Signals,
    store,
    telemetry::{self, Metrics},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tower_layer::Layer;
use tracing::{info, warn};

use self::{
    checked_request::CheckedRequest,
    client_service::RequestPipeline,
    demo::Demo,
    principal::{PrincipalExtractor, principal_header},
    proxy::{ConnectionPool, HeaderRules, ProxyUpstream, ReverseProxy},
    readiness::GatewayReadiness,
    routes::Routes,
    store_health::StoreHealth,
};

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// When the gateway cannot start, or not all requests ended within the grace time.
pub async fn run(mut config: GatewayConfig) -> Result<()> {
    let (metrics, _logs) = telemetry::init(&config.log, &[metrics::REQUEST_BUCKETS])?;
    metrics::register();
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let mut signals = Signals::listen()?;
    let hangup = rotation::listen(&config)?;
    let demo = match config.demo {
        true => Some(Demo::start(&mut config).await?),
        false => None,
    };
    // The port is taken from here on, but nothing listens: until the store is open, a request could only wait.
    let listener = BoundPort::bind(config.listen, "--listen")?;
    let (drain, draining) = watch::channel(false);
    let admin = admin(&config, metrics, draining).await?;
    let engine = tokio::select! {
        engine = open(&config) => engine?,
        () = signals.next() => {
            info!("ended before the store was open");
            return Ok(());
        }
    };
    let pipeline = pipeline(&config, engine.clone())?;
    let rotation = rotation::start(&config, pipeline.jwt.as_ref(), hangup)?;
    let listener = listener.listen()?;
    let address = listener.local_addr()?;
    info!("listening on http://{address}");
    if let Some(admin) = &admin {
        admin.store_opened(engine.clone(), Box::new(GatewayReadiness::new(&config, &pipeline)));
    }
    let probing = tokio::spawn(upstream_probe::warn_of_unreachable(pipeline.proxy.pools()));
    if let (Some(demo), Some(admin)) = (&demo, &admin) {
        let token = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
        // The demo works without a reader of its explanation.
        let _ = writeln!(io::stdout(), "{}", demo.explain(address, admin.address(), token));
    }
    let clean_up = demo.as_ref().map(Demo::clean_up);
    let shutdown = async {
        signals.shutdown(|| clean_up.into_iter().for_each(|clean_up| clean_up())).await;
        drain.send_replace(true);
        Instant::now() + config.shutdown_grace
    };
    let (deadline, ended) =
        server::serve(listener, pipeline.clone(), config.client, shutdown).await;
    // An operation may outlive its caller, and an upload may outlive its response.
    let left = engine.shutdown(deadline - Instant::now()).await;
    let ended = ended && timeout_at(deadline, pipeline.proxy.finished()).await.is_ok();
    for task in rotation.into_iter().chain([probing]) {
        task.abort();
    }
    if let Some(admin) = admin {
        admin.stop();
    }
    ensure!(
        ended && left == 0,
        "not everything ended within {:?} (shutdown_grace): {left} operations were cut off, and their keys \
         are free after the lease",
        config.shutdown_grace
    );
    info!("all requests ended");
    Ok(())
}

/// Opens the store, and shows its statistics as metrics.
async fn open(config: &GatewayConfig) -> Result<Engine> {
    let engine = store::engine(config).await?;
    match engine.store().stats().await {
        Ok(stats) => telemetry::show_stats(&stats),
        // Of two servers that are one store, one may be unreachable.
        Err(error) => warn!("cannot read the statistics of the store: {error}"),
    }
    Ok(engine)
}

/// Starts the admin listener, if there is one. It answers from before the store is open until the process ends.
async fn admin(
    config: &GatewayConfig,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
) -> Result<Option<AdminListener>> {
    let Some(settings) = &config.admin else { return Ok(None) };
    let listener = match settings.listen {
        Some(address) => BoundPort::bind(address, "--admin")?.listen()?,
        None => Demo::admin_listener().await?,
    };
    Ok(Some(AdminListener::start(listener, settings.token.clone(), metrics, draining)?))
}

/// Builds the idempotency layer around the proxy.
fn pipeline(config: &GatewayConfig, engine: Engine) -> Result<Arc<RequestPipeline>> {
    let upstreams = config.upstreams.iter().map(ProxyUpstream::new);
    let pools = upstreams.map(|upstream| ConnectionPool::new(upstream, config.timeouts)).collect();
    let identify = PrincipalExtractor::new(config)?;
    let jwt = identify.jwt.clone();
    let layer = layer(config, identify, engine)?;
    let principal = principal_header(&config.principal);
    let rules =
        HeaderRules { trust_forwarded: config.trust_forwarded, principal: principal.clone() };
    let proxy = ReverseProxy::new(pools, rules);
    Ok(Arc::new(RequestPipeline {
        protected: layer.layer(proxy.clone()),
        proxy,
        routes: Routes::new(&config.routes, config.default_upstream)?,
        principal,
        challenge: challenge(&config.principal),
        health: StoreHealth::new(config.store_options.cache.is_some()),
        jwt,
    }))
}

fn layer(
    config: &GatewayConfig,
    identify: PrincipalExtractor,
    engine: Engine,
) -> Result<IdempotencyLayer> {
    let builder = IdempotencyLayer::builder(engine)
        .namespace(&config.namespace)
        .principal(identify)
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
