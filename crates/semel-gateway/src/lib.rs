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

/// Serves until a signal asks for the end.
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
    // The port is ours from here on, but nothing listens: a request could only wait for the store.
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
    let door = door(&config, engine.clone())?;
    let rotation = rotation::start(&config, door.jwt.as_ref(), hangup)?;
    let listener = listener.listen()?;
    let address = listener.local_addr()?;
    info!("listening on http://{address}");
    if let Some(admin) = &admin {
        admin.store_opened(engine.clone(), Box::new(GatewayReadiness::new(&config, &door)));
    }
    let looking = tokio::spawn(upstream_probe::warn_of_unreachable(door.proxy.pools()));
    if let (Some(demo), Some(admin)) = (&demo, &admin) {
        let token = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
        // Nobody has to listen; the demo works all the same.
        let _ = writeln!(io::stdout(), "{}", demo.explain(address, admin.address(), token));
    }
    let clean_up = demo.as_ref().map(Demo::clean_up);
    let shutdown = async {
        signals.shutdown(|| clean_up.into_iter().for_each(|clean_up| clean_up())).await;
        drain.send_replace(true);
        Instant::now() + config.shutdown_grace
    };
    let (deadline, ended) = server::serve(listener, door.clone(), config.client, shutdown).await;
    // Operations go on though their callers are gone, and requests though they are answered.
    let left = engine.shutdown(deadline - Instant::now()).await;
    let ended = ended && timeout_at(deadline, door.proxy.finished()).await.is_ok();
    for task in rotation.into_iter().chain([looking]) {
        task.abort();
    }
    if let Some(admin) = admin {
        admin.stop();
    }
    ensure!(
        ended && left == 0,
        "not all ended within {:?} (shutdown_grace): {left} operations are left, their keys free after \
         the lease",
        config.shutdown_grace
    );
    info!("all requests came to their end");
    Ok(())
}

/// Opens the store, and counts what it holds.
async fn open(config: &GatewayConfig) -> Result<Engine> {
    let engine = store::engine(config).await?;
    match engine.store().stats().await {
        Ok(stats) => telemetry::show_stats(&stats),
        // It may be one of two that is away.
        Err(error) => warn!("the store does not count its records: {error}"),
    }
    Ok(engine)
}

/// Starts the admin listener, if there is one. It answers from before the store is open until the very end.
async fn admin(
    config: &GatewayConfig,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
) -> Result<Option<AdminListener>> {
    let Some(settings) = &config.admin else { return Ok(None) };
    let listener = match settings.listen {
        Some(address) => BoundPort::bind(address, "--admin")?.listen()?,
        None => Demo::operators().await?,
    };
    Ok(Some(AdminListener::start(listener, settings.token.clone(), metrics, draining)?))
}

/// The layer around the proxy, as configured.
fn door(config: &GatewayConfig, engine: Engine) -> Result<Arc<RequestPipeline>> {
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
        guarded: layer.layer(proxy.clone()),
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
        .policy(compared(config, &config.policy))
        .buffer_bytes(config.buffer_bytes);
    let routes = config.routes.iter().flat_map(|route| guarded(route, config));
    Ok(routes.fold(builder, |builder, (route, policy)| builder.route(route, policy)).build()?)
}

/// The gateway sends the host of a request to the upstream, which may have a tenant on each host: an outcome is for one,
/// unless `compare_host` says that all hosts are the same service.
fn compared(config: &GatewayConfig, policy: &RoutePolicy) -> RoutePolicy {
    let policy = policy.clone();
    if config.compare_host { policy.compare_header(HOST) } else { policy }
}

/// The layer's name for a route, and its policy. One without a method is for all that are guarded by
/// default, except those that have a route of their own there.
fn guarded(route: &RouteConfig, config: &GatewayConfig) -> Vec<(String, RoutePolicy)> {
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
        |method: &Method| (format!("{method} {}", route.template), compared(config, policy));
    methods.into_iter().map(named).collect()
}

fn template(parts: &Parts) -> Option<String> {
    let arrival = parts.extensions.get::<CheckedRequest>()?;
    arrival.found.template.as_deref().map(str::to_owned)
}

fn challenge(who: &PrincipalSource) -> Option<HeaderValue> {
    match who {
        PrincipalSource::Authorization | PrincipalSource::Jwt(_) => {
            Some(HeaderValue::from_static("Bearer"))
        }
        PrincipalSource::Anonymous | PrincipalSource::Header(_) => None,
    }
}
