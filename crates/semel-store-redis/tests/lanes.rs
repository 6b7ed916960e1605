//! Connections on the callers' runtimes: they come and go with these, and no call is lost with them.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;

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
use redis::cmd;
use semel_core::{
    Claim, Engine, ErrorKind, Fingerprint, Key, KeyHash, Policy, Scope, State, Store,
};
use semel_servers::{REDIS, Running};
use semel_store_redis::{RedisStore, RedisStoreBuilder};
use tokio::runtime::{Builder, Runtime};

use self::common::{LONG, request};

const SOON: Duration = Duration::from_secs(20);

struct Scene {
    server: Running,
    home: Runtime,
    store: RedisStore,
}

impl Scene {
    fn set() -> Self {
        let (server, home) = (Running::start(&REDIS).expect("redis starts"), runtime());
        let store = home.block_on(RedisStore::connect(server.url())).unwrap();
        Self { server, home, store }
    }

    /// Connections to the server, but for the one that asks.
    fn connections(&self) -> usize {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut raw = client.get_connection().unwrap();
        let list: String = cmd("CLIENT").arg("LIST").query(&mut raw).unwrap();
        list.lines().count() - 1
    }

    /// Nothing happens on these runtimes but by this.
    fn until_connected(&self, runtimes: &[&Runtime], wanted: usize) {
        let deadline = Instant::now() + SOON;
        while self.connections() != wanted {
            assert!(Instant::now() < deadline, "{} connections, not {wanted}", self.connections());
            for runtime in runtimes {
                runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
            }
        }
    }

    /// Another runtime, with connections of its own.
    fn other(&self) -> Runtime {
        let (other, before) = (runtime(), self.connections());
        call_often(&other, &self.store);
        self.until_connected(&[&other], before + RedisStoreBuilder::CONNECTIONS);
        call_often(&other, &self.store);
        other
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn call_often(runtime: &Runtime, store: &RedisStore) {
    let store = store.clone();
    let calls = async move {
        for _ in 0..100 {
            assert!(matches!(store.claim(&request(LONG)).await, Ok(Claim::Granted(_))));
        }
    };
    runtime.block_on(async { tokio::spawn(calls).await.unwrap() });
}

fn key(name: &str) -> Key {
    Scope::new("tests", "caller", "run").key(name).unwrap()
}

#[test]
fn a_runtime_that_calls_often_has_connections_until_it_ends() {
    let scene = Scene::set();
    let before = scene.connections();
    let others = [scene.other(), scene.other()];
    assert_eq!(scene.connections(), before + 2 * RedisStoreBuilder::CONNECTIONS);
    drop(others);
    scene.until_connected(&[&scene.home], before);
    call_often(&scene.home, &scene.store);
    call_often(&runtime(), &scene.store);
}

#[test]
fn nothing_is_left_of_a_store_that_is_gone() {
    let mut scene = Scene::set();
    let alone = scene.connections();
    let other = scene.other();
    scene.store = scene.home.block_on(RedisStore::connect(scene.server.url())).unwrap();
    scene.until_connected(&[&scene.home, &other], alone);
}

/// Whatever the call was at when its runtime was dropped.
#[test]
fn what_ran_is_recorded_when_the_runtime_of_its_call_is_gone() {
    let scene = Scene::set();
    let policy = Policy::api().lease(Duration::from_secs(60));
    let engine = Engine::builder().store(scene.store.clone()).policy(policy).build().unwrap();
    let mut ran = 0;
    for round in 0..30u64 {
        let (other, runs) = (scene.other(), Arc::new(AtomicU32::new(0)));
        let (called, counted, name) = (engine.clone(), runs.clone(), format!("{round}"));
        let call = async move {
            let work = |_| async move { Ok::<_, io::Error>(counted.fetch_add(1, SeqCst)) };
            called.run(key(&name), Fingerprint::of_bytes(b"x"), work).await
        };
        other.block_on(async {
            let call = tokio::spawn(call);
            let _ = tokio::time::timeout(Duration::from_micros(20 * round), call).await;
        });
        drop(other);
        ran += runs.load(SeqCst);
        if runs.load(SeqCst) == 1 {
            let hash = engine.key_hash(&key(&format!("{round}")));
            let deadline = Instant::now() + SOON;
            while state(&scene, &hash) != Some(State::Completed) {
                assert!(Instant::now() < deadline, "round {round}: {:?}", state(&scene, &hash));
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    assert!(ran > 0, "nothing ran before its runtime was gone");
}

/// More than its connections take at once: some are in its queue to the end.
#[test]
fn calls_that_were_queued_on_a_runtime_that_is_gone_may_be_made_again() {
    let scene = Scene::set();
    let (other, store) = (scene.other(), scene.store.clone());
    let queue = async move {
        let call = |_| {
            let store = store.clone();
            let mut call = Box::pin(async move { store.claim(&request(LONG)).await });
            assert!((&mut call).now_or_never().is_none(), "it is queued");
            call
        };
        (0..2000).map(call).collect::<Vec<_>>()
    };
    let calls = other.block_on(async { tokio::spawn(queue).await.unwrap() });
    drop(other);
    let answers = scene.home.block_on(join_all(calls));
    let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(failed.iter().any(|error| error.to_string().contains("runtime")), "{}", failed.len());
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{failed:?}");
}

fn state(scene: &Scene, hash: &KeyHash) -> Option<State> {
    Some(scene.home.block_on(scene.store.get(hash)).unwrap()?.record.state)
}

/// Its lease is renewed elsewhere, and what comes in meanwhile is read after.
#[test]
fn a_handler_that_blocks_its_runtime_keeps_its_key_and_other_calls_are_answered() {
    let scene = Scene::set();
    let policy = Policy::api().lease(Duration::from_secs(1)).wait(Duration::from_secs(1));
    let engine = Engine::builder().store(scene.store.clone()).policy(policy).build().unwrap();
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
        let calls = [run("blocks", Duration::from_secs(3)), run("waits", Duration::ZERO)];
        for call in calls {
            let answer = call.await.unwrap().unwrap();
            assert!(answer.stored && !answer.replayed);
        }
    });
}
