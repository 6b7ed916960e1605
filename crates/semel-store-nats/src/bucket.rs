//! Opens the bucket: makes it if there is none, and checks its settings and the hash secret.

use std::{sync::Arc, time::Duration};

use semel_core::{Error, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bucket_client::BucketClient,
    check,
    error::{RequestError, timed_out},
    jetstream_api::{StreamConfig, StreamInfo},
    settings::NatsSettings,
};

const PAUSE: Duration = Duration::from_millis(50);

/// A bucket that can keep the store's promises.
#[derive(Debug)]
pub(crate) struct OpenedBucket {
    pub(crate) bucket: BucketClient,
    /// Most bytes of one message, headers included.
    pub(crate) max_message: usize,
}

impl NatsSettings {
    /// Connects, makes the bucket if there is none, and refuses one that cannot keep the store's promises.
    pub(crate) async fn open(self: &Arc<Self>) -> Result<OpenedBucket> {
        let deadline = Instant::now() + self.call_timeout;
        let bucket = BucketClient::open(self).await?;
        check::refuse_old(&bucket.client().server_info(), self)?;
        let mut last_error = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(opened) = timeout(left, self.open_bucket(&bucket)).await else {
                return Err(last_error.unwrap_or_else(timed_out));
            };
            match opened {
                Ok(config) => {
                    let max_message = max_message(&config, &bucket);
                    return Ok(OpenedBucket { bucket, max_message });
                }
                // The stream may have no leader at the moment, or another process may have been first.
                Err(
                    error @ (RequestError::Unacknowledged(_)
                    | RequestError::NoBucket(_)
                    | RequestError::Conflict),
                ) => {
                    last_error = Some(error.into_error());
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into_error()),
            }
        }
    }

    async fn open_bucket(&self, bucket: &BucketClient) -> Result<StreamConfig, RequestError> {
        let info = match bucket.info().await? {
            Some(info) => info,
            None if self.skip_setup => return Err(RequestError::Refused(missing(self))),
            None => self.create(bucket).await?,
        };
        check::refuse_unfit(&info.config, self).map_err(RequestError::Refused)?;
        self.check_meta(bucket).await?;
        Ok(info.config)
    }

    async fn create(&self, bucket: &BucketClient) -> Result<StreamInfo, RequestError> {
        let config = self.bucket_config(&bucket.client().server_info());
        let made = bucket.create(&config).await?;
        tracing::info!(bucket = %bucket.names.bucket, replicas = config.num_replicas, "nats: bucket made");
        Ok(made)
    }

    /// The bucket as semel makes it: a KV bucket for other clients too, which evicts nothing.
    pub(crate) fn bucket_config(&self, server: &async_nats::ServerInfo) -> StreamConfig {
        let replicas = if server.cluster.is_some() { CLUSTER_REPLICAS } else { 1 };
        let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        StreamConfig {
            name: self.names.stream.clone(),
            subjects: vec![self.names.bucket_subjects()],
            discard: "new".to_owned(),
            num_replicas: self.replicas.unwrap_or(replicas),
            max_msgs_per_subject: 1,
            max_age: self.old_server.map_or(0, nanos),
            allow_rollup_hdrs: true,
            allow_direct: true,
            deny_delete: true,
            allow_msg_ttl: self.old_server.is_none(),
            ..StreamConfig::default()
        }
    }
}

/// The replicas of a bucket that is made in a cluster.
const CLUSTER_REPLICAS: u8 = 3;

fn max_message(config: &StreamConfig, bucket: &BucketClient) -> usize {
    let server = bucket.client().server_info().max_payload;
    usize::try_from(config.max_msg_size).map_or(server, |bucket| bucket.min(server))
}

fn missing(settings: &NatsSettings) -> Error {
    Error::invalid(format!(
        "nats: there is no bucket {}; semel makes it when a gateway or a worker first starts on it",
        settings.names.bucket
    ))
}
