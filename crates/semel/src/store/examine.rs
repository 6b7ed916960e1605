//! Looking a store over.

use std::sync::Arc;

#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
use semel_core::Level;
use semel_core::{Error, Finding, Result, Store};

#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
use super::url::Place;
use super::{StoreOptions, StoreUrl};

/// What an examination came to.
#[derive(Debug)]
pub struct Examined {
    /// The store, if it could be opened.
    pub store: Option<Arc<dyn Store>>,
    /// What was looked at, in this order.
    pub findings: Vec<Finding>,
}

impl StoreUrl {
    /// Looks at how the store and its server are set up. A folder that is not there is made; a hash secret
    /// that no process has settled yet is not.
    pub async fn examine(&self, options: &StoreOptions) -> Examined {
        match self.look_over(options).await {
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

    async fn look_over(&self, options: &StoreOptions) -> Result<Examined> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            Place::Postgres(server) => super::postgres::examine(server, options).await,
            #[cfg(feature = "redis")]
            Place::Redis(server) => super::redis::examine(server, options).await,
            #[cfg(feature = "nats")]
            Place::Nats(server) => super::nats::examine(server, options).await,
            _ => {
                let store = Some(self.open_bare(options).await?);
                Ok(Examined { store, findings: Vec::new() })
            }
        }
    }

    /// Looks at a second server too, and says of which one each finding is.
    pub(super) async fn examine_second(&self, what: &str, options: &StoreOptions) -> Vec<Finding> {
        let looked = self.look_over(options).await;
        self.said(what, looked.map(|examined| examined.findings))
    }

    /// The same for the front of `authority`, if that could be opened.
    pub(super) async fn examine_front(
        &self,
        options: &StoreOptions,
        authority: Option<&dyn Store>,
    ) -> Vec<Finding> {
        match (&self.0, authority) {
            #[cfg(feature = "redis")]
            (Place::Redis(server), Some(authority)) => {
                let builder = super::redis::builder(server, options);
                self.said("front", builder.checks_front(authority).await)
            }
            _ => self.examine_second("front", options).await,
        }
    }

    /// How long a failover still has to ask this store.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "only PostgreSQL has one")
    )]
    pub(super) async fn examine_epoch(&self, options: &StoreOptions) -> Option<Finding> {
        match &self.0 {
            #[cfg(feature = "postgres")]
            Place::Postgres(server) => super::postgres::examine_epoch(server, options).await,
            _ => None,
        }
    }

    fn said(&self, what: &str, looked: Result<Vec<Finding>>) -> Vec<Finding> {
        let findings =
            looked.unwrap_or_else(|error| vec![closed(&self.cannot_open(error))]).into_iter();
        findings.map(|it| Finding { what: format!("{what}: {}", it.what), ..it }).collect()
    }
}

/// What is known to be broken is not opened.
#[cfg(any(feature = "postgres", feature = "redis", feature = "nats"))]
pub(super) fn may_be_opened(findings: &[Finding]) -> bool {
    findings.iter().all(|it| it.level != Level::Bad)
}

/// The messages of stores say what is wrong, and behind a semicolon what to do.
fn closed(error: &Error) -> Finding {
    let text = error.to_string();
    if text.contains("in use by another process") {
        let fix = "ask that process, or stop it and look again";
        return Finding::warning("not opened: it is in use by another process", fix);
    }
    match text.split_once("; ") {
        Some((what, fix)) => Finding::bad(what, fix),
        None => Finding::bad(text, "see whether the server runs and the URL is right"),
    }
}
