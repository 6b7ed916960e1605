//! Looking a store over.

use std::sync::Arc;

use semel_core::{Error, Finding, Result, Store};

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
    /// Opens the store and looks at how it and its server are set up. Changes nothing there, but a folder
    /// that is not there is made.
    pub async fn examine(&self, options: &StoreOptions) -> Examined {
        match self.look_over(options).await {
            Ok((store, more)) => {
                let findings = [Finding::good(format!("opened {self}"))].into_iter().chain(more);
                Examined { store: Some(store), findings: findings.collect() }
            }
            Err(error) => {
                let findings = vec![closed(&self.cannot_open(error))];
                Examined { store: None, findings }
            }
        }
    }

    async fn look_over(&self, options: &StoreOptions) -> Result<(Arc<dyn Store>, Vec<Finding>)> {
        let store = self.open_bare(options).await?;
        Ok((store, Vec::new()))
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
