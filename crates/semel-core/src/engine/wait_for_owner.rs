//! Waits for a key that another process owns. The waiter reads the record; it claims nothing while the key is owned.

use std::{mem, pin::pin, time::Duration};

use futures_util::future::select;

use super::{
    Engine, RunError,
    run::replay_result,
    singleflight::{CallResult, Leader},
};
use crate::{
    ClaimRequest, Current, Fingerprint, KeyHash, KeySubscription, Replay, Sighting, State,
    sync::{
        bug, random_range,
        time::{Instant, sleep},
    },
    telemetry::Tier,
};

const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Sleeps longer each time, 25 ms to 1 s, with jitter so that many waiters spread out.
pub(super) async fn pause(tries: &mut u32) {
    pause_within(tries, LAST_PAUSE).await;
}

/// Like [`pause`], for `longest` at most.
pub(super) async fn pause_within(tries: &mut u32, longest: Duration) {
    sleep(full_pause(*tries).mul_f64(random_range(0.5..1.0)).min(longest)).await;
    *tries += 1;
}

/// Like [`pause_within`], but ends early when the change feed reports a change of the key.
async fn pause_or_change(
    tries: &mut u32,
    longest: Duration,
    changes: Option<&mut KeySubscription>,
) {
    let Some(changes) = changes else { return pause_within(tries, longest).await };
    select(pin!(pause_within(tries, longest)), pin!(changes.changed())).await;
}

fn full_pause(tries: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << tries.min(6)).min(LAST_PAUSE)
}

/// How the wait for another process ended.
pub(super) enum OwnerWait {
    /// No caller waits for the result any more.
    Abandoned,
    Finished(Leader, CallResult),
    /// The owner was lost: its lease has ended, and the key may be claimed.
    LeaseExpired(Leader),
}

/// What a read of the record says.
enum RecordCheck {
    Decided(CallResult),
    Owned(Duration),
    LeaseExpired,
    NoReply,
}

impl Engine {
    /// Reads the record now and then, and when the change feed reports a change, for as long as a caller waits.
    pub(super) async fn wait_for_owner(
        &self,
        mut leader: Leader,
        request: &ClaimRequest,
    ) -> OwnerWait {
        let mut changes = self.subscribe(&request.key);
        // The feed does not report a change from before the subscription, so the first read comes at once.
        let mut read_at_once = changes.is_some();
        bug!(NoReadAfterSubscribing => { read_at_once = false });
        let (mut tries, mut longest_pause) = (0, LAST_PAUSE);
        loop {
            if !mem::take(&mut read_at_once) {
                pause_or_change(&mut tries, longest_pause, changes.as_mut()).await;
            }
            leader = match leader.finish_if_abandoned() {
                Some(leader) => leader,
                None => return OwnerWait::Abandoned,
            };
            match self.check_record(&request.key, &request.fingerprint).await {
                RecordCheck::Decided(result) => return OwnerWait::Finished(leader, result),
                RecordCheck::LeaseExpired => return OwnerWait::LeaseExpired(leader),
                RecordCheck::Owned(remaining) => {
                    // A lost owner's key is claimed as soon as its lease is over.
                    longest_pause = remaining.clamp(FIRST_PAUSE, LAST_PAUSE);
                    leader.set_owned_elsewhere(remaining);
                }
                RecordCheck::NoReply => longest_pause = LAST_PAUSE,
            }
        }
    }

    /// The result of an owner whose key was taken over: the outcome of the new owner, if it comes within the wait
    /// budget.
    pub(super) async fn superseded_result(
        &self,
        request: &ClaimRequest,
        current: Current,
    ) -> CallResult {
        let remaining = match current {
            Current::InProgress { remaining } => remaining,
            // The record is read again, since its outcome may belong to another fingerprint.
            Current::Completed(_) => Duration::ZERO,
            Current::Open => return Err(self.busy(Duration::ZERO)),
            Current::Unknown => return Err(RunError::Unknown),
            Current::Dead => return Err(RunError::Dead),
            Current::Erased => return Err(RunError::Gone),
        };
        let deadline = Instant::now() + self.policy.wait;
        let (mut tries, mut changes) = (0, self.subscribe(&request.key));
        loop {
            match self.check_record(&request.key, &request.fingerprint).await {
                RecordCheck::Decided(result) => return result,
                RecordCheck::LeaseExpired | RecordCheck::Owned(_) | RecordCheck::NoReply => {}
            }
            if Instant::now() >= deadline {
                return Err(self.busy(remaining));
            }
            pause_or_change(&mut tries, LAST_PAUSE, changes.as_mut()).await;
        }
    }

    fn subscribe(&self, key: &KeyHash) -> Option<KeySubscription> {
        self.inner.info.change_feed.as_ref().map(|feed| feed.subscribe(key))
    }

    async fn check_record(&self, key: &KeyHash, fingerprint: &Fingerprint) -> RecordCheck {
        let Ok(sighting) = self.inner.store.get(key).await else { return RecordCheck::NoReply };
        // Released without a trace, forgotten or expired: a new request may claim the key.
        let Some(Sighting { record, at }) = sighting else {
            return RecordCheck::Decided(Err(self.busy(Duration::ZERO)));
        };
        if record.fingerprint.is_some_and(|pinned| pinned != *fingerprint) {
            return RecordCheck::Decided(Err(RunError::Mismatch));
        }
        RecordCheck::Decided(match record.state {
            State::InProgress if record.is_leased(at) => {
                return RecordCheck::Owned(record.lease_until.since(at));
            }
            State::InProgress => return RecordCheck::LeaseExpired,
            // Callers that waited through a release do not claim, since all of them would claim at once.
            State::Open => Err(self.busy(Duration::ZERO)),
            State::Completed => {
                let Some(outcome) = record.outcome else { return RecordCheck::NoReply };
                let age = at.since(record.completed_at.unwrap_or(at));
                let remaining = record.expires_at.unwrap_or(at).since(at);
                let attempt = record.attempts;
                let replay = Replay { outcome, attempt, age, remaining, cached: false };
                replay_result(key, &replay, Tier::Wait)
            }
            State::Unknown => Err(RunError::Unknown),
            State::Dead => Err(RunError::Dead),
            State::Erased => Err(RunError::Gone),
        })
    }

    fn busy(&self, remaining: Duration) -> RunError {
        RunError::Busy { retry_after: remaining.max(self.policy.backoff.min(LAST_PAUSE)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_25_ms_to_a_second_and_no_further() {
        let pauses: Vec<_> = (0..9).map(|tries| full_pause(tries).as_millis()).collect();
        assert_eq!(pauses, [25, 50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(full_pause(u32::MAX), LAST_PAUSE);
    }
}
