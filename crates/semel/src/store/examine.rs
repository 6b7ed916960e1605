//! Examines a store and its server, for `semel doctor`.

use std::sync::Arc;

#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
use semel_core::Level;
use semel_core::{Error, Finding, Result, Store};

#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
use super::url::StoreLocation;
use super::{StoreOptions, StoreUrl};

/// The result of an examination.
#[derive(Debug)]
pub struct Examined {
    /// The store, if it could be opened.
    pub store: Option<Arc<dyn Store>>,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl StoreUrl {
    /// Examines the store and the settings of its server. It makes a missing folder, but does not set a hash secret
    /// that no process has set yet.
    pub async fn examine(&self, options: &StoreOptions) -> Examined {
        match self.examine_server(options).await {
            Ok(mut examined) => {
                if examined.store.is_some() {
                    examined.findings.insert(0, Finding::good(format!("opened {self}")));
                }
                let layers = self.examine_layers(options, examined.store.as_deref()).await;
                examined.findings.extend(layers);
                examined
            }
            Err(error) => {
                Examined { store: None, findings: vec![closed(&self.cannot_open(error))] }
            }
        }
    }

    async fn examine_server(&self, options: &StoreOptions) -> Result<Examined> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(server) => super::postgres::examine(server, options).await,
            #[cfg(feature = "redis")]
            StoreLocation::Redis(server) => super::redis::examine(server, options).await,
            #[cfg(feature = "nats")]
            StoreLocation::Nats(server) => super::nats::examine(server, options).await,
            _ => {
                let store = Some(self.open_bare(options).await?);
                Ok(Examined { store, findings: Vec::new() })
            }
        }
    }

    /// Examines a second server, and puts its role before each finding.
    pub(super) async fn examine_second(&self, what: &str, options: &StoreOptions) -> Vec<Finding> {
        let result = self.examine_server(options).await;
        self.prefixed(what, result.map(|examined| examined.findings))
    }

    /// Examines the front of `authority`, which is there if it could be opened.
    pub(super) async fn examine_front(
        &self,
        options: &StoreOptions,
        authority: Option<&dyn Store>,
    ) -> Vec<Finding> {
        match (&self.0, authority) {
            #[cfg(feature = "redis")]
            (StoreLocation::Redis(server), Some(authority)) => {
                let builder = super::redis::builder(server, options);
                self.prefixed("front", builder.checks_front(authority).await)
            }
            _ => self.examine_second("front", options).await,
        }
    }

    /// The rest of the failback window, in which a failover still reads this store.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "only PostgreSQL has one")
    )]
    pub(super) async fn examine_failback_window(&self, options: &StoreOptions) -> Option<Finding> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(server) => {
                super::postgres::examine_failback_window(server, options).await
            }
            _ => None,
        }
    }

    fn prefixed(&self, what: &str, result: Result<Vec<Finding>>) -> Vec<Finding> {
        let findings =
            result.unwrap_or_else(|error| vec![closed(&self.cannot_open(error))]).into_iter();
        findings.map(|it| Finding { what: format!("{what}: {}", it.what), ..it }).collect()
    }
}

/// False if a check has found that the store is broken.
#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
pub(super) fn may_be_opened(findings: &[Finding]) -> bool {
    findings.iter().all(|it| it.level != Level::Bad)
}

/// A finding from an error of a store, whose message says what is wrong and, after a semicolon, what to do.
fn closed(error: &Error) -> Finding {
    let text = error.to_string();
    if text.contains("in use by another process") {
        let fix = "examine it through that process, or stop the process and try again";
        return Finding::warning("not opened: it is in use by another process", fix);
    }
    match text.split_once("; ") {
        Some((what, fix)) => Finding::bad(what, fix),
        None => Finding::bad(text, "check that the server runs and that the URL is right"),
    }
}
