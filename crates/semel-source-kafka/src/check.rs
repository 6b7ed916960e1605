//! What a worker reports about the settings of topics and group.

use std::time::Duration;

use rdkafka::ClientConfig;
use semel_consumer::ConsumerPlan;
use semel_core::Finding;

use crate::{config::SourceSettings, topic::TopicSettings};

/// How long a member of the group may be silent if nothing else is set: the driver's default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

/// The report about existing topics and the settings of this source.
pub(crate) fn findings(
    settings: &SourceSettings,
    topics: &[TopicSettings],
    plan: &ConsumerPlan,
) -> Vec<Finding> {
    let config = settings.client_config().unwrap_or_default();
    let mut findings: Vec<_> = topics.iter().flat_map(topic).collect();
    findings.push(reset(&config));
    findings.push(isolation(&config));
    findings.extend(session(&config, plan));
    findings.extend(window(settings, plan));
    findings
}

fn topic(topic: &TopicSettings) -> Vec<Finding> {
    let name = &topic.name;
    if !topic.is_known {
        return vec![Finding::warning(
            format!(
                "topic {name}: this user may not read its settings, so it is not known how long records are kept"
            ),
            format!("allow DescribeConfigs on topic {name}, or set redelivery-window"),
        )];
    }
    if let Some(window) = topic.redelivery_window().filter(|_| topic.is_given) {
        return vec![Finding::good(format!(
            "topic {name}: copies come for up to {window:?} (redelivery-window); its settings were not read"
        ))];
    }
    let mut findings = vec![Finding::good(match topic.redelivery_window() {
        Some(retention) => {
            format!(
                "topic {name}: records are kept for up to {retention:?} (retention.ms and segment.ms)"
            )
        }
        None => format!("topic {name}: records are kept without a limit of time"),
    })];
    if topic.is_compacted {
        findings.push(Finding::warning(
            format!("topic {name}: cleanup.policy compact removes a record when a later one has its key, also before it is processed"),
            "use a topic with cleanup.policy delete, unless only the last record of each key matters",
        ));
    }
    if let Some(bytes) = topic.retention_bytes {
        findings.push(Finding::warning(
            format!("topic {name}: retention.bytes {bytes} removes old records also before they are processed"),
            format!("watch consumer_lag, or set retention.bytes of topic {name} to -1"),
        ));
    }
    findings
}

fn reset(config: &ClientConfig) -> Finding {
    match config.get("auto.offset.reset") {
        Some("earliest" | "smallest" | "beginning") => Finding::good(
            "offset reset earliest: a group without committed offsets begins at the oldest record",
        ),
        Some(other) => Finding::warning(
            format!(
                "offset reset {other}: a group without committed offsets leaves out what was published before, also \
                 when its offsets have expired"
            ),
            "set offset-reset=earliest: copies of what was processed do not run",
        ),
        None => Finding::good("offset reset as the driver has it"),
    }
}

fn isolation(config: &ClientConfig) -> Finding {
    match config.get("isolation.level") {
        Some("read_uncommitted") => Finding::warning(
            "isolation.level read_uncommitted: records of transactions that are aborted are processed, too",
            "leave isolation.level out",
        ),
        _ => Finding::good(
            "isolation.level read_committed: records of aborted transactions are left out",
        ),
    }
}

/// A message of a process that died comes again when the group has noticed, and cannot run before the lease is over.
fn session(config: &ClientConfig, plan: &ConsumerPlan) -> Option<Finding> {
    let set = config.get("session.timeout.ms").and_then(|it| it.parse().ok());
    let session = set.map_or(SESSION_TIMEOUT, Duration::from_millis);
    (plan.lease > session.saturating_mul(4)).then(|| {
        Finding::warning(
            format!(
                "a message of a process that died comes again after {session:?} (session.timeout.ms) and then waits \
                 for its lease, {:?}",
                plan.lease
            ),
            "make the lease shorter",
        )
    })
}

fn window(settings: &SourceSettings, plan: &ConsumerPlan) -> Option<Finding> {
    let (window, needed) = (settings.window, plan.max_in_flight);
    (window < needed).then(|| {
        Finding::warning(
            format!("window {window}: one partition alone cannot fill the {needed} places of messages in flight"),
            format!("set window={needed} or more"),
        )
    })
}

#[cfg(test)]
mod tests {
    use semel_core::Level;

    use super::*;
    use crate::config::KafkaSourceBuilder;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn report(options: &str, topic: TopicSettings) -> Vec<Finding> {
        let url = format!("kafka://h/orders?group=g{options}");
        let settings = KafkaSourceBuilder::new(&url).settings().unwrap();
        let plan = ConsumerPlan {
            concurrency: 64,
            max_in_flight: 128,
            max_attempts: Some(5),
            lease: Duration::from_secs(30),
        };
        findings(&settings, &[topic], &plan)
    }

    fn fit() -> TopicSettings {
        TopicSettings {
            name: "orders".to_owned(),
            retention: Some(7 * DAY),
            is_known: true,
            ..TopicSettings::default()
        }
    }

    #[test]
    fn a_usual_topic_has_only_good_findings() {
        assert!(report("", fit()).iter().all(|finding| finding.level == Level::Good));
    }

    #[test]
    fn each_unfit_setting_is_found_with_its_fix() {
        let compacted = TopicSettings { is_compacted: true, ..fit() };
        let limited = TopicSettings { retention_bytes: Some(1000), ..fit() };
        let secret = TopicSettings { is_known: false, ..fit() };
        for (what, fix, options, topic) in [
            ("compact", "cleanup.policy delete", "", compacted),
            ("retention.bytes 1000", "-1", "", limited),
            ("may not read", "DescribeConfigs", "", secret),
            ("leaves out", "earliest", "&offset-reset=latest", fit()),
            ("aborted", "isolation.level", "&isolation.level=read_uncommitted", fit()),
            ("session.timeout.ms", "lease", "&session.timeout.ms=7000", fit()),
            ("window 7", "window=128", "&window=7", fit()),
        ] {
            let found = report(options, topic);
            let found = found.iter().find(|finding| finding.level == Level::Warning).unwrap();
            assert!(found.what.contains(what), "{found:?}");
            assert!(found.fix.as_ref().unwrap().contains(fix), "{found:?}");
        }
    }
}
