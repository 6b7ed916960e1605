//! `semel gateway`: the layer of `semel-http` around a reverse proxy.

mod admin;
mod arrival;
mod demo;
mod door;
mod framing;
mod health;
mod limit;
pub(crate) mod metrics;
pub(crate) mod principal;
mod proxy;
mod reach;
mod rotation;
mod routes;
mod server;
mod signals;
#[cfg(test)]
mod tests;
mod who;

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::Arc,
};

use anyhow::{Result, anyhow, ensure};
use http::{HeaderValue, Method, header::HOST, request::Parts};
use semel::{
    Engine,
    http::{IdempotencyLayer, RoutePolicy, RouteTemplate},
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tower_layer::Layer;
use tracing::{info, warn};

pub(crate) use self::routes::normal;
use self::{
    admin::Admin,
    arrival::Arrival,
    demo::Demo,
    door::Door,
    health::StoreHealth,
    proxy::{HeaderRules, Pool, Proxy, Upstream},
    routes::Routes,
    signals::Signals,
    who::Identify,
};
use crate::{
    settings::{Config, Route, Who},
    store,
    telemetry::{self, Metrics},
};

/// Serves until a signal asks for the end.
pub(crate) async fn run(mut config: Config) -> Result<()> {
    let (metrics, _logs) = telemetry::init(&config.log)?;
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
    let listener = Bound::to(config.listen, "--listen")?;
    let (drain, draining) = watch::channel(false);
    let operators = operators(&config, metrics, draining).await?;
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
    if let Some(operators) = &operators {
        operators.admin.is_open(engine.clone(), &door);
    }
    let looking = tokio::spawn(reach::warn_of_unreachable(door.proxy.pools()));
    if let (Some(demo), Some(operators)) = (&demo, &operators) {
        let token = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
        // Nobody has to listen; the demo works all the same.
        let _ = writeln!(io::stdout(), "{}", demo.explain(address, operators.address, token));
    }
    let clean_up = demo.as_ref().map(Demo::clean_up);
    let asked_to_end = async {
        signals.asked_to_end(|| clean_up.into_iter().for_each(|clean_up| clean_up())).await;
        drain.send_replace(true);
        Instant::now() + config.shutdown_grace
    };
    let (deadline, ended) =
        server::serve(listener, door.clone(), config.client, asked_to_end).await;
    // Operations go on though their callers are gone, and requests though they are answered.
    let left = engine.shutdown(deadline - Instant::now()).await;
    let ended = ended && timeout_at(deadline, door.proxy.finished()).await.is_ok();
    for task in operators.map(|it| it.task).into_iter().chain(rotation).chain([looking]) {
        task.abort();
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
async fn open(config: &Config) -> Result<Engine> {
    let engine = store::engine(config).await?;
    match engine.store().stats().await {
        Ok(stats) => metrics::held(&stats),
        // It may be one of two that is away.
        Err(error) => warn!("the store does not count its records: {error}"),
    }
    Ok(engine)
}

/// The admin listener while it runs.
struct Operators {
    address: SocketAddr,
    admin: Arc<Admin>,
    task: JoinHandle<()>,
}

/// Starts the admin listener, if there is one. It answers from before the store is open until the very end.
async fn operators(
    config: &Config,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
) -> Result<Option<Operators>> {
    let Some(settings) = &config.admin else { return Ok(None) };
    let listener = match settings.listen {
        Some(address) => Bound::to(address, "--admin")?.listen()?,
        None => Demo::operators().await?,
    };
    let address = listener.local_addr()?;
    let admin = Arc::new(Admin::new(settings, metrics, draining));
    let task = tokio::spawn(admin::serve(listener, admin.clone()));
    Ok(Some(Operators { address, admin, task }))
}

/// A port that is bound and not yet listened on: the kernel refuses connections to it.
struct Bound {
    socket: TcpSocket,
    address: SocketAddr,
    flag: &'static str,
}

impl Bound {
    /// Connections that wait to be accepted, at most.
    const BACKLOG: u32 = 1024;

    fn to(address: SocketAddr, flag: &'static str) -> Result<Self> {
        let bind = || {
            let socket =
                if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Or connections of a gateway that has just ended would keep the port.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| cannot_listen(address, flag, &error))?;
        Ok(Self { socket, address, flag })
    }

    fn listen(self) -> Result<TcpListener> {
        let Self { socket, address, flag } = self;
        socket.listen(Self::BACKLOG).map_err(|error| cannot_listen(address, flag, &error))
    }
}

fn cannot_listen(address: SocketAddr, flag: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "cannot listen on {address}: the port is in use; stop what listens there, or choose \
             another address with {flag}"
        ),
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with {flag}"),
    }
}

/// The layer around the proxy, as configured.
fn door(config: &Config, engine: Engine) -> Result<Arc<Door>> {
    let upstreams = config.upstreams.iter().map(Upstream::new);
    let pools = upstreams.map(|upstream| Pool::new(upstream, config.timeouts)).collect();
    let identify = Identify::new(config)?;
    let jwt = identify.jwt.clone();
    let layer = layer(config, identify, engine)?;
    let principal = who::header(&config.principal);
    let rules =
        HeaderRules { trust_forwarded: config.trust_forwarded, principal: principal.clone() };
    let proxy = Proxy::new(pools, rules);
    Ok(Arc::new(Door {
        guarded: layer.layer(proxy.clone()),
        proxy,
        routes: Routes::new(&config.routes, config.default_upstream)?,
        principal,
        challenge: challenge(&config.principal),
        health: StoreHealth::new(config.store_options.cache.is_some()),
        jwt,
    }))
}

fn layer(config: &Config, identify: Identify, engine: Engine) -> Result<IdempotencyLayer> {
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
fn compared(config: &Config, policy: &RoutePolicy) -> RoutePolicy {
    let policy = policy.clone();
    if config.compare_host { policy.compare_header(HOST) } else { policy }
}

/// The layer's name for a route, and its policy. One without a method is for all that are guarded by
/// default, except those that have a route of their own there.
fn guarded(route: &Route, config: &Config) -> Vec<(String, RoutePolicy)> {
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
    let arrival = parts.extensions.get::<Arrival>()?;
    arrival.found.template.as_deref().map(str::to_owned)
}

fn challenge(who: &Who) -> Option<HeaderValue> {
    match who {
        Who::Authorization | Who::Jwt(_) => Some(HeaderValue::from_static("Bearer")),
        Who::Anonymous | Who::Header(_) => None,
    }
}
