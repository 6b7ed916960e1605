//! `--demo`: something to see without a service of one's own.

mod bank;
mod serve;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tempfile::TempDir;

pub(super) use self::serve::Payments;

/// A payments service, and a folder for the store. Both are gone with it.
pub(super) struct Demo {
    pub(super) payments: Payments,
    pub(super) folder: TempDir,
}

impl Demo {
    pub(super) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir();
        let folder = folder.context("there is no place for the demo's store; set TMPDIR")?;
        Ok(Self { payments: Payments::start().await?, folder })
    }

    /// What to paste.
    pub(super) fn explain(&self, gateway: SocketAddr, admin: Option<SocketAddr>) -> String {
        let charge = |amount: u32| {
            format!(
                "curl -i http://{gateway}/charges -H 'Idempotency-Key: order-42' \
                 -H 'Content-Type: application/json' -d '{{\"amount\": {amount}}}'"
            )
        };
        let (first, other) = (charge(500), charge(900));
        let metrics = admin.map_or_else(String::new, |admin| {
            format!("What semel counted:          curl http://{admin}/metrics\n")
        });
        format!(
            "A payments service is behind the gateway. Paste these into another terminal:\n\n\
             1. A first charge:\n   {first}\n\n\
             2. The same once more, as a client does that heard nothing. The answer is replayed\n   \
             (Idempotent-Replayed: true), the card is not charged:\n   {first}\n\n\
             3. The key for something else is refused with 409:\n   {other}\n\n\
             How often the card was charged: curl http://{gateway}/charges\n\
             {metrics}\n\
             Go on with keys of your own: every third charge takes two seconds, every fourth is turned\n\
             away with 503 and runs when it is sent again. Ctrl-C ends the demo.\n"
        )
    }
}
