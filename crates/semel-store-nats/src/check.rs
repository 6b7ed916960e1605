//! Checks server and bucket: what makes them unfit, and what `semel doctor` reports about their settings.

use std::sync::Arc;

use async_nats::ServerInfo;
use semel_core::{Error, Finding, Result};
use tokio::time::timeout;

use crate::{
    bucket_client::{BucketClient, Via},
    error::{RequestError, timed_out},
    jetstream_api::{StreamConfig, StreamInfo},
    settings::NatsSettings,
};

/// Refuses a server that silently ignores per-key TTL, unless the settings allow it.
pub(crate) fn refuse_old(server: &ServerInfo, settings: &NatsSettings) -> Result<()> {
    if !server.jetstream && !server.version.is_empty() && server.cluster.is_none() {
        return Err(Error::invalid("nats: the server runs without JetStream; start it with -js"));
    }
    if is_old(server) && settings.old_server.is_none() {
        return Err(Error::invalid(format!(
            "nats: server {} ignores per-key TTL; semel needs NATS 2.11, or ?old-server-max-age=36h, with \
             which every record is forgotten after that age, including those that are Unknown or on hold",
            server.version
        )));
    }
    Ok(())
}

fn is_old(server: &ServerInfo) -> bool {
    let mut parts = server.version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    version < (2, 11)
}

/// Refuses a bucket that may lose records. The error names each setting to change.
pub(crate) fn refuse_unfit(config: &StreamConfig, settings: &NatsSettings) -> Result<()> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    must(config.mirror.is_none(), "it is a mirror; name the bucket it copies".to_owned());
    must(
        config.subjects == [settings.names.bucket_subjects()] && config.subject_transform.is_none(),
        format!(
            "it is no KV bucket; its only subject must be {}",
            settings.names.bucket_subjects()
        ),
    );
    must(
        config.storage == "file",
        format!("storage {} forgets on a restart; make it with storage file", config.storage),
    );
    must(
        config.retention == "limits",
        format!("retention {} deletes what was read; set retention limits", config.retention),
    );
    must(
        config.discard == "new",
        format!("discard {} evicts records when it is full; set discard new", config.discard),
    );
    must(
        !config.discard_new_per_subject,
        "discard_new_per_subject refuses every change of a record; unset it".to_owned(),
    );
    must(
        config.max_msgs_per_subject == 1,
        format!("history {} keeps what was erased; set history 1", config.max_msgs_per_subject),
    );
    must(!config.sealed, "it is sealed; make another".to_owned());
    must(!config.no_ack, "no_ack leaves writes unacknowledged; unset it".to_owned());
    must(
        config.persist_mode.as_deref().is_none_or(|mode| mode == "default"),
        "persist_mode async answers before it wrote; set persist_mode default".to_owned(),
    );
    match settings.old_server {
        None => {
            must(
                config.max_age == 0,
                format!(
                    "max_age {} s forgets what is Unknown or on hold; set it to 0",
                    config.max_age / 1_000_000_000
                ),
            );
            must(config.allow_msg_ttl, "it refuses per-key TTL; set allow_msg_ttl".to_owned());
        }
        Some(age) => must(
            u128::from(config.max_age) == age.as_nanos(),
            format!("its max_age is not the {} s of ?old-server-max-age=", age.as_secs()),
        ),
    }
    if let Some(replicas) = settings.replicas {
        must(
            config.num_replicas == replicas,
            format!("it has {} copies and not {replicas}; set its replicas", config.num_replicas),
        );
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("nats: bucket {}: {}", settings.names.bucket, wrong.join("; "))))
}

/// What the version of a fit server means.
fn server_finding(server: &ServerInfo, settings: &NatsSettings) -> Finding {
    match settings.old_server {
        None => Finding::good(format!("NATS {}, which supports per-key TTL", server.version)),
        Some(age) => Finding::warning(
            format!(
                "NATS {}: without per-key TTL, every record is forgotten after {} s, including those that are \
                 Unknown or on hold",
                server.version,
                age.as_secs()
            ),
            "use NATS 2.11 and leave out ?old-server-max-age=",
        ),
    }
}

/// What the settings of a fit bucket mean.
fn bucket_findings(info: &StreamInfo) -> Vec<Finding> {
    let config = &info.config;
    let copies = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    let behind = copies.filter(|copy| copy.offline || !copy.current).count();
    vec![
        Finding::good("file storage, discard new, history 1: no record is lost before it expires"),
        replicas(config.num_replicas, behind),
        capacity(config),
        Finding::warning(
            "sync_interval: clients cannot read it; unless it is always, servers that lose power together lose the \
             writes of the last moments",
            "see whether /jsz of each server's monitoring port says \"sync_always\": true (curl -s \
             http://HOST:8222/jsz); if not, set jetstream { sync_interval: always }",
        ),
    ]
}

fn replicas(count: u8, behind: usize) -> Finding {
    if count < 3 {
        return Finding::warning(
            format!("{count} copies: the loss of a server may lose records"),
            "run three servers and set the bucket's replicas to 3",
        );
    }
    if behind > 0 {
        return Finding::warning(
            format!(
                "{count} copies, of which {behind} are offline or behind: the loss of another server may stop the \
                 store or lose records"
            ),
            "start the servers that are down, and wait until they have caught up",
        );
    }
    Finding::good(format!("{count} copies, all online: the loss of one server loses no record"))
}

fn capacity(config: &StreamConfig) -> Finding {
    if config.max_bytes > 0 || config.max_msgs > 0 {
        return Finding::good("the bucket has a limit; when it is full, new keys are refused");
    }
    Finding::warning(
        "the bucket has no limit, so it may fill the disk",
        "set max_bytes, or watch the disk",
    )
}

fn bad(error: &Error) -> Finding {
    let text = error.to_string();
    let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/stores/nats.md"));
    Finding::bad(what, fix)
}

impl NatsSettings {
    /// The report of `semel doctor`. Writes nothing.
    pub(crate) async fn findings(self: &Arc<Self>) -> Vec<Finding> {
        let findings = timeout(self.call_timeout, self.read_findings()).await;
        findings.unwrap_or_else(|_| Err(timed_out())).unwrap_or_else(|error| vec![bad(&error)])
    }

    async fn read_findings(self: &Arc<Self>) -> Result<Vec<Finding>> {
        let bucket = BucketClient::open(self).await?;
        let server = bucket.client().server_info();
        let mut findings = vec![match refuse_old(&server, self) {
            Ok(()) => server_finding(&server, self),
            Err(error) => bad(&error),
        }];
        let Some(info) = bucket.info().await.map_err(RequestError::into_error)? else {
            findings
                .push(Finding::good("there is no bucket yet; semel makes it at the first start"));
            return Ok(findings);
        };
        match refuse_unfit(&info.config, self) {
            Ok(()) => findings.extend(bucket_findings(&info)),
            Err(error) => findings.push(bad(&error)),
        }
        let stored = bucket
            .last(&bucket.names.secret_check, Via::Background)
            .await
            .map_err(RequestError::into_error)?;
        findings.push(match stored.and_then(|message| message.value) {
            None => Finding::good("no process has settled the hash secret yet"),
            Some(stored) => match self.compare_secret(&stored) {
                Ok(()) => Finding::good("the hash secret is the one the fleet agreed on"),
                Err(error) => bad(&error),
            },
        });
        Ok(findings)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_core::Level;

    use super::*;
    use crate::{connection::LostConnections, names::NatsNames, url::NatsUrl};

    fn settings() -> NatsSettings {
        NatsSettings {
            url: NatsUrl::parse("nats://localhost/ids").unwrap(),
            names: NatsNames::new("ids", "semel").unwrap(),
            secret_check: [0; 32],
            skip_setup: false,
            call_timeout: Duration::from_secs(5),
            replicas: None,
            old_server: None,
            lost_connections: LostConnections::default(),
        }
    }

    fn refusal(change: impl FnOnce(&mut StreamConfig)) -> String {
        let settings = settings();
        let mut config = settings.bucket_config(&ServerInfo::default());
        refuse_unfit(&config, &settings).unwrap();
        change(&mut config);
        refuse_unfit(&config, &settings).unwrap_err().to_string()
    }

    #[test]
    fn each_unfit_bucket_is_refused_with_the_fix() {
        for (fix, refusal) in [
            ("storage file", refusal(|it| it.storage = "memory".into())),
            ("discard new", refusal(|it| it.discard = "old".into())),
            ("history 1", refusal(|it| it.max_msgs_per_subject = 5)),
            ("allow_msg_ttl", refusal(|it| it.allow_msg_ttl = false)),
            ("max_age 60 s", refusal(|it| it.max_age = 60_000_000_000)),
            ("retention limits", refusal(|it| it.retention = "workqueue".into())),
            ("persist_mode default", refusal(|it| it.persist_mode = Some("async".into()))),
            ("$KV.ids.>", refusal(|it| it.subjects = vec!["orders.>".into()])),
            ("mirror", refusal(|it| it.mirror = Some(serde_json::json!({})))),
        ] {
            assert!(refusal.contains(fix), "{refusal}");
        }
    }

    #[test]
    fn all_problems_of_a_bucket_are_reported_together() {
        let text = refusal(|it| {
            it.storage = "memory".into();
            it.discard = "old".into();
        });
        assert!(text.contains("storage file") && text.contains("discard new"), "{text}");
    }

    #[test]
    fn an_old_server_is_refused_unless_it_is_allowed() {
        let server = |version: &str| ServerInfo {
            version: version.to_owned(),
            jetstream: true,
            ..ServerInfo::default()
        };
        assert!(refuse_old(&server("2.11.0"), &settings()).is_ok());
        assert!(refuse_old(&server("2.15.1"), &settings()).is_ok());
        let refusal = refuse_old(&server("2.9.10"), &settings()).unwrap_err().to_string();
        assert!(refusal.contains("old-server-max-age"), "{refusal}");
        let age = Some(Duration::from_secs(60));
        let accepting = NatsSettings { old_server: age, ..settings() };
        assert!(refuse_old(&server("2.9.10"), &accepting).is_ok());
        assert_eq!(server_finding(&server("2.9.10"), &accepting).level, Level::Warning);
        assert_eq!(accepting.bucket_config(&server("2.9.10")).max_age, 60_000_000_000);
    }

    #[test]
    fn one_copy_is_a_warning_and_three_are_not() {
        assert_eq!(replicas(1, 0).level, Level::Warning);
        assert_eq!(replicas(3, 0).level, Level::Good);
        assert_eq!(replicas(3, 1).level, Level::Warning);
    }
}
