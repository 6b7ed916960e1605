//! What is promised of a crowd of slow clients, one promise at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::crowd::{Answer, Client, connect, wait_until};
use crate::server::{PIECE, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::time::{Instant, sleep};

pub(crate) const MIB: usize = 1024 * 1024;
/// Clients at the same time.
const CLIENTS: usize = 10_000;
/// What the layer may hold.
pub(crate) const BUDGET: usize = 64 * MIB;
/// What a connection may take beside it: tasks, futures, hyper's buffers, the allocator's waste.
const CONNECTION: usize = 48 * 1024;
/// What one may take whose answer is relayed: a piece on the way, and what hyper takes before it sees that
/// it cannot be written.
const RELAYED: usize = CONNECTION + 3 * PIECE;
/// What each client of the upload sends at first, and then before it stalls.
pub(crate) const HEAD_START: usize = 1024;
pub(crate) const PART: usize = 63 * 1024;
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(6);
/// Descriptors that are no clients.
const OTHER_FILES: usize = 200;

/// A server, and how many clients there are sockets for.
struct Stage {
    server: Server,
    base: usize,
    sockets: usize,
}

/// How clients were answered.
#[derive(Default)]
struct Tally {
    ok: AtomicUsize,
    overloaded: AtomicUsize,
    timed_out: AtomicUsize,
}

pub(crate) async fn uploads_that_stall_hold_no_more_than_the_budget() {
    let stage = Stage::set();
    stage.in_process("upload").await;
    let asked_at = Instant::now();
    let clients =
        ask_all(&stage, |number| ("/upload", format!("upload-{number}"), MIB, HEAD_START));
    let tally = Arc::new(Tally::default());
    for mut client in clients.await {
        let tally = tally.clone();
        tokio::spawn(async move {
            client.send(PART).await;
            tally.count(client.answer().await);
        });
    }
    // All others have no place; those that are slower than the timeout have lost theirs.
    let places = BUDGET / (HEAD_START + PART);
    wait_until("the rest is refused", async || {
        tally.ended() >= stage.sockets.saturating_sub(places)
    })
    .await;
    let refused = stage.ask_once("/upload", "large", MIB).await;
    // While they stall, a request is served only where it fits into what is left.
    if asked_at.elapsed() < READ_TIMEOUT {
        assert_eq!(refused, Answer::Overloaded);
    }
    stage.report("stalled uploads", &tally);
    assert!(tally.overloaded.load(SeqCst) > 0);
    wait_until("the stalled ones time out", async || tally.ended() == stage.sockets).await;
    wait_until("the refused request is served", async || {
        stage.ask_once("/upload", "large", MIB).await == Answer::Ok
    })
    .await;
    stage.assert_bounded(CONNECTION);
}

/// Each byte arrives in a read buffer of its own, which must not be kept for it.
pub(crate) async fn an_upload_byte_by_byte_holds_its_bytes_and_not_the_buffers_they_came_in() {
    const TRICKLING: usize = 100;
    const BYTES: usize = 200;
    let stage = Stage::set();
    let mut clients = connect(stage.server.address, TRICKLING).await;
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask("/upload", &format!("trickle-{number}"), BYTES, 0).await;
    }
    for _ in 0..BYTES {
        for client in &mut clients {
            client.send(1).await;
        }
        // The server is to read them one by one.
        sleep(Duration::from_millis(1)).await;
    }
    for client in &mut clients {
        assert_eq!(client.answer().await, Answer::Ok);
    }
    stage.report("uploads byte by byte", &Tally::default());
    let (peak, bound) = (stage.server.memory().peak, stage.base + 16 * MIB);
    assert!(peak <= bound, "{} MiB at the peak, {} allowed", peak / MIB, bound / MIB);
}

pub(crate) async fn replays_that_nobody_reads_hold_no_more_than_the_budget() {
    let stage = Stage::set();
    let mut first = Client::connect(stage.server.address).await;
    first.ask("/answer", "recorded", 0, 0).await;
    assert_eq!(first.answer().await, Answer::Ok);
    first.read_body(MIB).await;
    stage.in_process("replay").await;
    let (held, tally) = answers(&stage, |_| ("/answer", "recorded".into(), 0, 0)).await;
    stage.report("unread replays", &tally);
    let replays = tally.ok.load(SeqCst);
    assert!(replays * MIB <= BUDGET, "{replays} replays are held");
    assert_eq!(replays + tally.overloaded.load(SeqCst), stage.sockets);
    assert_eq!(stage.ask_once("/answer", "recorded", 0).await, Answer::Overloaded);
    stage.assert_bounded(CONNECTION);
    drop(held);
    stage.open_gate().await;
    wait_until("there is room again", async || {
        stage.ask_once("/answer", "recorded", 0).await == Answer::Ok
    })
    .await;
}

pub(crate) async fn first_answers_that_nobody_reads_hold_no_more_than_the_budget() {
    let stage = Stage::set();
    stage.in_process("answer").await;
    let (held, tally) =
        answers(&stage, |number| ("/answer", format!("answer-{number}"), 0, 0)).await;
    stage.report("unread first answers", &tally);
    // Whoever is turned away is so before the handler runs; whoever was run for gets an answer.
    let (answered, refused) = (tally.ok.load(SeqCst), tally.overloaded.load(SeqCst));
    assert_eq!(answered + refused, stage.sockets);
    assert!(answered > BUDGET / MIB, "an answer without room is relayed: {answered}");
    stage.assert_bounded(RELAYED);
    drop(held);
}

pub(crate) async fn duplicates_that_wait_hold_no_more_than_the_budget() {
    const DUPLICATES: usize = 1_000;
    const BODY: usize = MIB / 4;
    let stage = Stage::set();
    let (tally, duplicates) = (Arc::new(Tally::default()), DUPLICATES.min(stage.sockets));
    for mut client in connect(stage.server.address, duplicates).await {
        let tally = tally.clone();
        tokio::spawn(async move {
            client.ask("/gate", "one", BODY, BODY).await;
            tally.count(client.answer().await);
        });
    }
    let refused = || tally.overloaded.load(SeqCst);
    wait_until("the rest is refused", async || refused() >= duplicates - BUDGET / BODY).await;
    assert_eq!(tally.ok.load(SeqCst), 0);
    stage.report("waiting duplicates", &tally);
    stage.assert_bounded(CONNECTION);
    stage.open_gate().await;
    wait_until("all are answered", async || tally.ended() == duplicates).await;
    assert!(tally.ok.load(SeqCst) > 0);
}

impl Stage {
    fn set() -> Self {
        let sockets = CLIENTS.min(raise_open_files().saturating_sub(OTHER_FILES));
        let server = Server::start();
        let base = server.memory().resident;
        Self { server, base, sockets }
    }

    /// Makes the clients inside the server for which there are no sockets.
    async fn in_process(&self, kind: &str) {
        let path = format!("/in-process/{kind}/{}", CLIENTS - self.sockets);
        assert_eq!(self.ask_once(&path, "none", 0).await, Answer::Ok);
    }

    async fn open_gate(&self) {
        assert_eq!(self.ask_once("/open", "none", 0).await, Answer::Ok);
    }

    /// A client like any other: sends all, and reads.
    async fn ask_once(&self, path: &str, key: &str, body: usize) -> Answer {
        let mut client = Client::connect(self.server.address).await;
        client.ask(path, key, body, body).await;
        client.answer().await
    }

    fn assert_bounded(&self, per_client: usize) {
        let (peak, bound) = (self.server.memory().peak, self.base + BUDGET + CLIENTS * per_client);
        assert!(peak <= bound, "{} MiB at the peak, {} allowed", peak / MIB, bound / MIB);
    }

    fn report(&self, what: &str, tally: &Tally) {
        let memory = self.server.memory();
        let (ok, overloaded, timed_out) =
            (tally.ok.load(SeqCst), tally.overloaded.load(SeqCst), tally.timed_out.load(SeqCst));
        println!(
            "{what}: {ok} answered, {overloaded} overloaded, {timed_out} timed out; \
             {} MiB at first, {} now, {} at the peak",
            self.base / MIB,
            memory.resident / MIB,
            memory.peak / MIB,
        );
    }
}

impl Tally {
    fn count(&self, answer: Answer) {
        let counter = match answer {
            Answer::Ok => &self.ok,
            // Both are turned away before anything runs or is held.
            Answer::Overloaded | Answer::Busy => &self.overloaded,
            Answer::TimedOut => &self.timed_out,
            Answer::Other(other) => panic!("{other}"),
        };
        counter.fetch_add(1, SeqCst);
    }

    fn ended(&self) -> usize {
        [&self.ok, &self.overloaded, &self.timed_out].iter().map(|count| count.load(SeqCst)).sum()
    }
}

/// All clients, each having sent the start of its request: path, key, length declared and length sent.
async fn ask_all(
    stage: &Stage,
    request: impl Fn(usize) -> (&'static str, String, usize, usize),
) -> Vec<Client> {
    let mut clients = connect(stage.server.address, stage.sockets).await;
    for (number, client) in clients.iter_mut().enumerate() {
        let (path, key, declared, start) = request(number);
        client.ask(path, &key, declared, start).await;
    }
    clients
}

/// All clients, each having seen that its answer has begun.
async fn answers(
    stage: &Stage,
    request: impl Fn(usize) -> (&'static str, String, usize, usize),
) -> (Vec<Client>, Tally) {
    let (mut clients, tally) = (ask_all(stage, request).await, Tally::default());
    for client in &mut clients {
        tally.count(client.answer().await);
    }
    (clients, tally)
}

/// Raises the limit on open files as far as it goes, and says how far that is.
pub(crate) fn raise_open_files() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap())
}
