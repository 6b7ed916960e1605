//! A server that did not answer for longer than a lease, and then processes the claim of another process before the
//! steps of an owner that is alive (T5a).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, Completion, Lease, OnLostOwner, RenewRequest, Renewal, Store, Terms,
};
use semel_faults::Fault;
use tokio::time::sleep;

use super::subject::{BOUND, StoreUnderTest, claim, complete, granted, outcome, rival};

/// The grace period is a third of it, which is enough for a busy machine.
const LEASE: Duration = Duration::from_secs(6);
/// NATS observes a lease for a tenth longer than it lasts.
const OBSERVED: Duration = Duration::from_millis(6_700);

/// An owner and another process, each with a proxy to the same server.
struct StalledServer {
    owner: StoreUnderTest,
    owner_store: Arc<dyn Store>,
    other: StoreUnderTest,
    other_store: Arc<dyn Store>,
    request: ClaimRequest,
    lease: Lease,
}

impl StalledServer {
    /// The owner claims a key, and the other process sees that. Then the server answers neither for longer than the
    /// lease.
    async fn new(subject: StoreUnderTest, on_lost_owner: OnLostOwner) -> Self {
        let owner = subject.patient();
        let other = owner.of_another_process();
        let (owner_store, other_store) = (owner.store(1).await, other.store(1).await);
        let request = claim();
        let terms = Terms { lease: LEASE.into(), on_lost_owner, ..request.terms };
        let request = ClaimRequest { terms, ..request };
        let lease = granted(&request, owner_store.claim(&request).await.unwrap());
        let seen = other_store.claim(&rival(&request)).await.unwrap();
        assert!(matches!(seen, Claim::Busy { .. }), "{seen:?}");
        owner.proxy.set(Fault::Hold);
        other.proxy.set(Fault::Hold);
        Self { owner, owner_store, other, other_store, request, lease }
    }

    /// Sends the claim of the other process, and lets the server answer it first when the lease is over.
    async fn claim_first(&self) -> Claim {
        let (store, request) = (self.other_store.clone(), rival(&self.request));
        let claiming = tokio::spawn(async move { store.claim(&request).await });
        sleep(OBSERVED).await;
        self.other.proxy.set(Fault::None);
        claiming.await.unwrap().unwrap()
    }
}

/// The work is done, and its outcome waits in the stalled server.
pub(crate) async fn a_claim_that_overtakes_a_completion_takes_nothing_over(
    subject: StoreUnderTest,
) {
    overtakes_a_completion(subject, OnLostOwner::Rerun).await;
}

/// In hold mode the key does not become Unknown, either.
pub(crate) async fn a_claim_that_overtakes_a_completion_holds_nothing(subject: StoreUnderTest) {
    overtakes_a_completion(subject, OnLostOwner::Hold).await;
}

async fn overtakes_a_completion(subject: StoreUnderTest, on_lost_owner: OnLostOwner) {
    let server = StalledServer::new(subject, on_lost_owner).await;
    let (store, done) = (server.owner_store.clone(), complete(&server.lease));
    let completing = tokio::spawn(async move { store.complete(&done).await });
    let overtaking = server.claim_first().await;
    server.owner.proxy.set(Fault::None);
    assert!(
        matches!(overtaking, Claim::Busy { .. }),
        "a living owner lost its key: {overtaking:?}"
    );
    assert_eq!(completing.await.unwrap().unwrap(), Completion::Recorded);
    match server.other_store.claim(&rival(&server.request)).await.unwrap() {
        Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&server.request.key)),
        reply => panic!("expected the outcome of the owner, got {reply:?}"),
    }
}

/// The work still runs, and its renewal waits in the stalled server.
pub(crate) async fn a_claim_that_overtakes_a_renewal_takes_nothing_over(subject: StoreUnderTest) {
    let server = StalledServer::new(subject, OnLostOwner::Rerun).await;
    let renewal = RenewRequest::new(server.lease.owner, Duration::from_secs(3600));
    let store = server.owner_store.clone();
    let renewing = tokio::spawn(async move { store.renew(&renewal).await });
    let overtaking = server.claim_first().await;
    server.owner.proxy.set(Fault::None);
    assert!(
        matches!(overtaking, Claim::Busy { .. }),
        "a living owner lost its key: {overtaking:?}"
    );
    assert_eq!(renewing.await.unwrap().unwrap(), Renewal::Extended);
    let reply = server.other_store.claim(&rival(&server.request)).await.unwrap();
    assert!(matches!(reply, Claim::Busy { .. }), "{reply:?}");
    let done = complete(&server.lease);
    assert_eq!(server.owner_store.complete(&done).await.unwrap(), Completion::Recorded);
}

/// The owner is dead: its key is free after the lease and a third of it.
pub(crate) async fn the_key_of_an_owner_that_stays_silent_is_taken_over_after_the_grace_period(
    subject: StoreUnderTest,
) {
    let server = StalledServer::new(subject, OnLostOwner::Rerun).await;
    let overtaking = server.claim_first().await;
    let (contested_at, grace) = (Instant::now(), LEASE / 3);
    assert!(
        matches!(overtaking, Claim::Busy { remaining } if remaining <= grace),
        "{overtaking:?}"
    );
    let request = rival(&server.request);
    let lease = loop {
        match server.other_store.claim(&request).await.unwrap() {
            Claim::Granted(lease) => break lease,
            Claim::Busy { .. } => sleep(Duration::from_millis(20)).await,
            reply => panic!("{reply:?}"),
        }
        assert!(contested_at.elapsed() < BOUND, "the key of a dead owner is never free");
    };
    assert!(lease.takeover && lease.owner.token == 2, "{lease:?}");
    // A request is under way for some time before its reply comes.
    let least = grace - Duration::from_millis(100);
    assert!(contested_at.elapsed() >= least, "taken after {:?}", contested_at.elapsed());
}
