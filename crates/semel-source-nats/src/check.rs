//! Checks stream and consumer: what makes them unfit, and what a worker reports about their settings.

use std::time::Duration;

use semel_consumer::ConsumerPlan;
use semel_core::{Error, Finding, Result};

use crate::{
    config::SourceSettings,
    error,
    jetstream::{ConsumerConfig, StreamConfig},
};

/// Below this, a deadline may end before it can be extended.
const SHORT_ACK_WAIT: Duration = Duration::from_secs(1);

/// A lease that is longer than so many deadlines delays what a worker that died has left.
const LONG_LEASE: u32 = 4;

/// Refuses a consumer that cannot be pulled from.
pub(crate) fn refuse_unfit(consumer: &ConsumerConfig, name: &str) -> Result<()> {
    if consumer.deliver_subject.is_some() {
        return Err(error::pushes());
    }
    if !consumer.priority_groups.is_empty() {
        return Err(Error::invalid(format!(
            "nats: consumer {name} has priority groups, which semel does not take part in; name one without"
        )));
    }
    Ok(())
}

/// How long the server waits for an acknowledgement. A backoff list replaces `ack_wait`, attempt by attempt.
pub(crate) fn ack_deadline(consumer: &ConsumerConfig) -> Duration {
    let nanos = consumer.backoff.iter().copied().min().unwrap_or(consumer.ack_wait);
    Duration::from_nanos(nanos)
}

/// The report about an existing stream and consumer.
pub(crate) fn findings(
    settings: &SourceSettings,
    stream: &StreamConfig,
    consumer: &ConsumerConfig,
    plan: &ConsumerPlan,
) -> Vec<Finding> {
    let checks = [
        Some(ack_policy(settings, consumer)),
        Some(max_deliver(settings, stream, consumer, plan)),
        Some(max_ack_pending(settings, consumer, plan)),
        long_lease(settings, consumer, plan),
        Some(deadline(settings, consumer)),
        filters(settings, consumer),
        kept(settings, consumer),
        consumer.mem_storage.then(|| {
            Finding::warning(
                "mem_storage: a restart of the server forgets what was acknowledged, and everything comes again",
                "make the consumer with file storage",
            )
        }),
        consumer.headers_only.then(|| {
            Finding::bad("headers_only: messages come without their payload", edit(settings, "--no-headers-only"))
        }),
        (stream.storage == "memory").then(|| {
            Finding::warning(
                "storage memory: a restart of the server loses messages that were not processed",
                "make the stream with file storage",
            )
        }),
    ];
    checks.into_iter().flatten().collect()
}

fn ack_policy(settings: &SourceSettings, consumer: &ConsumerConfig) -> Finding {
    let SourceSettings { stream, consumer: name, .. } = settings;
    let again = format!(
        "make the consumer again with explicit acknowledgement: nats consumer add {stream} {name} --pull --ack explicit"
    );
    match consumer.ack_policy.as_str() {
        "explicit" => {
            Finding::good("ack_policy explicit: a message is done when it is acknowledged")
        }
        "none" => Finding::bad(
            "ack_policy none: a message that is not processed does not come again",
            again,
        ),
        "all" => Finding::bad(
            "ack_policy all: acknowledging a message acknowledges earlier ones, which may not be processed",
            again,
        ),
        other => Finding::bad(
            format!("ack_policy {other}: only explicit acknowledges single messages"),
            again,
        ),
    }
}

/// The server reports a message that it gives up on once, and workers that start later do not learn about it.
fn max_deliver(
    settings: &SourceSettings,
    stream: &StreamConfig,
    consumer: &ConsumerConfig,
    plan: &ConsumerPlan,
) -> Finding {
    let fix = edit(settings, "--max-deliver=-1");
    let Ok(limit) = u64::try_from(consumer.max_deliver) else {
        return Finding::good("max_deliver unlimited: semel counts the attempts");
    };
    if plan.max_attempts.is_none_or(|attempts| limit <= u64::from(attempts)) {
        return Finding::bad(
            format!(
                "max_deliver {limit}: the server gives up before semel does; while no worker runs, such a message is \
                 lost without a trace"
            ),
            fix,
        );
    }
    if stream.retention == "workqueue" && (stream.deny_delete || stream.sealed) {
        return Finding::bad(
            format!(
                "max_deliver {limit}: a message that the server gives up on stays in the stream for ever"
            ),
            fix,
        );
    }
    Finding::warning(
        format!(
            "max_deliver {limit}: a message that is redelivered so often, because of crashes or long waits, is never \
             processed if no worker runs when the server gives up"
        ),
        fix,
    )
}

fn max_ack_pending(
    settings: &SourceSettings,
    consumer: &ConsumerConfig,
    plan: &ConsumerPlan,
) -> Finding {
    let needed = plan.max_in_flight;
    match usize::try_from(consumer.max_ack_pending) {
        Ok(limit) if limit > 0 && limit < needed => Finding::warning(
            format!(
                "max_ack_pending {limit}: all workers together get no more unacknowledged messages than this, and one \
                 worker could hold {needed}"
            ),
            edit(
                settings,
                &format!("--max-pending={needed}, for one worker, and a multiple for more"),
            ),
        ),
        Ok(limit) if limit > 0 => Finding::good(format!(
            "max_ack_pending {limit}, of which one worker holds at most {needed}"
        )),
        _ => Finding::good("max_ack_pending unlimited"),
    }
}

fn deadline(settings: &SourceSettings, consumer: &ConsumerConfig) -> Finding {
    let deadline = ack_deadline(consumer);
    let (name, option) = if consumer.backoff.is_empty() {
        ("ack_wait", "--wait=30s")
    } else {
        ("backoff", "--backoff=none")
    };
    if deadline < SHORT_ACK_WAIT {
        return Finding::warning(
            format!(
                "{name} {deadline:?}: a short pause of the worker is enough for a second delivery"
            ),
            edit(settings, option),
        );
    }
    let requested = settings.ack_wait.filter(|requested| *requested != deadline);
    if let Some(requested) = requested {
        return Finding::warning(
            format!(
                "{name} {deadline:?}: the consumer existed, so the {requested:?} that was asked for has no effect"
            ),
            edit(settings, &format!("--wait={}s", requested.as_secs())),
        );
    }
    Finding::good(format!(
        "{name} {deadline:?}: messages of a worker that crashes come again after this time"
    ))
}

/// A message of a worker that died comes again after its deadline, and cannot run before the lease is over.
fn long_lease(
    settings: &SourceSettings,
    consumer: &ConsumerConfig,
    plan: &ConsumerPlan,
) -> Option<Finding> {
    let longest = consumer.backoff.iter().copied().max().unwrap_or(consumer.ack_wait);
    let (deadline, lease) = (Duration::from_nanos(longest), plan.lease);
    if lease <= deadline.saturating_mul(LONG_LEASE) {
        return None;
    }
    let longer = edit(settings, &format!("--wait={}s", lease.as_secs().max(1)));
    Some(Finding::warning(
        format!(
            "a message of a worker that died comes again after {deadline:?} (ack_wait) and then waits for its lease, \
             {lease:?}"
        ),
        format!("make the lease shorter, or ack_wait longer: {longer}"),
    ))
}

fn filters(settings: &SourceSettings, consumer: &ConsumerConfig) -> Option<Finding> {
    let requested = sorted(settings.filter_subjects.iter());
    if requested.is_empty() {
        return None;
    }
    let one = Some(&consumer.filter_subject).filter(|filter| !filter.is_empty());
    let present = sorted(consumer.filter_subjects.iter().chain(one));
    if requested == present {
        return Some(Finding::good(format!("filters {}", requested.join(", "))));
    }
    let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
    Some(Finding::bad(
        format!(
            "filters {present}: the consumer existed, and these are not the ones that were asked for"
        ),
        "leave out the filters, or name another consumer",
    ))
}

fn sorted<'a>(filters: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut filters: Vec<_> = filters.map(String::as_str).collect();
    filters.sort_unstable();
    filters
}

/// A consumer that is removed while no worker runs begins again, or misses messages.
fn kept(settings: &SourceSettings, consumer: &ConsumerConfig) -> Option<Finding> {
    let SourceSettings { stream, consumer: name, .. } = settings;
    let unused = Duration::from_nanos(consumer.inactive_threshold);
    if consumer.durable_name.is_some() && unused.is_zero() {
        return None;
    }
    Some(Finding::warning(
        format!(
            "the server removes this consumer, and its progress, when it was unused for {unused:?}"
        ),
        format!(
            "make a durable one without inactive_threshold: nats consumer add {stream} {name} --pull"
        ),
    ))
}

fn edit(settings: &SourceSettings, option: &str) -> String {
    format!("nats consumer edit {} {} {option}", settings.stream, settings.consumer)
}

#[cfg(test)]
mod tests {
    use semel_core::Level;

    use super::*;
    use crate::config::NatsSourceBuilder;

    const SECOND: u64 = 1_000_000_000;

    fn fit() -> ConsumerConfig {
        ConsumerConfig {
            durable_name: Some("c".to_owned()),
            ack_policy: "explicit".to_owned(),
            ack_wait: 30 * SECOND,
            max_deliver: -1,
            max_ack_pending: 1000,
            ..ConsumerConfig::default()
        }
    }

    fn plan(max_attempts: Option<u32>) -> ConsumerPlan {
        ConsumerPlan {
            concurrency: 10,
            max_in_flight: 20,
            max_attempts,
            lease: Duration::from_secs(30),
        }
    }

    fn report(consumer: &ConsumerConfig, url: &str) -> Vec<Finding> {
        let settings = NatsSourceBuilder::new(url).settings().unwrap();
        findings(&settings, &StreamConfig::default(), consumer, &plan(Some(5)))
    }

    /// The worst finding.
    fn worst(change: impl FnOnce(&mut ConsumerConfig)) -> Finding {
        let mut consumer = fit();
        change(&mut consumer);
        report(&consumer, "nats://h/S/c").into_iter().max_by_key(|finding| finding.level).unwrap()
    }

    #[test]
    fn a_fit_consumer_has_only_good_findings() {
        assert_eq!(worst(|_| {}).level, Level::Good);
        assert_eq!(worst(|it| it.max_ack_pending = -1).level, Level::Good);
    }

    #[test]
    fn each_unfit_setting_is_found_with_its_fix() {
        use Level::{Bad, Warning};
        type Change = fn(&mut ConsumerConfig);
        let cases: [(Level, &str, &str, Change); 10] = [
            (Bad, "ack_policy none", "--ack explicit", |it| it.ack_policy = "none".into()),
            (Bad, "ack_policy all", "--ack explicit", |it| it.ack_policy = "all".into()),
            (Bad, "max_deliver 5", "--max-deliver=-1", |it| it.max_deliver = 5),
            (Warning, "max_deliver 6", "--max-deliver=-1", |it| it.max_deliver = 6),
            (Warning, "max_ack_pending 19", "--max-pending=20", |it| it.max_ack_pending = 19),
            (Warning, "ack_wait 999ms", "--wait=30s", |it| it.ack_wait = SECOND - 1_000_000),
            (Warning, "backoff 500ms", "--backoff", |it| it.backoff = vec![SECOND, SECOND / 2]),
            (Warning, "unused for 60s", "durable", |it| it.inactive_threshold = 60 * SECOND),
            (Warning, "mem_storage", "file storage", |it| it.mem_storage = true),
            (Bad, "headers_only", "nats consumer edit S c", |it| it.headers_only = true),
        ];
        for (level, what, fix, change) in cases {
            let found = worst(change);
            assert_eq!(found.level, level, "{found:?}");
            assert!(
                found.what.contains(what) && found.fix.as_ref().unwrap().contains(fix),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_limit_of_the_server_is_bad_if_semel_has_none() {
        let settings = NatsSourceBuilder::new("nats://h/S/c").settings().unwrap();
        let limited = ConsumerConfig { max_deliver: 100, ..fit() };
        let found = max_deliver(&settings, &StreamConfig::default(), &limited, &plan(None));
        assert_eq!(found.level, Level::Bad);
    }

    #[test]
    fn a_lease_that_is_much_longer_than_the_deadline_is_reported() {
        let settings = NatsSourceBuilder::new("nats://h/S/c").settings().unwrap();
        let found = |ack_wait: u64, backoff: &[u64]| {
            let consumer = ConsumerConfig {
                ack_wait: ack_wait * SECOND,
                backoff: backoff.iter().map(|seconds| seconds * SECOND).collect(),
                ..fit()
            };
            long_lease(&settings, &consumer, &plan(Some(5)))
        };
        assert_eq!((found(8, &[]), found(1, &[1, 8])), (None, None), "the lease is 30 s");
        let found = found(7, &[]).unwrap();
        assert_eq!(found.level, Level::Warning);
        assert!(found.what.contains("after 7s") && found.what.contains("lease, 30s"), "{found:?}");
        assert!(found.fix.unwrap().contains("--wait=30s"));
    }

    #[test]
    fn settings_for_a_new_consumer_are_compared_with_an_existing_one() {
        let consumer = ConsumerConfig { filter_subjects: vec!["b".into(), "a".into()], ..fit() };
        let level =
            |url: &str| report(&consumer, url).iter().map(|finding| finding.level).max().unwrap();
        assert_eq!(level("nats://h/S/c?filter=a&filter=b&ack-wait=30s"), Level::Good);
        assert_eq!(level("nats://h/S/c?filter=a"), Level::Bad);
        assert_eq!(level("nats://h/S/c?ack-wait=5s"), Level::Warning);
    }

    #[test]
    fn a_consumer_that_cannot_be_pulled_from_is_refused() {
        refuse_unfit(&fit(), "c").unwrap();
        let pushes = ConsumerConfig { deliver_subject: Some("out".to_owned()), ..fit() };
        assert!(refuse_unfit(&pushes, "c").unwrap_err().to_string().contains("pull consumer"));
        let groups = ConsumerConfig { priority_groups: vec!["a".to_owned()], ..fit() };
        assert!(refuse_unfit(&groups, "c").unwrap_err().to_string().contains("priority groups"));
    }

    #[test]
    fn the_smallest_backoff_is_the_deadline() {
        assert_eq!(ack_deadline(&fit()), Duration::from_secs(30));
        let backoff = ConsumerConfig { backoff: vec![5 * SECOND, 2 * SECOND], ..fit() };
        assert_eq!(ack_deadline(&backoff), Duration::from_secs(2));
    }
}
