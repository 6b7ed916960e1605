//! The proxy: listens on a free loopback port, and does what it is told from then on.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::connection::serve;
use crate::counts::{Counters, Counts, count};
use crate::fault::Fault;

/// A running proxy on a thread of its own. Dropped, it closes everything.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: u16,
    pub(crate) counters: Counters,
    fault: watch::Sender<Fault>,
    cuts: watch::Sender<u64>,
    silences: watch::Sender<u64>,
    closed: watch::Sender<bool>,
    traps: Mutex<Traps>,
}

#[derive(Debug, Default)]
struct Traps {
    /// Replies to lose, whoever they are for.
    replies: u32,
    /// Requests with these bytes lose their reply.
    requests: Vec<Vec<u8>>,
}

impl Proxy {
    /// Starts a proxy to the server on this loopback port.
    ///
    /// # Errors
    ///
    /// When there is no port to listen on.
    pub fn start(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target,
            counters: Counters::default(),
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

    /// Where clients connect.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// From now on this goes wrong, or nothing.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Every open connection is silent from now on, and nobody is told: as behind a firewall that forgot them. New
    /// connections are fine.
    pub fn silence(&self) {
        self.shared.silences.send_modify(|silences| *silences += 1);
    }

    /// The next `count` replies are lost, and their connections are reset.
    pub fn lose_replies(&self, count: u32) {
        self.shared.traps.lock().replies = count;
    }

    /// The next request that has these bytes in one piece reaches the server; its reply is lost and its
    /// connection is reset.
    pub fn lose_reply_to(&self, bytes: impl Into<Vec<u8>>) {
        self.shared.traps.lock().requests.push(bytes.into());
    }

    /// Traps that nobody ran into.
    #[must_use]
    pub fn traps_left(&self) -> usize {
        let traps = self.shared.traps.lock();
        traps.replies as usize + traps.requests.len()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
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

impl Shared {
    pub(crate) fn fault(&self) -> Fault {
        *self.fault.borrow()
    }

    pub(crate) fn faults(&self) -> watch::Receiver<Fault> {
        self.fault.subscribe()
    }

    /// Ends with the next cut.
    pub(crate) async fn cut(&self) {
        if self.cuts.subscribe().changed().await.is_err() {
            pending().await
        }
    }

    /// Ends when the connections of now are to be silent.
    pub(crate) async fn silenced(&self) {
        if self.silences.subscribe().changed().await.is_err() {
            pending().await
        }
    }

    pub(crate) async fn until_released(&self) {
        // Only fails without a sender, which is ours.
        let _ = self.fault.subscribe().wait_for(|fault| *fault != Fault::Hold).await;
    }

    /// True when this request is one whose reply is to be lost.
    pub(crate) fn springs_trap(&self, request: &[u8]) -> bool {
        let traps = &mut self.traps.lock().requests;
        let has = |bytes: &Vec<u8>| request.windows(bytes.len()).any(|it| it == bytes.as_slice());
        let sprung = traps.iter().position(has);
        sprung.map(|at| traps.remove(at)).is_some()
    }

    /// True when the next reply is to be lost.
    pub(crate) fn takes_reply(&self) -> bool {
        let replies = &mut self.traps.lock().replies;
        let taken = *replies > 0;
        *replies = replies.saturating_sub(1);
        taken
    }
}
