//! `--demo`: something to see without a service of one's own.

mod bank;
mod payments;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context, Result};
use semel::StoreUrl;
use semel_service::settings::{AdminToken, GatewayConfig, UpstreamConfig};
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::payments::Payments;

/// A payments service, and a folder for the store. Both are gone with it.
pub(super) struct Demo {
    _payments: Payments,
    folder: TempDir,
}

impl Demo {
    /// Where operators look, unless the port is taken.
    const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

    /// Starts what is behind the gateway, and settles what the settings left open.
    pub(super) async fn start(config: &mut GatewayConfig) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir();
        let folder = folder.context("there is no place for the demo's store; set TMPDIR")?;
        let payments = Payments::start().await?;
        config.store = Some(StoreUrl::file(folder.path()));
        config.default_upstream = Some(0);
        config.upstreams = vec![UpstreamConfig {
            name: "payments".to_owned(),
            authority: payments.address.to_string().parse()?,
            base: String::new(),
            preserve_host: false,
        }];
        Ok(Self { _payments: payments, folder })
    }

    /// The admin listener when no address was chosen.
    pub(super) async fn operators() -> Result<TcpListener> {
        match TcpListener::bind(Self::ADMIN).await {
            Ok(listener) => Ok(listener),
            Err(_) => Ok(TcpListener::bind((Self::ADMIN.ip(), 0)).await?),
        }
    }

    /// Removes the folder when the process ends at once.
    pub(super) fn clean_up(&self) -> impl FnOnce() + Send + use<> {
        let folder = self.folder.path().to_owned();
        move || {
            // Its files may still be written to: a folder that fills up again is not removed.
            const TRIES: usize = 5;
            let _ = (0..TRIES).any(|_| fs::remove_dir_all(&folder).is_ok());
        }
    }

    /// What to paste.
    pub(super) fn explain(
        &self,
        gateway: SocketAddr,
        admin: SocketAddr,
        token: Option<&AdminToken>,
    ) -> String {
        let charge = |amount: u32| {
            format!(
                "curl -i http://{gateway}/charges -H 'Idempotency-Key: order-42' \
                 -H 'Content-Type: application/json' -d '{{\"amount\": {amount}}}'"
            )
        };
        let (first, other) = (charge(500), charge(900));
        let token = token.map_or("", |_| " -H 'Authorization: Bearer YOUR-ADMIN-TOKEN'");
        format!(
            "A payments service is behind the gateway. Paste these into another terminal:\n\n\
             1. A first charge:\n   {first}\n\n\
             2. The same once more, as a client does that heard nothing. The answer is replayed\n   \
             (Idempotent-Replayed: true), the card is not charged:\n   {first}\n\n\
             3. The key for something else is refused with 409:\n   {other}\n\n\
             How often the card was charged: curl http://{gateway}/charges\n\
             What semel counted:             curl http://{admin}/metrics{token}\n\n\
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
        // Ours, or somebody else's.
        let _gateway = TcpListener::bind(Demo::ADMIN).await;
        let operators = Demo::operators().await.unwrap();
        assert_ne!(operators.local_addr().unwrap(), Demo::ADMIN);
    }
}
