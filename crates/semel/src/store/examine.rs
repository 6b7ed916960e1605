//! Looking a store over.

use std::sync::Arc;

use semel_core::{Error, Finding, Level, Result, Store};

use super::{StoreOptions, StoreUrl, url::Place};

/// What an examination came to.
#[derive(Debug)]
pub struct Examined {
    /// The store, if it could be opened.
    pub store: Option<Arc<dyn Store>>,
    /// What was looked at, in this order.
    pub findings: Vec<Finding>,
}

impl StoreUrl {
    /// Opens the store and looks at how it and its server are set up. Changes nothing there, but a folder
    /// that is not there is made.
    pub async fn examine(&self, options: &StoreOptions) -> Examined {
        match self.look_over(options).await {
            Ok(examined) => examined,
            Err(error) => {
                Examined { store: None, findings: vec![closed(&self.cannot_open(error))] }
            }
        }
    }

    /// An error is a finding, unless a more exact one is there already.
    async fn look_over(&self, options: &StoreOptions) -> Result<Examined> {
        let mut findings = self.server(options).await?;
        let is_bad = findings.iter().any(|it| it.level == Level::Bad);
        let store = match self.open_bare(options).await {
            Err(_) if is_bad => None,
            Err(error) => return Err(error),
            Ok(store) => {
                findings.insert(0, Finding::good(format!("opened {self}")));
                Some(store)
            }
        };
        Ok(Examined { store, findings })
    }

    /// What the server has to say about itself.
    async fn server(&self, options: &StoreOptions) -> Result<Vec<Finding>> {
        match &self.0 {
            Place::Memory | Place::File(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            Place::Postgres(server) => super::postgres::examine(server, options).await,
            #[cfg(feature = "redis")]
            Place::Redis(server) => super::redis::examine(server, options).await,
            #[cfg(not(all(feature = "postgres", feature = "redis")))]
            other => {
                let _ = options;
                Err(other.choice().missing())
            }
        }
    }
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
