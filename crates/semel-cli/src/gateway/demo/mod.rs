//! `--demo`: something to see without a service of one's own.

mod bank;
mod serve;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::serve::Payments;
use crate::settings::{Admin, Config, StoreUrl, Upstream};

/// A payments service, and a folder for the store. Both are gone with it.
pub(super) struct Demo {
    _payments: Payments,
    _folder: TempDir,
}

impl Demo {
    /// Where operators look, unless the port is taken.
    const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

    /// Starts what is behind the gateway, and settles what the settings left open.
    pub(super) async fn start(config: &mut Config) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir();
        let folder = folder.context("there is no place for the demo's store; set TMPDIR")?;
        let payments = Payments::start().await?;
        config.store.get_or_insert_with(|| StoreUrl::File(folder.path().to_owned()));
        if config.default_upstream.is_none() {
            config.default_upstream = Some(config.upstreams.len());
            config.upstreams.push(Upstream {
                name: "payments".to_owned(),
                authority: payments.address.to_string().parse()?,
                base: String::new(),
                preserve_host: false,
            });
        }
        if config.admin.is_none() {
            let is_free = TcpListener::bind(Self::ADMIN).await.is_ok();
            let port = if is_free { Self::ADMIN.port() } else { 0 };
            let listen = SocketAddr::new(Self::ADMIN.ip(), port);
            config.admin = Some(Admin { listen, token: None });
        }
        Ok(Self { _payments: payments, _folder: folder })
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
            format!("What semel counted:             curl http://{admin}/metrics\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn metrics_make_way_for_a_gateway_on_their_port() {
        let address = Demo::ADMIN.to_string();
        let mut config = crate::settings::of_flags(&["--demo", "--listen", &address]);
        let _demo = Demo::start(&mut config).await.unwrap();
        assert_ne!(config.admin.unwrap().listen, Demo::ADMIN);
    }
}
