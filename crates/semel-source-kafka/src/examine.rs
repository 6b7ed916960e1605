//! Looks at topics and group without becoming a member of the group, which would take partitions from its members.

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};
use semel_consumer::{ConsumerPlan, ExaminedSource};
use semel_core::{Finding, Result};

use crate::{
    check, client::Reports, config::SourceSettings, error, poll_thread::blocking, source, topic,
};

/// How far a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupProgress {
    partitions: usize,
    /// Partitions with a committed offset.
    committed: usize,
}

pub(crate) async fn run(settings: &SourceSettings, plan: &ConsumerPlan) -> Result<ExaminedSource> {
    let progress = progress(settings).await?;
    let topics = settings.topic_settings().await?;
    let mut findings = check::findings(settings, &topics, plan);
    findings.push(group(&settings.group, progress));
    Ok(ExaminedSource { info: source::info(settings, &topics), findings })
}

async fn progress(settings: &SourceSettings) -> Result<GroupProgress> {
    let mut config = settings.cluster.client_config()?;
    // The driver joins a group when topics are subscribed, which does not happen here.
    config.set("group.id", &settings.group).set("enable.auto.commit", "false");
    let (topics, subject) = (settings.topics.clone(), format!("group {}", settings.group));
    blocking(move || {
        let reports = Reports::default();
        let created = config.create_with_context(reports.clone());
        let consumer: BaseConsumer<Reports> =
            created.map_err(|failed| error::about("the cluster", &failed))?;
        let mut wanted = TopicPartitionList::new();
        for topic in &topics {
            for partition in topic::partitions(&consumer, &reports, topic)? {
                wanted.add_partition(topic, partition);
            }
        }
        let committed = consumer.committed_offsets(wanted, topic::REQUEST);
        let committed = committed.map_err(|failed| reports.explain(&subject, &failed))?;
        let elements = committed.elements();
        let is_committed = |offset| matches!(offset, Offset::Offset(_));
        Ok(GroupProgress {
            partitions: elements.len(),
            committed: elements.iter().filter(|it| is_committed(it.offset())).count(),
        })
    })
    .await
}

fn group(name: &str, progress: GroupProgress) -> Finding {
    let GroupProgress { partitions, committed } = progress;
    Finding::good(match committed {
        0 => format!(
            "group {name}: it has no committed offsets; a new group begins as offset reset says"
        ),
        _ => format!("group {name}: committed offsets in {committed} of {partitions} partitions"),
    })
}
