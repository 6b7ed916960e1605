//! The proxy: it listens on a free loopback port and applies the fault that is set.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::connection::serve;
use crate::counts::{ProxyCounters, ProxyCounts, count};
use crate::fault::Fault;

/// A running proxy on a thread of its own. Dropped, it closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<ProxyShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct ProxyShared {
    pub(crate) target: u16,
    pub(crate) counters: ProxyCounters,
    fault: watch::Sender<Fault>,
    cuts: watch::Sender<u64>,
    silences: watch::Sender<u64>,
    closed: watch::Sender<bool>,
    traps: Mutex<ReplyTraps>,
}

#[derive(Debug, Default)]
struct ReplyTraps {
    /// How many of the next replies are dropped, on any connection.
    replies: u32,
    /// The replies to requests that contain these bytes are dropped.
    requests: Vec<Vec<u8>>,
}

impl FaultProxy {
    /// Starts a proxy to the server on this loopback port.
    ///
    /// # Errors
    ///
    /// When there is no port to listen on.
    pub fn start(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(ProxyShared {
            target,
            counters: ProxyCounters::default(),
            fault: watch::Sender::default(),
            cuts: watch::Sender::default(),
            silences: watch::Sender::default(),
            closed: watch::Sender::default(),
            traps: Mutex::default(),
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let own = shared.clone();
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            let mut closed = own.closed.subscribe();
            runtime.block_on(async {
                tokio::select! {
                    () = listen(listener, own) => {}
                    _ = closed.wait_for(|closed| *closed) => {}
                }
            });
        })?;
        Ok(Self { port, shared, thread: Some(thread) })
    }

    /// The port for clients.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fault. [`Fault::None`] ends it.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Drops everything on the connections that are open now, and does not close them, like a firewall that lost its
    /// state. New connections work.
    pub fn silence(&self) {
        self.shared.silences.send_modify(|silences| *silences += 1);
    }

    /// Drops the next `count` replies and resets their connections.
    pub fn lose_replies(&self, count: u32) {
        self.shared.traps.lock().replies = count;
    }

    /// Passes the next request that contains these bytes (within one piece) on to the server, drops its reply and
    /// resets its connection.
    pub fn lose_reply_to(&self, bytes: impl Into<Vec<u8>>) {
        self.shared.traps.lock().requests.push(bytes.into());
    }

    /// The number of replies that are still to be dropped.
    #[must_use]
    pub fn traps_left(&self) -> usize {
        let traps = self.shared.traps.lock();
        traps.replies as usize + traps.requests.len()
    }

    /// Counts since the start of the proxy.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        self.shared.counters.read()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<ProxyShared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        count(&shared.counters.accepted);
        let _ = client.set_nodelay(true);
        let shared = shared.clone();
        tokio::spawn(async move {
            serve(client, &shared).await;
            count(&shared.counters.ended);
        });
    }
}

impl ProxyShared {
    pub(crate) fn fault(&self) -> Fault {
        *self.fault.borrow()
    }

    pub(crate) fn faults(&self) -> watch::Receiver<Fault> {
        self.fault.subscribe()
    }

    /// Waits for the next cut.
    pub(crate) async fn cut(&self) {
        if self.cuts.subscribe().changed().await.is_err() {
            pending().await
        }
    }

    /// Waits for the next call of [`FaultProxy::silence`].
    pub(crate) async fn silenced(&self) {
        if self.silences.subscribe().changed().await.is_err() {
            pending().await
        }
    }

    pub(crate) async fn until_released(&self) {
        // This fails only without a sender, and `self` is the sender.
        let _ = self.fault.subscribe().wait_for(|fault| *fault != Fault::Hold).await;
    }

    /// True when the reply to this request is to be dropped.
    pub(crate) fn springs_trap(&self, request: &[u8]) -> bool {
        let traps = &mut self.traps.lock().requests;
        let has = |bytes: &Vec<u8>| request.windows(bytes.len()).any(|it| it == bytes.as_slice());
        let sprung = traps.iter().position(has);
        sprung.map(|at| traps.remove(at)).is_some()
    }

    /// True when the next reply is to be dropped.
    pub(crate) fn takes_reply(&self) -> bool {
        let replies = &mut self.traps.lock().replies;
        let taken = *replies > 0;
        *replies = replies.saturating_sub(1);
        taken
    }
}
