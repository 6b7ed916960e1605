//! Starts the worker, consumes until a signal, and drains.

use anyhow::{Context, Result, ensure};
use semel::Engine;
use semel_consumer::ConsumerReport;
use semel_service::{
    admin::AdminListener,
    listener::BoundPort,
    settings::{DeadLetterTarget, HandlerUrl, WorkerConfig},
    signals::Signals,
    store,
    telemetry::{self, Metrics},
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    consumer, demo, metrics,
    open::{self, OnMissing, SharedSink, SharedSource},
    readiness::WorkerReadiness,
    rotation,
};

/// Consumes until SIGTERM or SIGINT.
///
/// # Errors
///
/// When the worker cannot start, when an event of an unknown type stops it, or when not all events in progress ended
/// within the grace time.
pub async fn run(config: WorkerConfig) -> Result<()> {
    if config.demo {
        return demo::run(config).await;
    }
    let (metrics, _logs) = telemetry::init(&config.log, &[metrics::BUCKETS])?;
    metrics::register();
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let mut signals = Signals::listen()?;
    let hangup = rotation::listen()?;
    let handler = config.handler.clone().context("there is no handler; set --handler")?;
    let (drain, draining) = watch::channel(false);
    let admin = admin(&config, metrics, draining).await?;
    let opened = tokio::select! {
        opened = Opened::open(&config) => opened?,
        () = signals.next() => {
            info!("ended before the source and the store were open");
            return Ok(());
        }
    };
    let Opened { source, sink, engine } = opened;
    let rotation = rotation::start(&config, hangup)?;
    let consumer = consumer::build(&config, source.clone(), sink, engine.clone(), &handler)?;
    consumer::check(&consumer).await?;
    if let Some(admin) = &admin {
        let control = consumer.control();
        let handler = needs_handler(&config).then(|| handler.clone());
        admin.store_opened(
            engine,
            Box::new(WorkerReadiness { control, source: source.clone(), handler }),
        );
    }
    log_start(&source, &handler);
    let shutdown = async {
        signals.shutdown(|| {}).await;
        drain.send_replace(true);
    };
    let report = consumer.run_until(shutdown).await;
    rotation.abort();
    if let Some(admin) = admin {
        admin.stop();
    }
    finish(&config, report?)
}

/// What a worker needs before the first message.
struct Opened {
    source: SharedSource,
    sink: Option<SharedSink>,
    engine: Engine,
}

impl Opened {
    async fn open(config: &WorkerConfig) -> Result<Self> {
        let url = config.source.as_ref().context("there is no source; set --source")?;
        let source = open::source(url).await?;
        let sink = sink(config).await?;
        let engine = store::open_for_service(config.store.as_ref(), &config.store_options).await?;
        match engine.store().stats().await {
            Ok(stats) => telemetry::show_stats(&stats),
            // Of two servers that are one store, one may be unreachable.
            Err(error) => warn!("cannot read the statistics of the store: {error}"),
        }
        Ok(Self { source, sink, engine })
    }
}

async fn sink(config: &WorkerConfig) -> Result<Option<SharedSink>> {
    match &config.dead_letters {
        Some(DeadLetterTarget::Url(url)) => {
            let on_missing = if config.store_options.migrate {
                OnMissing::Create
            } else {
                OnMissing::CreateIfRequested
            };
            let letters = open::dead_letters(url, on_missing).await?;
            Ok(Some(SharedSink(letters)))
        }
        Some(DeadLetterTarget::Drop) | None => {
            warn!("dead letters are dropped: no copy is kept of messages that cannot be processed");
            Ok(None)
        }
    }
}

/// Starts the admin listener, if there is one. It answers from before the store is open until the process ends.
async fn admin(
    config: &WorkerConfig,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
) -> Result<Option<AdminListener>> {
    let Some(settings) = &config.admin else { return Ok(None) };
    let Some(address) = settings.listen else { return Ok(None) };
    let listener = BoundPort::bind(address, "--admin")?.listen()?;
    Ok(Some(AdminListener::start(listener, settings.token.clone(), metrics, draining)?))
}

fn needs_handler(config: &WorkerConfig) -> bool {
    config.admin.as_ref().is_some_and(|admin| admin.ready_needs_upstreams)
}

fn log_start(source: &SharedSource, handler: &HandlerUrl) {
    use semel_consumer::Source;
    info!("consuming {}, events go to {handler}", source.info().name);
}

fn finish(config: &WorkerConfig, report: ConsumerReport) -> Result<()> {
    let ConsumerReport { returned, cut_off } = report;
    ensure!(
        cut_off == 0,
        "not everything ended within {:?} (shutdown_grace): events that were cut off: {cut_off}; their messages \
         come again after their leases",
        config.shutdown_grace
    );
    match returned {
        0 => info!("all events ended"),
        1 => info!("all events ended; 1 message that was not begun is back in the broker"),
        _ => info!(
            "all events ended; {returned} messages that were not begun are back in the broker"
        ),
    }
    Ok(())
}
