//! Stands between a store and its server, and can keep the server's replies to itself.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};

pub(crate) struct Proxy {
    pub(crate) url: String,
    mood: Arc<AtomicU8>,
    cut: watch::Sender<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("nats://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (mood, cut) = (Arc::new(AtomicU8::new(HEARS)), watch::Sender::new(()));
        let (moods, cuts) = (mood.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mood, mut cut) = (moods.clone(), cuts.subscribe());
                tokio::spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = pass(from_client, to_server, |asked| wrote(&mood, asked)) => {}
                        () = pass(from_server, to_client, |_| mood.load(SeqCst) != DEAF) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { url, mood, cut }
    }

    /// From the next write on nobody hears what the server says.
    pub(crate) fn swallow_replies(&self) {
        self.mood.store(WAITS, SeqCst);
    }

    /// From the next write to a key that is there on nobody hears what the server says.
    pub(crate) fn swallow_replies_to_changes(&self) {
        self.mood.store(WAITS_FOR_A_CHANGE, SeqCst);
    }

    /// Ends all connections; new ones are heard again.
    pub(crate) fn cut(&self) {
        self.mood.store(HEARS, SeqCst);
        self.cut.send_replace(());
    }
}

const HEARS: u8 = 0;
/// Hears until something is written.
const WAITS: u8 = 1;
const DEAF: u8 = 2;
/// Hears until something is written over what is there.
const WAITS_FOR_A_CHANGE: u8 = 3;

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence: ";

/// Turns deaf at a write. What the client says always passes.
fn wrote(mood: &AtomicU8, asked: &[u8]) -> bool {
    let asked = String::from_utf8_lossy(asked);
    let mut written = asked.split(EXPECTED).skip(1).peekable();
    if written.peek().is_some() {
        let _ = mood.compare_exchange(WAITS, DEAF, SeqCst, SeqCst);
    }
    if written.any(|expected| !expected.starts_with("0\r")) {
        let _ = mood.compare_exchange(WAITS_FOR_A_CHANGE, DEAF, SeqCst, SeqCst);
    }
    true
}

async fn pass(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    passes: impl Fn(&[u8]) -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if passes(&buffer[..count]) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
