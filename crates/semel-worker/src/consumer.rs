//! Builds the consumer from the settings.

use anyhow::{Result, anyhow, bail};
use semel::{Engine, Level};
use semel_consumer::{Consumer, ConsumerBuilder, Source};
use semel_service::settings::{HandlerUrl, WorkerConfig};

use crate::{handler::HttpHandler, open::SharedSink};

/// The consumer of `source` that posts events to `handler`. Without a sink, dead letters are dropped.
pub(crate) fn build(
    config: &WorkerConfig,
    source: impl Source,
    sink: Option<SharedSink>,
    engine: Engine,
    handler: &HandlerUrl,
) -> Result<Consumer> {
    let info = source.info();
    let handler = HttpHandler::new(
        handler,
        &info.name,
        config.permanent_statuses.clone(),
        config.types.iter().cloned(),
        config.handler_timeout,
    );
    let builder = with_settings(Consumer::builder(source), config).engine(engine);
    let builder = match sink {
        Some(sink) => builder.dead_letters(sink),
        None => builder.drop_dead_letters(),
    };
    builder.handle_with(handler).build().map_err(|error| in_own_words(&error))
}

fn with_settings(builder: ConsumerBuilder, config: &WorkerConfig) -> ConsumerBuilder {
    let builder = builder
        .namespace(&config.namespace)
        .retention(config.retention)
        .lease(config.lease)
        .max_run(config.max_run)
        .max_attempts(config.max_attempts)
        .on_lost_owner(config.on_lost_owner)
        .concurrency(config.concurrency)
        .mode(config.mode)
        .order(config.order)
        .on_dead_letter(config.on_dead_letter)
        .on_mismatch(config.on_mismatch)
        .unknown_type(config.unknown_type)
        .max_bytes(config.max_body)
        .grace(config.shutdown_grace)
        // The texts are the worker's own: they quote no event.
        .log_errors();
    let builder = if config.check_json { builder.check_json() } else { builder };
    let builder = match &config.name {
        Some(name) => builder.name(name),
        None => builder,
    };
    let builder = builder.max_in_flight(max_in_flight(config.concurrency, config.max_in_flight));
    match config.allow_short_retention {
        true => builder.allow_short_retention(),
        false => builder,
    }
}

/// The most messages that are received and not settled.
pub(crate) fn max_in_flight(concurrency: usize, set: Option<usize>) -> usize {
    set.unwrap_or_else(|| concurrency.saturating_mul(Consumer::IN_FLIGHT_PER_HANDLER))
}

/// Adds to an error of the library the settings that its fix is about.
pub(crate) fn in_own_words(error: &semel::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.strip_prefix("consumer: ").unwrap_or(&text);
    match what.contains("retention") {
        true => anyhow!(
            "{} (--retention, --allow-short-retention)",
            what.replace("Retention::Auto", "auto")
        ),
        false => anyhow!("{what}"),
    }
}

/// Fails with everything that is wrong with the broker's settings and the dead letters, and the fixes.
pub(crate) async fn check(consumer: &Consumer) -> Result<()> {
    let findings = consumer.check().await?;
    let bad = findings.into_iter().filter(|finding| finding.level == Level::Bad);
    let bad: Vec<_> =
        bad.map(|it| format!("{}; {}", it.what, it.fix.unwrap_or_default())).collect();
    if !bad.is_empty() {
        bail!(bad.join("\nerror: "));
    }
    Ok(())
}
