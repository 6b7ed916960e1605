//! A proxy between a store and its server that can drop the server's replies.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};

pub(crate) struct ReplyProxy {
    pub(crate) url: String,
    state: Arc<AtomicU8>,
    cut: watch::Sender<()>,
}

impl ReplyProxy {
    pub(crate) async fn start(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("nats://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (state, cut) = (Arc::new(AtomicU8::new(FORWARDS)), watch::Sender::new(()));
        let (states, cuts) = (state.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (state, mut cut) = (states.clone(), cuts.subscribe());
                tokio::spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = forward(from_client, to_server, |sent| note_write(&state, sent)) => {}
                        () = forward(from_server, to_client, |_| state.load(SeqCst) != DROPS) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { url, state, cut }
    }

    /// Drops all replies of the server from the next write on.
    pub(crate) fn drop_replies_after_a_write(&self) {
        self.state.store(DROPS_AFTER_A_WRITE, SeqCst);
    }

    /// Drops all replies of the server from the next write to an existing key on.
    pub(crate) fn drop_replies_after_a_change(&self) {
        self.state.store(DROPS_AFTER_A_CHANGE, SeqCst);
    }

    /// Closes all connections. New ones forward replies again.
    pub(crate) fn cut(&self) {
        self.state.store(FORWARDS, SeqCst);
        self.cut.send_replace(());
    }
}

const FORWARDS: u8 = 0;
/// Forwards replies until the first write.
const DROPS_AFTER_A_WRITE: u8 = 1;
const DROPS: u8 = 2;
/// Forwards replies until the first write to an existing key.
const DROPS_AFTER_A_CHANGE: u8 = 3;

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence: ";

/// Changes the state at a write. Data of the client is always forwarded.
fn note_write(state: &AtomicU8, sent: &[u8]) -> bool {
    let sent = String::from_utf8_lossy(sent);
    let mut writes = sent.split(EXPECTED).skip(1).peekable();
    if writes.peek().is_some() {
        let _ = state.compare_exchange(DROPS_AFTER_A_WRITE, DROPS, SeqCst, SeqCst);
    }
    if writes.any(|expected| !expected.starts_with("0\r")) {
        let _ = state.compare_exchange(DROPS_AFTER_A_CHANGE, DROPS, SeqCst, SeqCst);
    }
    true
}

async fn forward(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    may_pass: impl Fn(&[u8]) -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if may_pass(&buffer[..count]) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
