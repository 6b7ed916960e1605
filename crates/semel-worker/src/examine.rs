//! Looks at the source and the dead letters of a worker, for `semel doctor`. Nothing is received, created or changed: a
//! worker that runs keeps what it has.

use anyhow::Result;
use semel::Finding;
use semel_consumer::{ConsumerPlan, ExaminedSource};
use semel_service::settings::{DeadLetterTarget, EventsConfig};

use crate::{consumer, open};

/// What was found about a source or about dead letters.
#[derive(Debug)]
pub struct ExaminedPart {
    /// As in logs, such as `kafka orders/billing`. `None` if there was no answer.
    pub name: Option<String>,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// Looks at the source, as a worker with these settings would see it; `None` if there is none.
pub async fn source(config: &EventsConfig) -> Option<ExaminedPart> {
    let url = config.source.as_ref()?;
    Some(match open::examine_source(url.expose(), &plan(config)).await {
        Ok(ExaminedSource { info, mut findings }) => {
            let window = info.redelivery_window;
            let resolved = config.retention.resolve(window, config.allow_short_retention);
            findings.insert(
                0,
                match resolved {
                    Ok((_, finding)) => finding,
                    Err(error) => failed(&consumer::in_own_words(&error)),
                },
            );
            ExaminedPart { name: Some(info.name), findings }
        }
        Err(error) => ExaminedPart { name: None, findings: vec![failed(&error)] },
    })
}

/// Looks at the dead letters; `None` if no setting says what happens to them.
pub async fn dead_letters(config: &EventsConfig) -> Option<ExaminedPart> {
    let findings = match config.dead_letters.as_ref()? {
        DeadLetterTarget::Drop => vec![Finding::warning(
            "dead letters are dropped: no copy is kept of messages that cannot be processed",
            "name a sink with --dead-letter, such as file:dead-letters",
        )],
        DeadLetterTarget::Url(url) => {
            let examined: Result<_> = open::examine_dead_letters(url.expose()).await;
            examined.unwrap_or_else(|error| vec![failed(&error)])
        }
    };
    Some(ExaminedPart { name: None, findings })
}

fn plan(config: &EventsConfig) -> ConsumerPlan {
    let EventsConfig { concurrency, max_in_flight, max_attempts, lease, .. } = *config;
    ConsumerPlan {
        concurrency,
        max_in_flight: consumer::max_in_flight(concurrency, max_in_flight),
        max_attempts: Some(max_attempts),
        lease,
    }
}

/// A finding from an error, whose message says what is wrong and, after a semicolon, what to do.
fn failed(error: &anyhow::Error) -> Finding {
    let text = error.to_string();
    match text.split_once("; ") {
        Some((what, fix)) => Finding::bad(what, fix),
        None => Finding::bad(text, "check that the server runs and that the URL is right"),
    }
}
