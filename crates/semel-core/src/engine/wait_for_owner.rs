//! Waiting for a key that another process owns. A read decides; nothing is claimed while it is owned.

use std::{mem, pin::pin, time::Duration};

use futures_util::future::select;

use super::{
    Engine, RunError,
    run::replayed,
    singleflight::{Landing, Lead},
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

/// Sleeps longer each time, 25 ms to 1 s, jittered so that a crowd spreads out.
pub(super) async fn pause(tries: &mut u32) {
    pause_within(tries, LAST_PAUSE).await;
}

/// The same, for so long at most.
pub(super) async fn pause_within(tries: &mut u32, longest: Duration) {
    sleep(full_pause(*tries).mul_f64(random_range(0.5..1.0)).min(longest)).await;
    *tries += 1;
}

/// The same, cut short by news.
async fn pause_or_news(tries: &mut u32, news: Option<&mut KeySubscription>) {
    let Some(news) = news else { return pause(tries).await };
    select(pin!(pause(tries)), pin!(news.changed())).await;
}

fn full_pause(tries: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << tries.min(6)).min(LAST_PAUSE)
}

/// How the wait for another process ended.
pub(super) enum Fate {
    /// Nobody waits any more.
    Deserted,
    /// There is an answer.
    Landed(Lead, Landing),
    /// The owner was lost: somebody may claim the key.
    Lapsed(Lead),
}

/// What a look at the record says.
enum Look {
    Decided(Landing),
    Owned(Duration),
    Lapsed,
    NoAnswer,
}

impl Engine {
    /// Looks now and then, and when there is news, for as long as somebody waits.
    pub(super) async fn watch(&self, mut lead: Lead, request: &ClaimRequest) -> Fate {
        let mut news = self.listen(&request.key);
        // What happened before we listened is not told again.
        let mut look_at_once = news.is_some();
        bug!(NoLookAfterListening => { look_at_once = false });
        let mut tries = 0;
        loop {
            if !mem::take(&mut look_at_once) {
                pause_or_news(&mut tries, news.as_mut()).await;
            }
            lead = match lead.land_if_empty() {
                Some(lead) => lead,
                None => return Fate::Deserted,
            };
            match self.look(&request.key, &request.fingerprint).await {
                Look::Decided(landing) => return Fate::Landed(lead, landing),
                Look::Lapsed => return Fate::Lapsed(lead),
                Look::Owned(remaining) => lead.elsewhere(remaining),
                Look::NoAnswer => {}
            }
        }
    }

    /// A superseded owner answers with the winner's outcome, if it comes within the wait budget.
    pub(super) async fn yield_to(&self, request: &ClaimRequest, current: Current) -> Landing {
        let remaining = match current {
            Current::InProgress { remaining } => remaining,
            // Read again: what is recorded may be the answer to something else that was asked.
            Current::Completed(_) => Duration::ZERO,
            Current::Open => return Err(self.busy(Duration::ZERO)),
            Current::Unknown => return Err(RunError::Unknown),
            Current::Dead => return Err(RunError::Dead),
            Current::Erased => return Err(RunError::Gone),
        };
        let deadline = Instant::now() + self.policy.wait;
        let (mut tries, mut news) = (0, self.listen(&request.key));
        loop {
            match self.look(&request.key, &request.fingerprint).await {
                Look::Decided(landing) => return landing,
                Look::Lapsed | Look::Owned(_) | Look::NoAnswer => {}
            }
            if Instant::now() >= deadline {
                return Err(self.busy(remaining));
            }
            pause_or_news(&mut tries, news.as_mut()).await;
        }
    }

    fn listen(&self, key: &KeyHash) -> Option<KeySubscription> {
        self.inner.info.change_feed.as_ref().map(|feed| feed.subscribe(key))
    }

    async fn look(&self, key: &KeyHash, asked: &Fingerprint) -> Look {
        let Ok(seen) = self.inner.store.get(key).await else { return Look::NoAnswer };
        // Released without a trace, forgotten or expired: a new request may claim it.
        let Some(Sighting { record, at }) = seen else {
            return Look::Decided(Err(self.busy(Duration::ZERO)));
        };
        if record.fingerprint.is_some_and(|pinned| pinned != *asked) {
            return Look::Decided(Err(RunError::Mismatch));
        }
        Look::Decided(match record.state {
            State::InProgress if record.is_leased(at) => {
                return Look::Owned(record.lease_until.since(at));
            }
            State::InProgress => return Look::Lapsed,
            // Those who waited through a release do not claim: that would be a stampede.
            State::Open => Err(self.busy(Duration::ZERO)),
            State::Completed => {
                let Some(outcome) = record.outcome else { return Look::NoAnswer };
                let age = at.since(record.completed_at.unwrap_or(at));
                let remaining = record.expires_at.unwrap_or(at).since(at);
                let attempt = record.attempts;
                let replay = Replay { outcome, attempt, age, remaining, cached: false };
                replayed(key, &replay, Tier::Wait)
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
