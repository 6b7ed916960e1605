//! `--demo`: shows the gateway without a service of the user's own.

mod bank;
mod payments;

use std::{
    fs,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use semel::StoreUrl;
use semel_service::settings::{AdminToken, GatewayConfig, UpstreamConfig};
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::payments::Payments;

/// A payments service, and a folder for the store. Both are removed when this is dropped.
pub(super) struct Demo {
    _payments: Payments,
    folder: TempDir,
}

impl Demo {
    /// The address of the admin listener, unless the port is in use.
    const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

    /// Starts the upstream of the demo, and sets upstream and store in `config`.
    pub(super) async fn start(config: &mut GatewayConfig) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir();
        let folder = folder.context("cannot create a folder for the demo's store; set TMPDIR")?;
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

    /// The admin listener if no address is set.
    pub(super) async fn admin_listener() -> Result<TcpListener> {
        match TcpListener::bind(Self::ADMIN).await {
            Ok(listener) => Ok(listener),
            Err(_) => Ok(TcpListener::bind((Self::ADMIN.ip(), 0)).await?),
        }
    }

    /// Removes the folder if the process ends at once, without destructors.
    pub(super) fn clean_up(&self) -> impl FnOnce() + Send + use<> {
        let folder = self.folder.path().to_owned();
        move || remove(&folder)
    }

    /// The explanation, with commands to paste.
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
             2. The same request again, as from a client that got no response. The response is\n   \
             replayed (Idempotent-Replayed: true), and the card is not charged:\n   {first}\n\n\
             3. The same key for another request is refused with 409:\n   {other}\n\n\
             How often the card was charged: curl http://{gateway}/charges\n\
             What semel counted:             curl http://{admin}/metrics{token}\n\n\
             Try keys of your own: every third charge takes two seconds, every fourth is refused with\n\
             503 and runs when it is sent again. Ctrl-C ends the demo.\n"
        )
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        remove(self.folder.path());
    }
}

/// Removes the folder of the store. Threads of the store may still create files, which makes the removal fail.
fn remove(folder: &Path) {
    const TRIES: usize = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(PAUSE),
            Ok(()) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_admin_listener_takes_another_port_if_its_own_is_in_use() {
        // Taken by this test, or in use already.
        let _gateway = TcpListener::bind(Demo::ADMIN).await;
        let admin = Demo::admin_listener().await.unwrap();
        assert_ne!(admin.local_addr().unwrap(), Demo::ADMIN);
    }
}
