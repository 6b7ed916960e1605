//! Singleflight: of the concurrent callers of one key in one process, the leader calls the store and runs the work,
//! and each follower waits for the leader's result.
//!
//! An in-flight call is identified by key and fingerprint together. A request with another fingerprint is never
//! answered from it; the store answers that request. Followers get the leader's result even if it is a failure; only a
//! request that comes after the result starts the next call, so a failure causes no stampede.
//!
//! A call whose lease is lost is removed from the map before it has a result: its work may hang for ever, and the store
//! decides which owner may take over, in this process as in any other. So one id may have two unfinished calls, of
//! which the map has the newer one. The limit of followers per key holds for each of them.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{RawAnswer, RunError};
use crate::{
    Error, ErrorKind, Fingerprint, KeyHash,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        bug,
        time::{Instant, timeout_at},
        watch,
    },
    telemetry::{self, GaugeCount},
};

/// What the leader and all followers of a call get in the end.
pub(super) type CallResult = Result<RawAnswer, RunError>;

type CallId = (KeyHash, Fingerprint);

type CallMap = HashMap<CallId, Arc<InFlightCall>>;

type CallShard = Mutex<CallMap>;

const SHARDS: usize = 64;

/// How many callers may follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowerLimits {
    pub(super) per_key: usize,
    pub(super) in_all: usize,
}

/// All in-flight calls of an engine.
#[derive(Debug)]
pub(super) struct InFlightCalls {
    shards: Box<[CallShard]>,
    followers: AtomicUsize,
    limits: FollowerLimits,
}

#[derive(Debug)]
struct InFlightCall {
    id: CallId,
    phase: watch::Sender<CallPhase>,
    /// Incremented only under the shard's lock.
    followers: AtomicUsize,
}

#[derive(Clone, Debug)]
enum CallPhase {
    /// The claim was sent to the store.
    Claiming,
    /// The work runs in this process, under a lease of this length.
    Running(Duration),
    /// Another process owns the key, for this long at least.
    OwnedElsewhere(Duration),
    Finished(CallResult),
}

/// What a caller of [`InFlightCalls::join`] has to do.
pub(super) enum CallRole {
    /// No call with this id is in flight: the caller claims the key.
    Leader(Leader),
    /// The caller waits for the leader's result.
    Follower(ResultReceiver),
    /// The caller gets no result, since too many callers wait already.
    TooManyFollowers,
}

/// The leader's side of a call. Dropped without [`Leader::finish`], the call ends with an error.
#[derive(Debug)]
pub(super) struct Leader {
    calls: Arc<InFlightCalls>,
    call: Arc<InFlightCall>,
    is_finished: bool,
}

/// Lets a leader subscribe to its own call later, if the call does not finish at once. Without a receiver, finishing a
/// call sends nothing.
#[derive(Debug)]
pub(super) struct LeaderSubscription(Arc<InFlightCall>);

/// The entry of a call in the map, for code that removes it before the call has finished.
#[derive(Debug)]
pub(super) struct CallEntry {
    calls: Arc<InFlightCalls>,
    id: CallId,
    /// Weak: the work may keep this entry after the call has finished.
    call: Weak<InFlightCall>,
}

/// Receives the result of a call.
#[derive(Debug)]
pub(super) struct ResultReceiver {
    phase: watch::Receiver<CallPhase>,
    kind: ReceiverKind,
    _slot: Option<FollowerSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ReceiverKind {
    /// Waits as long as its own work runs.
    Leader,
    /// The same item again in the leader's batch: waits as long as the leader, but its work does not run.
    Duplicate,
    Follower,
}

/// One of the followers that the limits allow.
#[derive(Debug)]
struct FollowerSlot {
    calls: Arc<InFlightCalls>,
    /// Weak, so that the channel closes when the leader is gone.
    call: Weak<InFlightCall>,
    _gauge: GaugeCount,
}

impl InFlightCalls {
    pub(super) fn new(limits: FollowerLimits) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, followers: AtomicUsize::new(0), limits })
    }

    /// Joins the call with this id, or starts it.
    pub(super) fn join(self: &Arc<Self>, id: CallId) -> CallRole {
        let mut shard = self.shard(&id).lock();
        match shard.entry(id) {
            Entry::Vacant(vacant) => {
                let phase = watch::Sender::new(CallPhase::Claiming);
                let call = Arc::new(InFlightCall { id, phase, followers: AtomicUsize::new(0) });
                vacant.insert(call.clone());
                CallRole::Leader(Leader { calls: self.clone(), call, is_finished: false })
            }
            Entry::Occupied(call) => self.follow(call.get()),
        }
    }

    fn follow(self: &Arc<Self>, call: &Arc<InFlightCall>) -> CallRole {
        if call.followers.load(Relaxed) >= self.limits.per_key || !self.reserve_follower() {
            return CallRole::TooManyFollowers;
        }
        call.followers.fetch_add(1, Relaxed);
        let slot = FollowerSlot {
            calls: self.clone(),
            call: Arc::downgrade(call),
            _gauge: GaugeCount::new(telemetry::name::WAITERS),
        };
        let phase = call.phase.subscribe();
        CallRole::Follower(ResultReceiver {
            phase,
            kind: ReceiverKind::Follower,
            _slot: Some(slot),
        })
    }

    /// Compares and increments in one step: callers join other calls at the same time.
    fn reserve_follower(&self) -> bool {
        bug!(FollowerLimitCheckedBeforeCounting => {
            let free = self.followers.load(Relaxed) < self.limits.in_all;
            self.followers.fetch_add(usize::from(free), Relaxed);
            return free;
        });
        let one_more = |followers| (followers < self.limits.in_all).then_some(followers + 1);
        self.followers.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    fn remove(&self, id: CallId, call: *const InFlightCall) {
        remove(&mut self.shard(&id).lock(), id, call);
    }

    fn shard(&self, (key, _): &CallId) -> &CallShard {
        &self.shards[usize::from(key.as_bytes()[0]) % SHARDS]
    }
}

impl Drop for FollowerSlot {
    fn drop(&mut self) {
        self.calls.followers.fetch_sub(1, Relaxed);
        if let Some(call) = self.call.upgrade() {
            bug!(FollowerSlotNotReturned => { return });
            bug!(FollowerSlotReturnedInTwoSteps => {
                let others = call.followers.load(Relaxed).saturating_sub(1);
                call.followers.store(others, Relaxed);
                return;
            });
            call.followers.fetch_sub(1, Relaxed);
        }
    }
}

impl Leader {
    /// For a leader that subscribes only if it has to wait.
    pub(super) fn subscription(&self) -> LeaderSubscription {
        LeaderSubscription(self.call.clone())
    }

    pub(super) fn subscribe(&self) -> ResultReceiver {
        self.subscription().subscribe()
    }

    /// For the signal that the lease is lost.
    pub(super) fn entry(&self) -> CallEntry {
        let call = Arc::downgrade(&self.call);
        CallEntry { calls: self.calls.clone(), id: self.call.id, call }
    }

    /// The work runs in this process.
    pub(super) fn set_running(&self, lease: Duration) {
        self.call.phase.send_if_modified(|phase| {
            // Wakes receivers only if the leader's wait was limited before and no longer is.
            let was_elsewhere = matches!(phase, CallPhase::OwnedElsewhere(_));
            *phase = CallPhase::Running(lease);
            was_elsewhere
        });
    }

    /// Another process owns the key: from now on the leader's wait is limited too.
    pub(super) fn set_owned_elsewhere(&self, remaining: Duration) {
        self.call.phase.send_if_modified(|phase| {
            let is_new = !matches!(phase, CallPhase::OwnedElsewhere(_));
            *phase = CallPhase::OwnedElsewhere(remaining);
            is_new
        });
    }

    /// Ends the call: the next request starts a new one, and all receivers get `result`.
    pub(super) fn finish(mut self, result: CallResult) -> CallResult {
        self.send_result(result.clone());
        result
    }

    /// Ends the call if no caller waits for its result any more. Joining takes the same lock.
    pub(super) fn finish_if_abandoned(mut self) -> Option<Self> {
        bug!(AbandonedCheckedWithoutLock => {
            if self.call.phase.receiver_count() > 0 {
                return Some(self);
            }
            self.calls.shard(&self.call.id).lock().remove(&self.call.id);
            self.is_finished = true;
            return None;
        });
        let mut shard = self.calls.shard(&self.call.id).lock();
        if self.call.phase.receiver_count() > 0 {
            drop(shard);
            return Some(self);
        }
        remove(&mut shard, self.call.id, Arc::as_ptr(&self.call));
        drop(shard);
        self.is_finished = true;
        None
    }

    fn send_result(&mut self, result: CallResult) {
        bug!(ResultSentBeforeEntryRemoved => {
            self.call.phase.send_replace(CallPhase::Finished(result.clone()));
        });
        // The entry is removed before followers get the result: a request that comes after the result has to start
        // the next call.
        self.calls.remove(self.call.id, Arc::as_ptr(&self.call));
        self.is_finished = true;
        if self.call.phase.receiver_count() > 0 {
            self.call.phase.send_replace(CallPhase::Finished(result));
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let error = match &*self.call.phase.borrow() {
            CallPhase::Running(_) | CallPhase::Finished(_) => RunError::Interrupted,
            CallPhase::Claiming | CallPhase::OwnedElsewhere(_) => RunError::Store(Error::new(
                ErrorKind::Closed,
                "the runtime was shut down before the work began",
            )),
        };
        self.send_result(Err(error));
    }
}

impl CallEntry {
    /// Removes the call from the map, so that the next request starts a new one. Its receivers still get its result.
    pub(super) fn remove(&self) {
        // The weak pointer keeps the address from being used again.
        self.calls.remove(self.id, self.call.as_ptr());
    }
}

impl LeaderSubscription {
    pub(super) fn subscribe(&self) -> ResultReceiver {
        ResultReceiver { phase: self.0.phase.subscribe(), kind: ReceiverKind::Leader, _slot: None }
    }
}

impl ResultReceiver {
    /// For an item that occurs again in the leader's own batch.
    pub(super) fn for_duplicate(self) -> Self {
        Self { kind: ReceiverKind::Duplicate, ..self }
    }

    /// Waits for the result: the leader as long as its own work runs, a follower for `wait`.
    pub(super) async fn result(mut self, wait: Duration) -> CallResult {
        let (kind, deadline) = (self.kind, Instant::now() + wait);
        let mut timed_out = false;
        loop {
            let retry_after = match &*self.phase.borrow_and_update() {
                CallPhase::Finished(result) => return result_for(kind, result.clone()),
                CallPhase::Claiming | CallPhase::Running(_) if kind != ReceiverKind::Follower => {
                    None
                }
                CallPhase::Claiming => Some(Duration::from_secs(1)),
                CallPhase::Running(left) | CallPhase::OwnedElsewhere(left) => Some(*left),
            };
            let changed = match retry_after {
                Some(retry_after) if timed_out => return Err(RunError::Busy { retry_after }),
                Some(_) => timeout_at(deadline, self.phase.changed()).await,
                None => Ok(self.phase.changed().await),
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(RunError::Interrupted),
                Err(_) => timed_out = true,
            }
        }
    }
}

/// Removes exactly this call. If its lease was lost, its entry is gone already, and the map may have the next call with
/// the same id.
fn remove(map: &mut CallMap, id: CallId, call: *const InFlightCall) {
    bug!(EntryOfNextCallRemoved => {
        map.remove(&id);
        return;
    });
    if let Entry::Occupied(entry) = map.entry(id)
        && Arc::as_ptr(entry.get()) == call
    {
        entry.remove();
    }
}

/// For a follower, the leader's result is a replay: the follower's own work did not run.
fn result_for(kind: ReceiverKind, result: CallResult) -> CallResult {
    match (kind, result) {
        (ReceiverKind::Leader, result) => result,
        (ReceiverKind::Duplicate | ReceiverKind::Follower, Ok(answer)) => {
            Ok(RawAnswer { replayed: true, ..answer })
        }
        (ReceiverKind::Duplicate | ReceiverKind::Follower, Err(error)) => Err(error),
    }
}
