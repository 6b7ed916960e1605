//! Starts the gateway, serves until a signal, and shuts down.

use std::io::{self, Write};

use anyhow::{Result, ensure};
use semel::Engine;
use semel_service::{
    admin::AdminListener,
    listener::BoundPort,
    settings::GatewayConfig,
    signals::Signals,
    store,
    telemetry::{self, Metrics},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing::{info, warn};

use super::{
    demo::Demo, metrics, pipeline::RequestPipeline, readiness::GatewayReadiness, rotation, server,
    upstream_probe,
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
    let pipeline = RequestPipeline::new(&config, engine.clone())?;
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
