//! The service behind the gateway: reads requests strictly, writes down what it saw, and does what it is told.

use std::{
    fmt,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

use super::{
    PATIENCE, Reply, Seen,
    reading::{self, Framing, Head},
    reply::Step,
};

type Handler = dyn Fn(&Seen) -> Reply + Send + Sync;

/// An upstream. It is gone when this is dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    handler: Box<Handler>,
    seen: Mutex<Vec<Seen>>,
    /// Requests whose framing can be read in two ways.
    ambiguous: Mutex<Vec<String>>,
    gate: watch::Sender<bool>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

impl Upstream {
    /// Answers how many requests there were.
    pub(crate) async fn counting() -> Self {
        Self::start(|seen| Reply::ok(format!("run {}", seen.number))).await
    }

    /// Answers so once the gate is open.
    pub(crate) async fn gated() -> Self {
        Self::start(|seen| Reply::ok(format!("run {}", seen.number)).gated()).await
    }

    pub(crate) async fn start(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Reserved::new().start(handler)
    }

    pub(crate) fn open_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    /// What arrived so far.
    #[track_caller]
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let ambiguous = self.shared.ambiguous.lock().unwrap();
        assert!(ambiguous.is_empty(), "{ambiguous:?}");
        self.shared.seen.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn count(&self) -> usize {
        self.seen().len()
    }

    /// The only request so far.
    #[track_caller]
    pub(crate) fn only(&self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    }

    /// Connections that were ever accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.address).finish()
    }
}

/// An address where nobody listens yet, and nobody else can.
#[derive(Debug)]
pub(crate) struct Reserved(TcpSocket);

impl Reserved {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) fn start(
        self,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Upstream {
        let (address, listener) = (self.address(), self.0.listen(1024).unwrap());
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            seen: Mutex::default(),
            ambiguous: Mutex::default(),
            gate: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(serve(listener, shared.clone()));
        Upstream { address, shared, accepting }
    }
}

/// The next connection with a request on it, at a listener without an [`Upstream`]. At its start, the gateway
/// makes one without, to see whether the upstream is there.
pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    let accepting = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if stream.peek(&mut [0]).await.is_ok_and(|read| read > 0) {
                return stream;
            }
        }
    };
    timeout(PATIENCE, accepting).await.expect("the gateway connects")
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        shared.connections.fetch_add(1, SeqCst);
        shared.open.fetch_add(1, SeqCst);
        let shared = shared.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            while shared.serve_one(&mut stream).await.is_some() {}
            drop(stream);
            shared.open.fetch_sub(1, SeqCst);
        });
    }
}

impl Shared {
    /// One request and its reply. `None` when that was the last on this connection.
    async fn serve_one(&self, stream: &mut BufReader<TcpStream>) -> Option<()> {
        let head = reading::head(stream).await?;
        let framing = match head.framing() {
            Ok(framing) => framing.unwrap_or(Framing::Length(0)),
            Err(why) => {
                self.ambiguous.lock().unwrap().push(why);
                return None;
            }
        };
        let number = self.note(&head);
        let note = |piece: &[u8]| self.update(number, |seen| seen.body.extend_from_slice(piece));
        let trailers = reading::body(stream, framing, note).await.ok()?;
        self.update(number, |seen| (seen.trailers, seen.whole) = (trailers, true));
        let seen = self.seen.lock().unwrap()[number - 1].clone();
        self.reply((self.handler)(&seen), stream.get_mut()).await
    }

    fn note(&self, head: &Head) -> usize {
        let mut seen = self.seen.lock().unwrap();
        let number = seen.len() + 1;
        seen.push(Seen::new(number, head));
        number
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap()[number - 1]);
    }

    async fn reply(&self, reply: Reply, stream: &mut TcpStream) -> Option<()> {
        for step in reply.0 {
            match step {
                Step::Write(bytes) => stream.write_all(&bytes).await.ok()?,
                Step::Gate => drop(self.gate.subscribe().wait_for(|open| *open).await),
                Step::Stall => pending().await,
                Step::Close => return None,
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    return None;
                }
            }
        }
        Some(())
    }
}
