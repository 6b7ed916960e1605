//! A real folder: which processes may open it, what survives in it, and what an engine on top of it sees.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{
    Claim, ClaimRequest, Clock, CompleteRequest, Engine, ErrorKind, Fingerprint, HashSecret,
    KeyHash, ManualClock, Nonce, OnLostOwner, Outcome, Policy, Principal, RunError, Scope, Span,
    State, Store, Terms, Timestamp, Verdict,
};
use semel_store_embedded::EmbeddedStore;

fn claim(key: u8, on_lost_owner: OnLostOwner) -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes([key; 32]),
        fingerprint: Fingerprint::of_bytes(b"order"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: Span::from_millis(30_000),
            on_lost_owner,
            max_attempts: None,
            retention: Span::from_millis(86_400_000),
            failure_retention: Span::from_millis(3_600_000),
        },
        labels: None,
    }
}

async fn complete(store: &EmbeddedStore, key: u8, body: Vec<u8>) {
    let Ok(Claim::Granted(lease)) = store.claim(&claim(key, OnLostOwner::Rerun)).await else {
        panic!("key {key} is not free");
    };
    let outcome = Arc::new(Outcome::success(body));
    store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
}

fn refusal(path: &Path) -> semel_core::Error {
    EmbeddedStore::open(path).map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn outcomes_survive_and_are_replayed_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let bodies: Vec<Vec<u8>> =
        [0, 1, 300, 5_000, 3_000_000].map(|n| (0..n).map(|_| rand::random()).collect()).into();
    let store = EmbeddedStore::open(&path).unwrap();
    for (key, body) in (0..).zip(&bodies) {
        complete(&store, key, body.clone()).await;
    }
    drop(store);
    let store = EmbeddedStore::open(&path).unwrap();
    for (key, body) in (0..).zip(&bodies) {
        let answer = store.claim(&claim(key, OnLostOwner::Rerun)).await.unwrap();
        let Claim::Replay(replay) = answer else { panic!("{answer:?}") };
        assert_eq!(*replay.outcome, Outcome::success(body.clone()), "{} bytes", body.len());
    }
}

#[tokio::test]
async fn an_owner_of_an_earlier_process_is_lost_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    store.claim(&claim(1, OnLostOwner::Rerun)).await.unwrap();
    store.claim(&claim(2, OnLostOwner::Hold)).await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let Ok(Claim::Granted(lease)) = store.claim(&claim(1, OnLostOwner::Rerun)).await else {
        panic!("the lease of a process that is gone still runs")
    };
    assert_eq!((lease.attempt, lease.owner.token), (2, 2));
    assert_eq!(store.claim(&claim(2, OnLostOwner::Hold)).await.unwrap(), Claim::Unknown);
    drop(store);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let seen = store.get(&KeyHash::from_bytes([2; 32])).await.unwrap().unwrap();
    assert_eq!(seen.record.state, State::Unknown);
    assert_eq!(store.stats().await.unwrap().unknown, 1);
}

#[test]
fn a_folder_in_use_is_refused_until_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let error = refusal(folder.path());
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let clone = store.clone();
    drop(store);
    refusal(folder.path());
    drop(clone);
    EmbeddedStore::open(folder.path()).unwrap();
}

#[test]
fn the_folder_and_its_secret_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let secret = EmbeddedStore::open(&path).unwrap().info().hash_secret;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("identity")), 0o600);
    assert!(secret.is_some());
    assert_eq!(EmbeddedStore::open(&path).unwrap().info().hash_secret, secret, "it stays");
    let other = EmbeddedStore::open(folder.path().join("other")).unwrap().info().hash_secret;
    assert_ne!(other, secret);
}

#[test]
fn a_path_that_is_no_folder_or_not_empty_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(refusal(&file).to_string().contains("file"));
    let error = refusal(folder.path());
    assert!(
        error.to_string().contains("\"file\"") && error.kind() == ErrorKind::Invalid,
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing of ours is left there");
    assert!(refusal(&folder.path().join("no/such/parent")).to_string().contains("parent"));
}

/// A clock that was set back.
#[derive(Debug)]
struct SetBack(ManualClock);

impl Clock for SetBack {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now().as_millis() - 1_000_000)
    }
}

#[tokio::test]
async fn time_does_not_run_backwards_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let store = EmbeddedStore::builder(folder.path()).clock(clock.clone()).open().unwrap();
    complete(&store, 1, vec![1]).await;
    let before = store.get(&KeyHash::from_bytes([1; 32])).await.unwrap().unwrap().at;
    drop(store);
    let store = EmbeddedStore::builder(folder.path()).clock(SetBack(clock.clone())).open().unwrap();
    let after = store.get(&KeyHash::from_bytes([1; 32])).await.unwrap().unwrap().at;
    assert!(after >= before, "{after:?} is before {before:?}");
    clock.advance(Duration::from_secs(86_400));
    assert!(store.get(&KeyHash::from_bytes([1; 32])).await.unwrap().is_none(), "and it goes on");
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = EmbeddedStore::builder(folder.path()).segment_bytes(1).open().unwrap_err();
    assert!(error.to_string().contains("segment_bytes"), "{error}");
}

#[tokio::test]
async fn an_engine_replays_what_an_earlier_process_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let key = || Scope::new("payments", Principal::from("ada"), "charge").key("order-42").unwrap();
    let downstream_keys = Arc::new(Mutex::new(Vec::new()));
    for run in 0..2 {
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let engine = Engine::builder().store(store).policy(Policy::financial()).build().unwrap();
        let answer = engine.run_raw(key(), Fingerprint::of_bytes(b"order"), |_| async {
            Verdict::Final(Outcome::success("receipt"))
        });
        let answer = answer.await.unwrap();
        assert_eq!((answer.replayed, answer.stored), (run == 1, true));
        let other =
            Scope::new("payments", Principal::from("ada"), "charge").key("order-43").unwrap();
        let seen = downstream_keys.clone();
        let refused =
            engine.run_raw(other, Fingerprint::of_bytes(b"order"), |context| async move {
                seen.lock().push(context.downstream_key().to_string());
                Verdict::NoEffect(std::io::Error::other("not now").into())
            });
        assert!(matches!(refused.await, Err(RunError::Retry(_))));
        engine.shutdown(Duration::from_secs(5)).await;
    }
    let keys = downstream_keys.lock();
    assert_eq!(keys[0], keys[1], "the folder's secret keys them");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_at_the_same_time_share_syncs_and_get_their_own_answers() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let callers = (0..=255).map(|key| {
        let store = store.clone();
        tokio::spawn(async move { complete(&store, key, vec![key; 100]).await })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    for key in 0..=255u8 {
        let seen = store.get(&KeyHash::from_bytes([key; 32])).await.unwrap().unwrap();
        assert_eq!(*seen.record.outcome.unwrap(), Outcome::success(vec![key; 100]));
    }
}

/// With another secret no earlier key would be found, and every retry would run again.
#[tokio::test]
async fn a_folder_keeps_the_hash_secret_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let secret = |text: &str| HashSecret::from_bytes(text.as_bytes()).unwrap();
    let (one, other) = (secret("0123456789abcdef"), secret("fedcba9876543210"));
    let open = |name: &str, secret: Option<&HashSecret>| {
        let builder = EmbeddedStore::builder(folder.path().join(name));
        secret.cloned().into_iter().fold(builder, |it, secret| it.hash_secret(secret)).open()
    };
    let refused = |name, secret| open(name, secret).map(drop).unwrap_err().to_string();

    assert_eq!(open("given", Some(&one)).unwrap().info().hash_secret.as_ref(), Some(&one));
    assert!(open("given", Some(&one)).is_ok());
    assert!(refused("given", Some(&other)).contains("or none if it began without"));
    assert!(refused("given", None).contains("give that one"));

    let store = open("own", None).unwrap();
    complete(&store, 1, b"receipt".to_vec()).await;
    drop(store);
    assert!(refused("own", Some(&one)).contains("give none if it began without"));
    assert!(open("own", None).is_ok());
}
