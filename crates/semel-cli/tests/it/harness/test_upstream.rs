//! The service behind the gateway: reads requests strictly, records them, and sends scripted replies.

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
    PATIENCE, ReceivedRequest, ScriptedReply,
    http1::{self, BodyFraming, MessageHead},
    scripted_reply::ReplyStep,
};

type Handler = dyn Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync;

/// An upstream. It stops when this is dropped.
pub(crate) struct TestUpstream {
    pub(crate) address: SocketAddr,
    shared: Arc<UpstreamState>,
    accepting: JoinHandle<()>,
}

struct UpstreamState {
    handler: Box<Handler>,
    received: Mutex<Vec<ReceivedRequest>>,
    /// Requests with ambiguous framing.
    ambiguous: Mutex<Vec<String>>,
    gate: watch::Sender<bool>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

impl TestUpstream {
    /// Replies with the number of the request.
    pub(crate) async fn counting() -> Self {
        Self::start(|received| ScriptedReply::ok(format!("run {}", received.number))).await
    }

    /// Replies with the number of the request once the gate is open.
    pub(crate) async fn gated() -> Self {
        Self::start(|received| ScriptedReply::ok(format!("run {}", received.number)).gated()).await
    }

    pub(crate) async fn start(
        handler: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Reserved::new().start(handler)
    }

    pub(crate) fn open_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    /// The requests so far.
    #[track_caller]
    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        let ambiguous = self.shared.ambiguous.lock().unwrap();
        assert!(ambiguous.is_empty(), "{ambiguous:?}");
        self.shared.received.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn count(&self) -> usize {
        self.received().len()
    }

    /// The only request so far.
    #[track_caller]
    pub(crate) fn only(&self) -> ReceivedRequest {
        let mut received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// All connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

impl Drop for TestUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl fmt::Debug for TestUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.address).finish()
    }
}

/// An address that is reserved for an upstream that does not listen yet.
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
        handler: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> TestUpstream {
        let (address, listener) = (self.address(), self.0.listen(1024).unwrap());
        let shared = Arc::new(UpstreamState {
            handler: Box::new(handler),
            received: Mutex::default(),
            ambiguous: Mutex::default(),
            gate: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(serve(listener, shared.clone()));
        TestUpstream { address, shared, accepting }
    }
}

/// The next connection with a request, at a listener without a [`TestUpstream`]. At its start, the gateway makes a
/// connection without a request, to check whether the upstream can be reached.
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

async fn serve(listener: TcpListener, shared: Arc<UpstreamState>) {
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

impl UpstreamState {
    /// Serves one request. `None` if it was the last on this connection.
    async fn serve_one(&self, stream: &mut BufReader<TcpStream>) -> Option<()> {
        let head = http1::head(stream).await?;
        let framing = match head.framing() {
            Ok(framing) => framing.unwrap_or(BodyFraming::Length(0)),
            Err(why) => {
                self.ambiguous.lock().unwrap().push(why);
                return None;
            }
        };
        let number = self.note(&head);
        let note =
            |piece: &[u8]| self.update(number, |received| received.body.extend_from_slice(piece));
        let trailers = http1::body(stream, framing, note).await.ok()?;
        self.update(number, |received| (received.trailers, received.whole) = (trailers, true));
        let received = self.received.lock().unwrap()[number - 1].clone();
        self.reply((self.handler)(&received), stream.get_mut()).await
    }

    fn note(&self, head: &MessageHead) -> usize {
        let mut received = self.received.lock().unwrap();
        let number = received.len() + 1;
        received.push(ReceivedRequest::new(number, head));
        number
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut ReceivedRequest)) {
        change(&mut self.received.lock().unwrap()[number - 1]);
    }

    async fn reply(&self, reply: ScriptedReply, stream: &mut TcpStream) -> Option<()> {
        for step in reply.0 {
            match step {
                ReplyStep::Write(bytes) => stream.write_all(&bytes).await.ok()?,
                ReplyStep::Gate => drop(self.gate.subscribe().wait_for(|open| *open).await),
                ReplyStep::Stall => pending().await,
                ReplyStep::Close => return None,
                ReplyStep::Reset => {
                    stream.set_zero_linger().unwrap();
                    return None;
                }
            }
        }
        Some(())
    }
}
