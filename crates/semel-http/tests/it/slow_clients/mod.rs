//! The memory of a server stays bounded with any number of slow clients: the budget for bodies, and a fixed amount
//! for each connection.
//!
//! The server runs in a process of its own, and the kernel reports its peak. If the limit on open files is too low
//! for all clients, the server makes the other requests itself. One test runs at a time: each needs thousands of
//! sockets.

mod client;
mod server;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, sleep},
};

use client::{SlowAnswer, SlowClient, connect, wait_until};
use server::{PIECE, SlowClientServer};

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

pub(crate) const MIB: usize = 1024 * 1024;
/// Clients at the same time.
const CLIENTS: usize = 10_000;
/// The budget of the layer.
pub(crate) const BUDGET: usize = 64 * MIB;
/// Memory of a connection beside the budget: tasks, futures, hyper's buffers, the allocator's overhead.
const CONNECTION: usize = 48 * 1024;
/// Memory of a connection whose answer is relayed: one queued piece, and the bytes that hyper takes before it sees
/// that it cannot write them.
const RELAYED: usize = CONNECTION + 3 * PIECE;
/// Bytes that each uploading client sends first, and then before it stalls.
pub(crate) const HEAD_START: usize = 1024;
pub(crate) const PART: usize = 63 * 1024;
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(6);
/// File descriptors for other uses, among them the tests that run beside these.
const OTHER_FILES: usize = 500;

/// A server, and the number of clients that get a socket.
struct SlowClientTest {
    server: SlowClientServer,
    /// Resident bytes of the server before the first client.
    base: usize,
    sockets: usize,
    _turn: MutexGuard<'static, ()>,
}

/// How many clients got which answer.
#[derive(Default)]
struct AnswerCounts {
    ok: AtomicUsize,
    overloaded: AtomicUsize,
    timed_out: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_uploads_hold_no_more_than_the_budget() {
    let test = SlowClientTest::start().await;
    test.in_process("upload").await;
    let sent_at = Instant::now();
    let clients =
        send_all(&test, |number| ("/upload", format!("upload-{number}"), MIB, HEAD_START));
    let counts = Arc::new(AnswerCounts::default());
    for mut client in clients.await {
        let counts = counts.clone();
        tokio::spawn(async move {
            client.send_body(PART).await;
            counts.count(client.read_answer().await);
        });
    }
    // The budget has no capacity for the other uploads. Uploads slower than the timeout are refused too.
    let fitting = BUDGET / (HEAD_START + PART);
    wait_until("the rest is refused", async || {
        counts.ended() >= test.sockets.saturating_sub(fitting)
    })
    .await;
    let refused = test.request_once("/upload", "large", MIB).await;
    // While they stall, a request is served only if it fits into the rest of the budget.
    if sent_at.elapsed() < READ_TIMEOUT {
        assert_eq!(refused, SlowAnswer::Overloaded);
    }
    test.report("stalled uploads", &counts);
    assert!(counts.overloaded.load(SeqCst) > 0);
    wait_until("the stalled ones time out", async || counts.ended() == test.sockets).await;
    wait_until("the refused request is served", async || {
        test.request_once("/upload", "large", MIB).await == SlowAnswer::Ok
    })
    .await;
    test.assert_bounded(CONNECTION);
}

/// Each byte arrives in a read buffer of its own, which the server must not keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_byte_by_byte_does_not_keep_the_read_buffers() {
    const TRICKLING: usize = 100;
    const BYTES: usize = 200;
    let test = SlowClientTest::start().await;
    let mut clients = connect(test.server.address, TRICKLING).await;
    for (number, client) in clients.iter_mut().enumerate() {
        client.send_request("/upload", &format!("trickle-{number}"), BYTES, 0).await;
    }
    for _ in 0..BYTES {
        for client in &mut clients {
            client.send_body(1).await;
        }
        // Gives the server time to read the bytes one by one.
        sleep(Duration::from_millis(1)).await;
    }
    for client in &mut clients {
        assert_eq!(client.read_answer().await, SlowAnswer::Ok);
    }
    test.report("uploads byte by byte", &AnswerCounts::default());
    let (peak, bound) = (test.server.memory().peak, test.base + 16 * MIB);
    assert!(peak <= bound, "{} MiB at the peak, {} allowed", peak / MIB, bound / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_replays_hold_no_more_than_the_budget() {
    let test = SlowClientTest::start().await;
    let mut first = SlowClient::connect(test.server.address).await;
    first.send_request("/answer", "recorded", 0, 0).await;
    assert_eq!(first.read_answer().await, SlowAnswer::Ok);
    first.read_body(MIB).await;
    test.in_process("replay").await;
    let (held, counts) = answers(&test, |_| ("/answer", "recorded".into(), 0, 0)).await;
    test.report("unread replays", &counts);
    let replays = counts.ok.load(SeqCst);
    assert!(replays * MIB <= BUDGET, "{replays} replays are held");
    assert_eq!(replays + counts.overloaded.load(SeqCst), test.sockets);
    assert_eq!(test.request_once("/answer", "recorded", 0).await, SlowAnswer::Overloaded);
    test.assert_bounded(CONNECTION);
    drop(held);
    test.open_gate().await;
    wait_until("the budget has capacity again", async || {
        test.request_once("/answer", "recorded", 0).await == SlowAnswer::Ok
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_first_answers_hold_no_more_than_the_budget() {
    let test = SlowClientTest::start().await;
    test.in_process("answer").await;
    let (held, counts) =
        answers(&test, |number| ("/answer", format!("answer-{number}"), 0, 0)).await;
    test.report("unread first answers", &counts);
    // A request is refused before its handler runs. A request whose handler ran gets an answer.
    let (answered, refused) = (counts.ok.load(SeqCst), counts.overloaded.load(SeqCst));
    assert_eq!(answered + refused, test.sockets);
    assert!(answered > BUDGET / MIB, "an answer over the budget is relayed: {answered}");
    test.assert_bounded(RELAYED);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_duplicates_hold_no_more_than_the_budget() {
    const DUPLICATES: usize = 1_000;
    const BODY: usize = MIB / 4;
    let test = SlowClientTest::start().await;
    let (counts, duplicates) = (Arc::new(AnswerCounts::default()), DUPLICATES.min(test.sockets));
    for mut client in connect(test.server.address, duplicates).await {
        let counts = counts.clone();
        tokio::spawn(async move {
            client.send_request("/gate", "one", BODY, BODY).await;
            counts.count(client.read_answer().await);
        });
    }
    let refused = || counts.overloaded.load(SeqCst);
    wait_until("the rest is refused", async || refused() >= duplicates - BUDGET / BODY).await;
    assert_eq!(counts.ok.load(SeqCst), 0);
    test.report("waiting duplicates", &counts);
    test.assert_bounded(CONNECTION);
    test.open_gate().await;
    wait_until("all are answered", async || counts.ended() == duplicates).await;
    assert!(counts.ok.load(SeqCst) > 0);
}

impl SlowClientTest {
    async fn start() -> Self {
        let turn = ONE_AT_A_TIME.lock().await;
        let sockets = CLIENTS.min(raise_open_files().saturating_sub(OTHER_FILES));
        let server = SlowClientServer::start();
        let base = server.memory().resident;
        Self { server, base, sockets, _turn: turn }
    }

    /// Makes the requests of clients without a socket inside the server.
    async fn in_process(&self, kind: &str) {
        let path = format!("/in-process/{kind}/{}", CLIENTS - self.sockets);
        assert_eq!(self.request_once(&path, "none", 0).await, SlowAnswer::Ok);
    }

    async fn open_gate(&self) {
        assert_eq!(self.request_once("/open", "none", 0).await, SlowAnswer::Ok);
    }

    /// Sends a whole request and reads the answer.
    async fn request_once(&self, path: &str, key: &str, body: usize) -> SlowAnswer {
        let mut client = SlowClient::connect(self.server.address).await;
        client.send_request(path, key, body, body).await;
        client.read_answer().await
    }

    fn assert_bounded(&self, per_client: usize) {
        let (peak, bound) = (self.server.memory().peak, self.base + BUDGET + CLIENTS * per_client);
        assert!(peak <= bound, "{} MiB at the peak, {} allowed", peak / MIB, bound / MIB);
    }

    fn report(&self, what: &str, counts: &AnswerCounts) {
        let memory = self.server.memory();
        let (ok, overloaded, timed_out) =
            (counts.ok.load(SeqCst), counts.overloaded.load(SeqCst), counts.timed_out.load(SeqCst));
        println!(
            "{what}: {ok} answered, {overloaded} overloaded, {timed_out} timed out; \
             {} MiB at first, {} now, {} at the peak",
            self.base / MIB,
            memory.resident / MIB,
            memory.peak / MIB,
        );
    }
}

impl AnswerCounts {
    fn count(&self, answer: SlowAnswer) {
        let counter = match answer {
            SlowAnswer::Ok => &self.ok,
            // Both are refused before anything runs or is held.
            SlowAnswer::Overloaded | SlowAnswer::Busy => &self.overloaded,
            SlowAnswer::TimedOut => &self.timed_out,
            SlowAnswer::Other(other) => panic!("{other}"),
        };
        counter.fetch_add(1, SeqCst);
    }

    fn ended(&self) -> usize {
        [&self.ok, &self.overloaded, &self.timed_out].iter().map(|count| count.load(SeqCst)).sum()
    }
}

/// Connects all clients and sends the start of each request: path, key, declared length and sent length.
async fn send_all(
    test: &SlowClientTest,
    request: impl Fn(usize) -> (&'static str, String, usize, usize),
) -> Vec<SlowClient> {
    let mut clients = connect(test.server.address, test.sockets).await;
    for (number, client) in clients.iter_mut().enumerate() {
        let (path, key, declared, start) = request(number);
        client.send_request(path, &key, declared, start).await;
    }
    clients
}

/// Sends all requests and waits until each answer has begun.
async fn answers(
    test: &SlowClientTest,
    request: impl Fn(usize) -> (&'static str, String, usize, usize),
) -> (Vec<SlowClient>, AnswerCounts) {
    let (mut clients, counts) = (send_all(test, request).await, AnswerCounts::default());
    for client in &mut clients {
        counts.count(client.read_answer().await);
    }
    (clients, counts)
}

/// Raises the limit on open files to the maximum, and returns it.
pub(crate) fn raise_open_files() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap())
}
