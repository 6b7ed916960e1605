//! Connections on the callers' runtimes: they open and close with these, and no call is lost with them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use semel_core::{Engine, ErrorKind, Fingerprint, Key, KeyHash, Policy, Scope, State, Store};
use tokio::runtime::{Builder, Runtime};

use super::subject::{BOUND, StoreUnderTest, claim, granted, until_answered};

const CONNECTIONS: usize = 3;

/// A call that is not answered by then waits for a runtime that no thread drives.
const PATIENCE: Duration = Duration::from_millis(300);

struct RuntimeScene {
    connections: usize,
    subject: StoreUnderTest,
    home: Runtime,
    store: Arc<dyn Store>,
}

impl RuntimeScene {
    fn set(subject: StoreUnderTest) -> Self {
        Self::with(subject, CONNECTIONS)
    }

    fn with(subject: StoreUnderTest, connections: usize) -> Self {
        let (subject, home) = (subject.patient(), runtime());
        let store = home.block_on(subject.open(connections));
        let scene = Self { connections, subject, home, store };
        scene.until_connected(&[], scene.subject.idle_connections(connections));
        scene
    }

    fn connections_per_runtime(&self) -> u64 {
        self.subject.connections_per_runtime(self.connections)
    }

    fn connections(&self) -> u64 {
        self.subject.proxy.counts().open()
    }

    /// Drives these runtimes until there are `wanted` connections. They run only during this call.
    fn until_connected(&self, runtimes: &[&Runtime], wanted: u64) {
        let deadline = Instant::now() + BOUND;
        while self.connections() != wanted {
            assert!(Instant::now() < deadline, "{} connections, not {wanted}", self.connections());
            for runtime in runtimes {
                runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
            }
            self.home.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        }
    }

    /// Another runtime, with connections of its own.
    fn other(&self) -> Runtime {
        let (other, before) = (runtime(), self.connections());
        self.call_often(&other);
        self.until_connected(&[&other], before + self.connections_per_runtime());
        self.until_own_connections(&other);
        other
    }

    /// Waits until calls use the runtime's connections: a connection is counted before it is ready.
    fn until_own_connections(&self, other: &Runtime) {
        let deadline = Instant::now() + BOUND;
        while !self.uses_own_connections(other) {
            assert!(Instant::now() < deadline, "calls of this runtime use other connections");
            self.call_often(other);
        }
    }

    /// True when a call waits for its runtime to be driven, because the connection is there.
    fn uses_own_connections(&self, other: &Runtime) -> bool {
        let store = self.store.clone();
        let begin = async move {
            let mut call = Box::pin(async move { store.get(&claim().key).await });
            assert!((&mut call).now_or_never().is_none(), "it is queued");
            [call]
        };
        let [mut call] = other.block_on(async { tokio::spawn(begin).await.unwrap() });
        let alone = async { tokio::time::timeout(PATIENCE, &mut call).await };
        match self.home.block_on(alone) {
            Ok(answer) => {
                answer.unwrap();
                false
            }
            Err(_) => {
                other.block_on(call).unwrap();
                true
            }
        }
    }

    fn call_often(&self, runtime: &Runtime) {
        let store = self.store.clone();
        let calls = async move {
            for _ in 0..100 {
                let request = claim();
                granted(&request, store.claim(&request).await.unwrap());
            }
        };
        runtime.block_on(async { tokio::spawn(calls).await.unwrap() });
    }

    fn state(&self, hash: &KeyHash) -> Option<State> {
        Some(self.home.block_on(self.store.get(hash)).unwrap()?.record.state)
    }

    fn engine(&self, policy: Policy) -> Engine {
        Engine::builder().store(self.store.clone()).policy(policy).build().unwrap()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn key(name: &str) -> Key {
    Scope::new("tests", format!("{:016x}", rand::random::<u64>()), "run").key(name).unwrap()
}

pub(crate) fn a_runtime_that_calls_often_has_connections_until_it_ends(subject: StoreUnderTest) {
    let scene = RuntimeScene::set(subject);
    let before = scene.connections();
    for _ in 0..3 {
        let other = scene.other();
        assert_eq!(scene.connections(), before + scene.connections_per_runtime());
        drop(other);
        scene.until_connected(&[], before);
    }
    scene.call_often(&runtime());
}

pub(crate) fn runtimes_beyond_the_limit_are_answered_and_get_connections_later(
    subject: StoreUnderTest,
) {
    let scene = RuntimeScene::set(subject);
    let before = scene.connections();
    let (first, second) = (scene.other(), runtime());
    scene.call_often(&second);
    let both =
        before + scene.connections_per_runtime() * scene.subject.runtimes_with_connections.min(2);
    scene.until_connected(&[&first, &second], both);
    assert_eq!(scene.uses_own_connections(&second), scene.subject.runtimes_with_connections > 1);
    drop(first);
    scene.until_connected(&[&second], both - scene.connections_per_runtime());
    scene.call_often(&second);
    scene.until_connected(&[&second], before + scene.connections_per_runtime());
    scene.until_own_connections(&second);
}

/// Also after calls that came while the runtime had no connection.
pub(crate) fn calls_return_to_their_own_connections_after_a_cut(subject: StoreUnderTest) {
    let scene = RuntimeScene::with(subject, 1);
    let other = scene.other();
    for _ in 0..5 {
        let call = |_| {
            let store = scene.store.clone();
            other.spawn(async move { drop(store.get(&claim().key).await) })
        };
        let calls: Vec<_> = (0..50).map(call).collect();
        scene.subject.proxy.cut();
        for call in calls {
            other.block_on(call).unwrap();
        }
        until_ok(&other, &scene.store);
        scene.until_own_connections(&other);
    }
}

fn until_ok(runtime: &Runtime, store: &Arc<dyn Store>) {
    let (key, store) = (claim().key, store.clone());
    let asking = async move { until_answered(|| store.get(&key)).await };
    runtime.block_on(async { tokio::spawn(asking).await.unwrap() });
}

/// Some threads of the runtime have a connection before others do.
pub(crate) fn no_call_fails_while_connections_come_up(subject: StoreUnderTest) {
    let scene = RuntimeScene::set(subject);
    let alone = scene.connections();
    for _ in 0..20 {
        let other = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let call = |_| {
            let store = scene.store.clone();
            other.spawn(async move {
                for _ in 0..40 {
                    store.get(&claim().key).await.unwrap();
                }
            })
        };
        let calls: Vec<_> = (0..16).map(call).collect();
        for call in calls {
            other.block_on(call).unwrap();
        }
        drop(other);
        scene.until_connected(&[], alone);
    }
}

/// A runtime without an I/O driver gets no connections, and its calls are answered over others.
pub(crate) fn a_runtime_without_sockets_is_answered(subject: StoreUnderTest) {
    let scene = RuntimeScene::set(subject);
    let before = scene.connections();
    let other = Builder::new_current_thread().enable_time().build().unwrap();
    for _ in 0..3 {
        scene.call_often(&other);
        assert_eq!(scene.connections(), before);
    }
    scene.other();
}

pub(crate) fn a_dropped_store_leaves_no_connection(subject: StoreUnderTest) {
    let mut scene = RuntimeScene::set(subject);
    let alone = scene.connections();
    let other = scene.other();
    scene.store = scene.home.block_on(scene.subject.open(CONNECTIONS));
    scene.until_connected(&[&other], alone);
}

/// At every stage of the call at which its runtime is dropped.
pub(crate) fn a_run_is_recorded_although_the_runtime_of_its_call_ended(subject: StoreUnderTest) {
    let scene = RuntimeScene::set(subject);
    let engine = scene.engine(Policy::api().lease(Duration::from_secs(60)));
    let (alone, mut ran) = (scene.connections(), 0);
    for round in 0..300u64 {
        if round >= 20 && ran > 0 {
            return;
        }
        let (other, runs) = (scene.other(), Arc::new(AtomicU32::new(0)));
        let (called, counted, key) = (engine.clone(), runs.clone(), key("runs"));
        let hash = engine.key_hash(&key);
        let call = async move {
            let work = |_| async move { Ok::<_, io::Error>(counted.fetch_add(1, SeqCst)) };
            called.run(key, Fingerprint::of_bytes(b"x"), work).await
        };
        other.block_on(async {
            let call = tokio::spawn(call);
            let _ = tokio::time::timeout(Duration::from_micros(100 * round), call).await;
        });
        drop(other);
        ran += runs.load(SeqCst);
        let deadline = Instant::now() + BOUND;
        while runs.load(SeqCst) == 1 && scene.state(&hash) != Some(State::Completed) {
            assert!(Instant::now() < deadline, "round {round}: {:?}", scene.state(&hash));
            thread::sleep(Duration::from_millis(5));
        }
        scene.until_connected(&[], alone);
    }
    panic!("nothing ran before its runtime was gone");
}

/// More calls than the connections take at once, so that some are queued when the runtime ends. A store that verifies
/// lost calls does so over other connections.
pub(crate) fn calls_queued_on_a_runtime_that_ended_may_be_repeated(subject: StoreUnderTest) {
    let scene = RuntimeScene::set(subject);
    let (other, store) = (scene.other(), scene.store.clone());
    let queue = async move {
        let call = |_| {
            let store = store.clone();
            let mut call = Box::pin(async move { store.claim(&claim()).await });
            assert!((&mut call).now_or_never().is_none(), "it is queued");
            call
        };
        (0..9000).map(call).collect::<Vec<_>>()
    };
    let calls = other.block_on(async { tokio::spawn(queue).await.unwrap() });
    drop(other);
    let answers = scene.home.block_on(join_all(calls));
    let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let were_queued = failed.iter().any(|error| error.to_string().contains("runtime"));
    assert_eq!(were_queued, scene.subject.has_queues(), "{}", failed.len());
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{failed:?}");
}

/// The lease is renewed on semel's own runtime, and replies that arrive meanwhile are read afterwards.
pub(crate) fn a_handler_that_blocks_its_runtime_keeps_its_key_and_other_calls_are_answered(
    subject: StoreUnderTest,
) {
    let scene = RuntimeScene::set(subject);
    let engine = scene.engine(Policy::api().lease(Duration::from_secs(4)));
    let other = scene.other();
    let run = |name: &'static str, blocks: Duration| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let work = move |_| async move {
                tokio::task::yield_now().await;
                thread::sleep(blocks);
                Ok::<_, io::Error>(1u32)
            };
            engine.run(key(name), Fingerprint::of_bytes(b"x"), work).await
        })
    };
    other.block_on(async {
        let calls = [run("blocks", Duration::from_secs(6)), run("waits", Duration::ZERO)];
        for call in calls {
            let answer = call.await.unwrap().unwrap();
            assert!(answer.stored && !answer.replayed);
        }
    });
}
