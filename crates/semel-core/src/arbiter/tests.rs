//! What an arbiter promises while one of its two stores is slow, gone or late.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::*;
use crate::{
    Claim, ClaimRequest, CompleteRequest, Completion, Decision, ErrorKind, Fingerprint, Lease,
    ManualClock, MemoryStore, Nonce, OnLostOwner, Outcome, Replay, ResolveRequest, Span, Stats,
    StoreInfo, Terms, sync::Mutex,
};

const RETENTION: Duration = Duration::from_secs(3600);

/// How a front behaves.
const UP: u8 = 0;
const DOWN: u8 = 1;
const SILENT: u8 = 2;

/// A front that can be switched off, and counts who asks.
#[derive(Clone, Debug)]
struct Shaky {
    shelf: MemoryShelf,
    mode: Arc<AtomicU8>,
    asked: Arc<AtomicUsize>,
}

impl Shaky {
    async fn trouble(&self) -> Result<()> {
        self.asked.fetch_add(1, SeqCst);
        match self.mode.load(SeqCst) {
            UP => Ok(()),
            DOWN => Err(Error::new(ErrorKind::Unavailable, "the front is gone")),
            _ => pending().await,
        }
    }
}

#[async_trait]
impl Shelf for Shaky {
    fn name(&self) -> &'static str {
        "shaky"
    }
    fn hints(&self) -> Option<Hints> {
        self.shelf.hints()
    }
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Shelved>>> {
        match self.trouble().await {
            Ok(()) => self.shelf.look(keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn put(&self, copies: &[Shelved], asked: Instant) -> Vec<Result<()>> {
        match self.trouble().await {
            Ok(()) => self.shelf.put(copies, asked).await,
            Err(error) => copies.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.trouble().await?;
        self.shelf.remove(key).await
    }
}

/// An authority that can be switched off.
#[derive(Clone, Debug)]
struct Judge {
    store: MemoryStore,
    down: Arc<AtomicBool>,
    /// Another node forgets key 1 right before this one does.
    is_forestalled: Arc<AtomicBool>,
    /// Another node records an outcome right before this one looks for it in vain.
    late: Arc<Mutex<Option<Shelved>>>,
    front: MemoryShelf,
    /// What it was asked, and whether the front had a copy of key 1 then.
    asked: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

trait Fails {
    fn failed() -> Self;
}

impl<T> Fails for Result<T> {
    fn failed() -> Self {
        Err(Error::new(ErrorKind::Unavailable, "the authority is gone"))
    }
}

impl<T> Fails for Vec<Result<T>> {
    fn failed() -> Self {
        // Every batch of these tests has two.
        vec![Result::failed(), Result::failed()]
    }
}

macro_rules! judged {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Judge {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $answer {
                let copied = self.front.look(&[key(1)]).await.pop().unwrap().unwrap().is_some();
                self.asked.lock().push((stringify!($step), copied));
                let late = self.late.lock().take();
                if let Some(late) = late {
                    self.front.put(&[late], Instant::now()).await;
                }
                if stringify!($step) == "forget" && self.is_forestalled.load(SeqCst) {
                    assert_eq!(self.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
                }
                match self.down.load(SeqCst) {
                    true => Fails::failed(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(judged);

struct Scene {
    store: Arbiter<Shaky, Judge>,
    front: Shaky,
    judge: Judge,
    clock: ManualClock,
}

fn scene() -> Scene {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let shelf = MemoryShelf::with_clock(clock.clone());
    let judge = Judge {
        store,
        down: Arc::default(),
        is_forestalled: Arc::default(),
        late: Arc::default(),
        front: shelf.clone(),
        asked: Arc::default(),
    };
    let front = Shaky { shelf, mode: Arc::default(), asked: Arc::default() };
    Scene { store: Arbiter::new(front.clone(), judge.clone()), front, judge, clock }
}

fn key(byte: u8) -> KeyHash {
    KeyHash::from_bytes([byte; 32])
}

fn request(byte: u8, asked: &str) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    ClaimRequest {
        key: key(byte),
        fingerprint: Fingerprint::of_bytes(asked.as_bytes()),
        nonce: Nonce::random(),
        terms,
        labels: None,
    }
}

fn completion(lease: &Lease, said: &str) -> CompleteRequest {
    let outcome = Arc::new(Outcome::success(said.to_owned()));
    CompleteRequest { owner: lease.owner, outcome }
}

impl Scene {
    async fn granted(&self, byte: u8) -> Lease {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    async fn complete(&self, byte: u8) {
        let lease = self.granted(byte).await;
        let said = self.store.complete(&completion(&lease, "done")).await.unwrap();
        assert_eq!(said, Completion::Recorded);
    }

    async fn replay(&self, byte: u8) -> Replay {
        match self.store.claim(&request(byte, "a")).await.unwrap() {
            Claim::Replay(replay) => replay,
            claim => panic!("{claim:?}"),
        }
    }

    fn set(&self, mode: u8) {
        self.front.mode.store(mode, SeqCst);
    }

    fn stop_judge(&self, down: bool) {
        self.judge.down.store(down, SeqCst);
    }

    async fn is_copied(&self, byte: u8) -> bool {
        self.front.shelf.look(&[key(byte)]).await.pop().unwrap().unwrap().is_some()
    }
}

#[tokio::test]
async fn a_replay_from_the_front_is_the_authoritys() {
    let scene = scene();
    scene.complete(1).await;
    scene.clock.advance(Duration::from_secs(5));
    let truth = match scene.judge.claim(&request(1, "a")).await.unwrap() {
        Claim::Replay(replay) => replay,
        claim => panic!("{claim:?}"),
    };
    scene.stop_judge(true);
    assert_eq!(scene.replay(1).await, truth);
}

#[tokio::test]
async fn a_replay_of_the_authority_brings_the_front_its_copy() {
    let scene = scene();
    scene.set(DOWN);
    scene.complete(1).await;
    scene.set(UP);
    assert!(!scene.is_copied(1).await);
    scene.clock.advance(Duration::from_secs(5));
    let first = scene.replay(1).await;
    scene.stop_judge(true);
    assert_eq!(scene.replay(1).await, first);
}

#[tokio::test]
async fn without_the_authority_only_replays_are_answered() {
    let scene = scene();
    scene.complete(1).await;
    scene.stop_judge(true);
    scene.replay(1).await;
    let new = scene.store.claim(&request(2, "a")).await.unwrap_err();
    assert_eq!(new.kind(), ErrorKind::Unavailable);
    let other = scene.store.claim(&request(1, "b")).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unavailable, "the front does not know what is pinned");
    let both = [request(1, "a"), request(2, "a"), request(3, "a")];
    let [replay, new, third] = scene.store.claim_many(&both).await.try_into().unwrap();
    assert!(matches!(replay, Ok(Claim::Replay(_))));
    assert!(new.is_err() && third.is_err());
}

#[tokio::test]
async fn without_the_front_nothing_fails_and_soon_nobody_asks_it() {
    let scene = scene();
    scene.set(DOWN);
    for byte in 1..=20 {
        scene.complete(byte).await;
        scene.replay(byte).await;
    }
    assert!(scene.front.asked.load(SeqCst) < 10, "a front that is gone costs every call");
    scene.set(UP);
    while !scene.is_copied(1).await {
        scene.replay(1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_front_that_says_nothing_is_not_waited_for() {
    let scene = scene();
    scene.set(SILENT);
    let began = Instant::now();
    for byte in 1..=50 {
        scene.complete(byte).await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_copy_ends_with_its_record() {
    let scene = scene();
    scene.complete(1).await;
    scene.clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(scene.replay(1).await.remaining, Duration::from_millis(1));
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.granted(1).await.attempt, 1);
}

#[tokio::test]
async fn something_else_that_is_asked_is_the_authoritys_to_answer() {
    let scene = scene();
    scene.complete(1).await;
    assert_eq!(scene.store.claim(&request(1, "b")).await.unwrap(), Claim::Mismatch);
}

#[tokio::test]
async fn of_two_outcomes_of_one_owner_the_first_is_replayed() {
    let scene = scene();
    let lease = scene.granted(1).await;
    // The reply to the first is lost on its way through the arbiter.
    scene.judge.complete(&completion(&lease, "first")).await.unwrap();
    scene.stop_judge(true);
    scene.store.complete(&completion(&lease, "first")).await.unwrap_err();
    scene.stop_judge(false);
    scene.store.complete(&completion(&lease, "second")).await.unwrap();
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("first"));
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("first"));
}

#[tokio::test]
async fn a_lost_owner_that_was_replaced_puts_nothing() {
    let scene = scene();
    let lost = scene.granted(1).await;
    scene.clock.advance(Duration::from_secs(31));
    scene.complete_taken_over(1).await;
    let said = scene.store.complete(&completion(&lost, "late")).await.unwrap();
    assert!(matches!(said, Completion::Superseded(_)));
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("winner"));
}

impl Scene {
    async fn complete_taken_over(&self, byte: u8) {
        let lease = self.granted(byte).await;
        self.store.complete(&completion(&lease, "winner")).await.unwrap();
    }
}

#[tokio::test]
async fn what_an_operator_erases_or_forgets_is_gone_from_both() {
    let scene = scene();
    scene.complete(1).await;
    scene.complete(2).await;
    assert_eq!(scene.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    assert_eq!(scene.store.forget(&key(2)).await.unwrap(), Forgetting::Forgotten);
    scene.granted(2).await;
    assert_eq!(scene.store.forget(&key(3)).await.unwrap(), Forgetting::Missing);
}

#[tokio::test]
async fn half_an_erasure_says_so_and_is_finished_by_another() {
    let scene = scene();
    scene.complete(1).await;
    scene.set(DOWN);
    let half = scene.store.erase(&key(1)).await.unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Unavailable);
    for word in ["erased in memory", "shaky has not confirmed", "repeat"] {
        assert!(half.to_string().contains(word), "{half}");
    }
    scene.set(UP);
    scene.replay(1).await;
    assert_eq!(scene.store.erase(&key(1)).await.unwrap(), Erasure::Erased);
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

#[tokio::test]
async fn half_a_forgetting_is_finished_when_the_authority_has_nothing_left_to_do() {
    let scene = scene();
    scene.complete(1).await;
    scene.set(DOWN);
    let half = scene.store.forget(&key(1)).await.unwrap_err();
    assert!(half.to_string().contains("forgotten in memory"), "{half}");
    let again = scene.store.forget(&key(1)).await.unwrap_err();
    assert!(again.to_string().contains("not there any more in memory"), "{again}");
    scene.set(UP);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    scene.granted(1).await;
}

/// One takes the copy, the other the record: the key was forgotten once.
#[tokio::test]
async fn of_two_who_forget_a_key_at_once_one_finds_it_missing() {
    let scene = scene();
    scene.complete(1).await;
    scene.judge.is_forestalled.store(true, SeqCst);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!scene.is_copied(1).await);
}

/// Nor is a copy counted whose record somebody else took.
#[tokio::test]
async fn a_copy_that_comes_while_a_key_is_forgotten_is_not_what_was_forgotten() {
    let scene = scene();
    let copy = scene.slow_read(1).await;
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Forgotten);
    scene.clock.advance(Shelved::MARK);
    *scene.judge.late.lock() = Some(copy);
    assert_eq!(scene.store.forget(&key(1)).await.unwrap(), Forgetting::Missing);
    assert!(!scene.is_copied(1).await);
}

#[tokio::test]
async fn what_the_authority_did_not_confirm_is_not_removed_in_front() {
    let scene = scene();
    scene.complete(1).await;
    scene.stop_judge(true);
    scene.store.erase(&key(1)).await.unwrap_err();
    scene.store.forget(&key(1)).await.unwrap_err();
    scene.replay(1).await;
}

/// A claim that is sent again with other terms leaves open which ones count, whatever strangers did meanwhile.
#[tokio::test]
async fn a_strangers_release_is_no_owners() {
    let scene = scene();
    let first = request(1, "a");
    let lease = match scene.store.claim(&first).await.unwrap() {
        Claim::Granted(lease) => lease,
        claim => panic!("{claim:?}"),
    };
    let stranger = crate::Owner { key: key(2), ..lease.owner };
    let release = crate::ReleaseRequest { owner: stranger, effect: crate::Effect::None };
    scene.store.release(&release).await.unwrap();
    let longer = Terms { retention: Span::from_millis(7_200_000), ..first.terms };
    scene.store.claim(&ClaimRequest { terms: longer, ..first }).await.unwrap();
    scene.store.complete(&completion(&lease, "done")).await.unwrap();
    assert_eq!(scene.replay(1).await.remaining, RETENTION);
}

/// From the moment the key can run anew, nobody is told of what was forgotten.
#[tokio::test]
async fn a_copy_is_gone_before_its_record() {
    let scene = scene();
    scene.complete(1).await;
    scene.store.forget(&key(1)).await.unwrap();
    assert!(scene.judge.asked.lock().contains(&("get", true)));
    assert!(scene.judge.asked.lock().contains(&("forget", false)));
}

#[tokio::test]
async fn a_copy_is_gone_before_its_record_is_erased() {
    let scene = scene();
    scene.complete(1).await;
    scene.store.erase(&key(1)).await.unwrap();
    assert!(scene.judge.asked.lock().contains(&("erase", false)));
}

#[tokio::test]
async fn a_key_that_may_not_be_forgotten_stays_as_it_is() {
    let scene = scene();
    scene.granted(1).await;
    scene.set(DOWN);
    let refused = scene.store.forget(&key(1)).await.unwrap();
    assert_eq!(refused, Forgetting::Refused(crate::State::InProgress));
}

#[tokio::test]
async fn a_slow_node_does_not_put_back_what_was_removed() {
    let scene = scene();
    let asked = Instant::now();
    let read = scene.slow_read(1).await;
    scene.store.erase(&key(1)).await.unwrap();
    scene.front.put(std::slice::from_ref(&read), asked).await;
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    // Not even when the mark is gone: by then it comes too late.
    scene.clock.advance(Shelved::MARK);
    let long_ago = asked.checked_sub(Shelved::LATEST + Duration::from_secs(1)).unwrap();
    scene.front.put(&[read], long_ago).await;
    assert_eq!(scene.store.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
}

impl Scene {
    /// What a node would put that asked the authority and then stood still.
    async fn slow_read(&self, byte: u8) -> Shelved {
        let lease = self.granted(byte).await;
        self.judge.complete(&completion(&lease, "done")).await.unwrap();
        let asked = request(byte, "a");
        match self.judge.claim(&asked).await.unwrap() {
            Claim::Replay(replay) => copy::Original::replayed(&asked, &replay),
            claim => panic!("{claim:?}"),
        }
    }
}

#[tokio::test]
async fn what_an_operator_decides_is_replayed_and_copied() {
    let scene = scene();
    let stuck = scene.granted(1).await;
    scene.clock.advance(Duration::from_secs(31));
    let decided = ResolveRequest {
        key: key(1),
        seen_nonce: Some(stuck.owner.nonce),
        seen_token: stuck.owner.token,
        decision: Decision::Complete(Arc::new(Outcome::success("decided"))),
    };
    scene.store.resolve(&decided).await.unwrap();
    let said = scene.store.complete(&completion(&stuck, "late")).await.unwrap();
    assert!(matches!(said, Completion::Superseded(_)));
    for _ in 0..2 {
        assert_eq!(*scene.replay(1).await.outcome, Outcome::success("decided"));
    }
    assert!(scene.is_copied(1).await);
}

#[tokio::test]
async fn a_mixed_up_or_foreign_copy_answers_nothing() {
    let scene = scene();
    scene.complete(1).await;
    let copy = scene.front.shelf.look(&[key(1)]).await.pop().unwrap().unwrap().unwrap();
    let other = Shelved { record: crate::Record { key: key(2), ..copy.record.clone() }, ..copy };
    assert!(copy::answer(&other, &request(1, "a")).is_none());
    let open = crate::Record { state: crate::State::Open, key: key(1), ..other.record.clone() };
    assert!(copy::answer(&Shelved { record: open, ..other }, &request(1, "a")).is_none());
}

#[tokio::test]
async fn news_of_both_is_heard() {
    let scene = scene();
    let hints = scene.store.info().hints.unwrap();
    let mut listener = hints.listen(&key(1));
    scene.front.shelf.remove(&key(1)).await.unwrap();
    listener.changed().await;
}
