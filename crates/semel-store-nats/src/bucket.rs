//! Opens the bucket: made if it is missing, checked if it is there, and one hash secret for all.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{Error, Finding, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bucket_client::{Link, Over, Put},
    check,
    error::{Trouble, timed_out},
    jetstream_api::{Config, Info},
    settings::Plan,
    value::Encoded,
};

const PAUSE: Duration = Duration::from_millis(50);

/// A bucket that can keep what the store promises.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) link: Link,
    /// Bytes of one message at most, headers included.
    pub(crate) max_message: usize,
}

impl Plan {
    /// Connects, makes the bucket if there is none, and refuses one that cannot keep the promise.
    pub(crate) async fn open(self: &Arc<Self>) -> Result<Opened> {
        let deadline = Instant::now() + self.call_timeout;
        let link = Link::open(self).await?;
        check::refuse_old(&link.client().server_info(), self)?;
        let mut why = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(opened) = timeout(left, self.open_bucket(&link)).await else {
                return Err(why.unwrap_or_else(timed_out));
            };
            match opened {
                Ok(config) => {
                    let max_message = max_message(&config, &link);
                    return Ok(Opened { link, max_message });
                }
                // The stream may be between two leaders, or another process may have been first.
                Err(trouble @ (Trouble::Lost(_) | Trouble::Absent(_) | Trouble::Conflict)) => {
                    why = Some(trouble.into_error());
                    sleep(PAUSE).await;
                }
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
    }

    async fn open_bucket(&self, link: &Link) -> Result<Config, Trouble> {
        let info = match link.info().await? {
            Some(info) => info,
            None if self.look_only => return Err(Trouble::Refused(missing(self))),
            None => self.create(link).await?,
        };
        check::refuse_unfit(&info.config, self).map_err(Trouble::Refused)?;
        self.agree_on_the_secret(link).await?;
        Ok(info.config)
    }

    async fn create(&self, link: &Link) -> Result<Info, Trouble> {
        let config = self.bucket(&link.client().server_info());
        let made = link.create(&config).await?;
        tracing::info!(bucket = %link.names.bucket, replicas = config.num_replicas, "nats: bucket made");
        Ok(made)
    }

    /// The bucket as semel makes it: as other KV clients know it, and never forgetting on its own.
    pub(crate) fn bucket(&self, server: &async_nats::ServerInfo) -> Config {
        let replicas = if server.cluster.is_some() { CLUSTERED } else { 1 };
        let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Config {
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
            ..Config::default()
        }
    }

    /// The first process writes what all others must have.
    async fn agree_on_the_secret(&self, link: &Link) -> Result<(), Trouble> {
        let subject = &link.names.secret_check;
        let settled = link.last(subject, Over::Own).await?;
        let revision = settled.as_ref().map_or(0, |message| message.revision);
        match settled.and_then(|message| message.value) {
            Some(settled) => self.compared(&settled).map_err(Trouble::Refused),
            None if self.look_only => Ok(()),
            None => {
                let bytes = Bytes::copy_from_slice(&self.secret_check);
                let value = Encoded { bytes, ttl: None };
                let put = Put::Value(&value);
                link.put(subject.clone(), Some(revision), put, Over::Own).await.map(drop)
            }
        }
    }

    fn compared(&self, settled: &[u8]) -> Result<()> {
        if settled == self.secret_check {
            return Ok(());
        }
        Err(Error::invalid(
            "nats: the other processes on this store hash keys with another secret; give this one the \
             same --hash-secret-file or SEMEL_HASH_SECRET, or another prefix",
        ))
    }

    /// What an operator should know about the servers. Changes nothing.
    pub(crate) async fn findings(self: &Arc<Self>) -> Vec<Finding> {
        let looked = timeout(self.call_timeout, self.look()).await;
        looked.unwrap_or_else(|_| Err(timed_out())).unwrap_or_else(|error| vec![check::bad(&error)])
    }

    async fn look(self: &Arc<Self>) -> Result<Vec<Finding>> {
        let link = Link::open(self).await?;
        let server = link.client().server_info();
        let mut findings = vec![match check::refuse_old(&server, self) {
            Ok(()) => check::server(&server, self),
            Err(error) => check::bad(&error),
        }];
        let Some(info) = link.info().await.map_err(Trouble::into_error)? else {
            findings
                .push(Finding::good("there is no bucket yet; semel makes it at the first start"));
            return Ok(findings);
        };
        match check::refuse_unfit(&info.config, self) {
            Ok(()) => findings.extend(check::findings(&info)),
            Err(error) => findings.push(check::bad(&error)),
        }
        let settled =
            link.last(&link.names.secret_check, Over::Own).await.map_err(Trouble::into_error)?;
        findings.push(match settled.and_then(|message| message.value) {
            None => Finding::good("no process has settled the hash secret yet"),
            Some(settled) => match self.compared(&settled) {
                Ok(()) => Finding::good("the hash secret is the one the fleet agreed on"),
                Err(error) => check::bad(&error),
            },
        });
        Ok(findings)
    }
}

/// Copies of a bucket that is made in a cluster.
const CLUSTERED: u8 = 3;

fn max_message(config: &Config, link: &Link) -> usize {
    let server = link.client().server_info().max_payload;
    usize::try_from(config.max_msg_size).map_or(server, |bucket| bucket.min(server))
}

fn missing(plan: &Plan) -> Error {
    Error::invalid(format!(
        "nats: there is no bucket {}; semel makes it when a gateway or a worker first starts on it",
        plan.names.bucket
    ))
}
