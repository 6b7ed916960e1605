//! Looks at topics and group without becoming a member of the group, which would take partitions from its members.

use std::{
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    types::RDKafkaErrorCode,
};
use semel_consumer::{ConsumerPlan, ExaminedSource};
use semel_core::Finding;

use crate::{
    check, client::Reports, config::SourceSettings, error, poll_thread::blocking, source, topic,
};

/// The pause before the offsets of a group without a coordinator are asked for again.
const RETRY: Duration = Duration::from_millis(50);

/// How far a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupProgress {
    partitions: usize,
    /// Partitions with a committed offset.
    committed: usize,
}

pub(crate) async fn run(
    settings: &SourceSettings,
    plan: &ConsumerPlan,
) -> semel_core::Result<ExaminedSource> {
    let progress = progress(settings).await?;
    let topics = settings.topic_settings().await?;
    let mut findings = check::findings(settings, &topics, plan);
    findings.push(group(&settings.group, progress));
    Ok(ExaminedSource { info: source::info(settings, &topics), findings })
}

async fn progress(settings: &SourceSettings) -> semel_core::Result<GroupProgress> {
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
        let committed = committed_offsets(&consumer, &wanted);
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

/// The committed offsets of these partitions. The group's coordinator may just be moving, as it does after the first
/// request for a new group. Blocks.
fn committed_offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    wanted: &TopicPartitionList,
) -> Result<TopicPartitionList, KafkaError> {
    let deadline = Instant::now() + topic::REQUEST;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match consumer.committed_offsets(wanted.clone(), left) {
            Err(error) if is_moving(&error) && Instant::now() < deadline => {
                thread::sleep(RETRY);
            }
            reply => return reply,
        }
    }
}

/// True while the group has no coordinator that knows it.
fn is_moving(error: &KafkaError) -> bool {
    error::code(error).is_some_and(|code| {
        matches!(
            code,
            RDKafkaErrorCode::NotCoordinator
                | RDKafkaErrorCode::CoordinatorNotAvailable
                | RDKafkaErrorCode::CoordinatorLoadInProgress
        )
    })
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

#[cfg(test)]
mod tests {
    use rdkafka::{
        ClientConfig,
        consumer::DefaultConsumerContext,
        mocking::MockCluster,
        types::{RDKafkaApiKey, RDKafkaRespErr},
    };

    use super::*;

    #[test]
    fn a_coordinator_that_moves_is_asked_again() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "billing");
        let consumer: BaseConsumer<DefaultConsumerContext> = config.create().unwrap();
        let refusals = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
        ];
        cluster.request_errors(RDKafkaApiKey::OffsetFetch, &refusals);
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition("orders", 0);
        assert_eq!(committed_offsets(&consumer, &wanted).unwrap().count(), 1);
    }
}
