//! A record that does not open is an error: it is never replayed and never run again.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use semel_core::{
    Body, Claim, CompleteRequest, Completion, Current, Engine, Erasure, ErrorKind, Fingerprint,
    Forgetting, Key, KeyHash, Labels, ListQuery, MemoryStore, Nonce, Outcome, Owner, Policy,
    Principal, RunError, Scope, State, Store, StoreDown, Verdict,
};
use semel_sealed::{KeyRing, Seal, Sealed, seals_of};

use crate::harness::{any_key, done, granted, keys, line, request, ring};

type SharedMemory = Arc<MemoryStore>;

fn key() -> Key {
    Scope::new("ns", Principal::Anonymous, "op").key("id").unwrap()
}

/// Runs the operation over `store`, with a policy that runs while a store is down. Returns the result of its caller,
/// and the number of runs.
async fn run_once(store: impl Store) -> (Result<Arc<Outcome>, RunError>, u32) {
    let runs = Arc::new(AtomicU32::new(0));
    let policy = Policy::api().store_down(StoreDown::RunUnprotected);
    let engine = Engine::builder().store(store).policy(policy).build().unwrap();
    let ran = runs.clone();
    let work = move |_| async move {
        ran.fetch_add(1, SeqCst);
        Verdict::Final(Outcome::success("once"))
    };
    let result = engine.run_raw(key(), Fingerprint::of_bytes(b"this"), work).await;
    (result.map(|result| result.value), runs.load(SeqCst))
}

/// Asserts that nothing runs, that the error has these words, and that the record does not change.
async fn assert_refused(store: impl Store + Clone, bare: &SharedMemory, words: &str) {
    let hash = key().hash(bare.info().hash_secret.as_ref());
    let before = bare.get(&hash).await.unwrap().unwrap().record;
    let (result, runs) = run_once(store.clone()).await;
    let RunError::Store(error) = result.unwrap_err() else { panic!("another error") };
    assert_eq!((error.kind(), runs), (ErrorKind::Corrupt, 0), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(store.get(&hash).await.is_err());
    assert_eq!(bare.get(&hash).await.unwrap().unwrap().record, before);
}

/// A store in which the operation has run once, sealed with `ring`.
async fn ran(ring: &KeyRing) -> SharedMemory {
    let bare = SharedMemory::default();
    let (result, runs) = run_once(Sealed::new(bare.clone(), ring.clone())).await;
    assert_eq!((result.unwrap().body(), runs), (&Body::Kept("once".into()), 1));
    bare
}

#[tokio::test]
async fn a_retry_gets_the_sealed_outcome() {
    let ring = ring(&["a"]);
    let bare = ran(&ring).await;
    let (result, runs) = run_once(Sealed::new(bare, ring)).await;
    assert_eq!((result.unwrap().body(), runs), (&Body::Kept("once".into()), 0));
}

#[tokio::test]
async fn a_missing_key_is_an_error_that_names_it() {
    let bare = ran(&ring(&["a"])).await;
    let without = Sealed::new(bare.clone(), ring(&["b"]));
    assert_refused(without, &bare, "sealed with key a, which is not among the seal keys (b)").await;
}

#[tokio::test]
async fn another_key_of_that_name_is_an_error() {
    let bare = ran(&ring(&["a"])).await;
    assert_refused(Sealed::new(bare.clone(), ring(&["a"])), &bare, "does not open with key a")
        .await;
}

/// A process without keys does not replay sealed bytes either.
#[tokio::test]
async fn without_the_layer_sealed_bytes_are_an_error() {
    let bare = ran(&ring(&["a"])).await;
    let (result, runs) = run_once(bare.clone()).await;
    let RunError::Store(error) = result.unwrap_err() else { panic!("another error") };
    assert_eq!((error.kind(), runs), (ErrorKind::Corrupt, 0), "{error}");
    assert!(error.to_string().contains("has no seal keys"), "{error}");
}

/// A store with this outcome for the key.
async fn planted(outcome: Outcome, secret_of: &SharedMemory) -> SharedMemory {
    let secret = secret_of.info().hash_secret;
    let bare = SharedMemory::default();
    assert_eq!(bare.info().hash_secret, secret, "both find the key under one hash");
    done(&*bare, key().hash(secret.as_ref()), Arc::new(outcome)).await;
    bare
}

async fn outcome_of(bare: &SharedMemory, key: &KeyHash) -> Arc<Outcome> {
    bare.get(key).await.unwrap().unwrap().record.outcome.unwrap()
}

fn with_bytes(outcome: &Outcome, change: impl FnOnce(&mut Vec<u8>)) -> Outcome {
    let Body::Kept(bytes) = outcome.body() else { panic!("no bytes") };
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    outcome.clone().with_body(Body::Kept(bytes.into()))
}

#[tokio::test]
async fn changed_or_cut_bytes_are_an_error() {
    let ring = ring(&["a"]);
    let bare = ran(&ring).await;
    let hash = key().hash(bare.info().hash_secret.as_ref());
    let good = outcome_of(&bare, &hash).await;
    let length = with_bytes(&good, |_| {}).size() - Outcome::success("").size();
    assert!(length > 40);
    for (change, words) in [
        (
            Box::new(|bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1) as Box<dyn Fn(&mut _)>,
            "does not open",
        ),
        (Box::new(|bytes: &mut Vec<u8>| bytes[30] ^= 0x80), "does not open"),
        (Box::new(|bytes: &mut Vec<u8>| bytes[3] ^= 1), "does not open"),
        (Box::new(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1)), "does not open"),
        (Box::new(|bytes: &mut Vec<u8>| bytes.truncate(20)), "is damaged"),
        (Box::new(|bytes: &mut Vec<u8>| bytes.clear()), "is damaged"),
        (Box::new(|bytes: &mut Vec<u8>| bytes[2] = b'b'), "sealed with key b, which is not"),
    ] {
        let changed = planted(with_bytes(&good, change), &bare).await;
        assert_refused(Sealed::new(changed.clone(), ring.clone()), &changed, words).await;
    }
}

/// An attacker that can write to the store moves the outcome of one key to another.
#[tokio::test]
async fn an_outcome_of_another_record_is_an_error() {
    let ring = ring(&["a"]);
    let bare = ran(&ring).await;
    let other = any_key();
    done(&Sealed::new(bare.clone(), ring.clone()), other, Arc::new(Outcome::success("theirs")))
        .await;
    let theirs = Arc::unwrap_or_clone(outcome_of(&bare, &other).await);
    let swapped = planted(theirs, &bare).await;
    let words = "moved here from another record";
    assert_refused(Sealed::new(swapped.clone(), ring), &swapped, words).await;
}

#[tokio::test]
async fn an_unsealed_record_is_read_only_if_the_layer_accepts_it() {
    let ring = ring(&["a"]);
    let bare = planted(Outcome::success("clear"), &SharedMemory::default()).await;
    let strict = Sealed::new(bare.clone(), ring);
    assert_refused(strict.clone(), &bare, "its outcome is not sealed").await;
    let (result, runs) = run_once(strict.clone().accept_unsealed(true)).await;
    assert_eq!((result.unwrap().body(), runs), (&Body::Kept("clear".into()), 0));
    let hash = key().hash(bare.info().hash_secret.as_ref());
    let seen = strict.accept_unsealed(true).get(&hash).await.unwrap().unwrap();
    assert_eq!(seen.record.labels.unwrap().id(), "canary-id");
}

/// Accepting unsealed records must not make damaged ones readable.
#[tokio::test]
async fn a_layer_that_accepts_unsealed_records_refuses_damaged_ones() {
    let ring = ring(&["a"]);
    let bare = ran(&ring).await;
    let hash = key().hash(bare.info().hash_secret.as_ref());
    let cut = with_bytes(&*outcome_of(&bare, &hash).await, |bytes| bytes.truncate(30));
    let changed = planted(cut, &bare).await;
    let store = Sealed::new(changed.clone(), ring).accept_unsealed(true);
    assert_refused(store, &changed, "outcome").await;
}

#[tokio::test]
async fn every_reply_with_an_outcome_opens_it_or_fails() {
    let ring_a = ring(&["a"]);
    let bare = SharedMemory::default();
    let store = Sealed::new(bare.clone(), ring_a.clone());
    let key = any_key();
    let claim = request(key);
    let late = granted(&store, &claim).await.owner;
    let outcome = Arc::new(Outcome::failure("declined", "by the bank"));
    store.complete(&CompleteRequest { owner: late, outcome: outcome.clone() }).await.unwrap();
    let stranger = Owner { nonce: Nonce::random(), ..late };
    let complete = CompleteRequest { owner: stranger, outcome: Arc::new(Outcome::success("late")) };
    let Completion::Superseded(Current::Completed(replay)) =
        store.complete(&complete).await.unwrap()
    else {
        panic!("not superseded")
    };
    assert_eq!(replay.outcome, outcome);
    let Ok(Claim::Replay(replay)) = store.claim_many(&[request(key)]).await.remove(0) else {
        panic!("no replay")
    };
    assert_eq!(replay.outcome, outcome);
    let listed = store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(listed[0].outcome.as_ref(), Some(&outcome));
    let without = Sealed::new(bare, ring(&["b"]));
    for error in [
        without.complete(&complete).await.unwrap_err(),
        without.complete_many(&[complete]).await.remove(0).unwrap_err(),
        without.claim_many(&[request(key)]).await.remove(0).unwrap_err(),
        without.list(&ListQuery::default()).await.unwrap_err(),
        without.get(&key).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[tokio::test]
async fn a_record_that_does_not_open_hides_no_others_in_a_list() {
    let bare = SharedMemory::default();
    let (mine, others) = (ring(&["a"]), ring(&["b"]));
    let mut keys = Vec::new();
    for _ in 0..3 {
        keys.push(any_key());
        let store = Sealed::new(bare.clone(), mine.clone());
        done(&store, keys[keys.len() - 1], Arc::new(Outcome::success("mine"))).await;
        let other = Sealed::new(bare.clone(), others.clone());
        done(&other, any_key(), Arc::new(Outcome::success("another's"))).await;
    }
    keys.sort_unstable();
    let store = Sealed::new(bare, mine);
    let listed = store.list(&ListQuery { limit: 3, ..ListQuery::default() }).await.unwrap();
    assert_eq!(listed.iter().map(|record| record.key).collect::<Vec<_>>(), keys);
}

/// On one full page, all records but one open, and none has the namespace of the query.
#[tokio::test]
async fn a_namespace_without_keys_is_empty_beside_a_record_that_does_not_open() {
    let bare = SharedMemory::default();
    let store = Sealed::new(bare.clone(), ring(&["a"]));
    for _ in 0..499 {
        granted(&store, &request(any_key())).await;
    }
    granted(&Sealed::new(bare, ring(&["b"])), &request(any_key())).await;
    let query = ListQuery { namespace: Some("rare".to_owned()), ..ListQuery::default() };
    assert_eq!(store.list(&query).await.unwrap(), []);
}

#[tokio::test]
async fn operators_erase_and_forget_records_that_no_key_opens() {
    let bare = SharedMemory::default();
    let keys = [any_key(), any_key()];
    for key in keys {
        let store = Sealed::new(bare.clone(), ring(&["a"]));
        done(&store, key, Arc::new(Outcome::success("done"))).await;
    }
    let without = Sealed::new(bare, ring(&["b"]));
    assert_eq!(without.erase(&keys[0]).await.unwrap(), Erasure::Erased);
    let record = without.get(&keys[0]).await.unwrap().unwrap().record;
    assert_eq!((record.state, record.outcome, record.labels), (State::Erased, None, None));
    assert_eq!(without.forget(&keys[1]).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(without.get(&keys[1]).await.unwrap(), None);
}

#[tokio::test]
async fn a_list_filters_by_namespace_although_the_store_sees_none() {
    let store = Sealed::new(SharedMemory::default(), ring(&["a"]));
    for number in 0..700 {
        let namespace = if number % 100 == 0 { "rare" } else { "common" };
        let mut claim = request(any_key());
        claim.labels = Some(Labels::new(namespace, "", "op", &number.to_string()));
        granted(&store, &claim).await;
    }
    let rare = ListQuery { namespace: Some("rare".into()), ..ListQuery::default() };
    let all = store.list(&rare).await.unwrap();
    assert_eq!(all.len(), 7);
    assert!(all.iter().all(|record| record.labels.as_ref().unwrap().namespace() == "rare"));
    let page = ListQuery { limit: 4, ..rare };
    let first = store.list(&page).await.unwrap();
    let rest = ListQuery { after: Some(first[3].key), ..page };
    assert_eq!([first, store.list(&rest).await.unwrap()].concat(), all);
}

#[tokio::test]
async fn a_record_says_which_keys_it_needs() {
    let (a, b) = (line("a"), line("b"));
    let ring = KeyRing::new(keys(&[&a]));
    let bare = SharedMemory::default();
    let store = Sealed::new(bare.clone(), ring.clone());
    let key = any_key();
    let owner = granted(&store, &request(key)).await.owner;
    ring.rotate(keys(&[&b, &a])).unwrap();
    let outcome = Arc::new(Outcome::success("done"));
    store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
    let record = bare.get(&key).await.unwrap().unwrap().record;
    assert_eq!(seals_of(&record).ids(), ["a", "b"]);
    assert!(!seals_of(&record).has(&Seal::Clear));
    assert!(store.open(record).is_ok());
}
