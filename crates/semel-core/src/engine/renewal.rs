//! Renewal: keeps every lease of an engine alive from semel's own runtime.
//!
//! One task per engine sleeps until the first lease is due and renews all that are due in one batch.
//! A run shorter than a third of its lease costs an insert and a remove.
//!
//! The owner counts from before the last good renewal was sent. At four fifths of the lease without
//! one it is told that the lease is lost, early enough to start no new effect; renewal goes on, since
//! a lease that lapsed is still the owner's until somebody takes over.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{Inner, lease_lost::Lost};
use crate::background;
use crate::{
    Lease, RenewRequest, Renewal, Result,
    sync::{
        self, Mutex, Notify, bug,
        time::{Instant, sleep_until},
    },
};

#[derive(Debug, Default)]
pub(super) struct Renewals {
    schedule: Mutex<Schedule>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Schedule {
    held: HashMap<u64, Held>,
    due: BTreeSet<(Instant, u64)>,
    last_id: u64,
    /// When the task looks next; `None` while it is awake and will look at what is here anyway.
    wakes_at: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    request: RenewRequest,
    length: Duration,
    last_good: Instant,
    due: Instant,
    lost: Lost,
}

/// Keeps one lease renewed until it is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    inner: Arc<Inner>,
    id: u64,
}

impl Keeper {
    /// Renews `lease`, which was asked for at `claimed`, for `max_run` at most, and fires `lost` then.
    pub(super) fn new(
        inner: Arc<Inner>,
        lease: &Lease,
        claimed: sync::Instant,
        max_run: Duration,
        lost: Lost,
    ) -> Self {
        let request = RenewRequest { owner: lease.owner, max_run };
        let id = inner.renewals.hold(request, lease.length, Instant::from_std(claimed), lost);
        Self { inner, id }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.inner.renewals.schedule.lock().remove(self.id);
    }
}

impl Renewals {
    /// Starts the task. It ends with the engine.
    pub(super) fn start(inner: &Arc<Inner>) {
        background::handle()
            .spawn(renew_when_due(Arc::downgrade(inner), inner.renewals.wake.clone()));
    }

    /// Lets the task see that the engine is gone.
    pub(super) fn stop(&self) {
        self.wake.notify_one();
    }

    fn hold(&self, request: RenewRequest, length: Duration, claimed: Instant, lost: Lost) -> u64 {
        let due = claimed + length / 3;
        let held = Held { request, length, last_good: claimed, due, lost };
        bug!(RenewalNotWoken => {
            let too_late = self.schedule.lock().wakes_at.is_some_and(|at| due < at);
            let id = self.schedule.lock().insert(held);
            if too_late {
                self.wake.notify_one();
            }
            return id;
        });
        let mut schedule = self.schedule.lock();
        let id = schedule.insert(held);
        // Waking the task costs more than most runs: only for a lease it would come too late for.
        let too_late = schedule.wakes_at.is_some_and(|at| due < at);
        if too_late {
            schedule.wakes_at = None;
        }
        drop(schedule);
        if too_late {
            self.wake.notify_one();
        }
        id
    }
}

impl Schedule {
    fn insert(&mut self, held: Held) -> u64 {
        self.last_id += 1;
        self.due.insert((held.due, self.last_id));
        self.held.insert(self.last_id, held);
        self.last_id
    }

    fn remove(&mut self, id: u64) {
        if let Some(held) = self.held.remove(&id) {
            self.due.remove(&(held.due, id));
        }
    }

    /// Everything to renew at `now`. Owners who have waited too long are told.
    fn take_due(&mut self, now: Instant) -> Vec<(u64, RenewRequest)> {
        let mut renew = Vec::new();
        while let Some(&(at, id)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(held) = self.held.get_mut(&id) else { continue };
            let fence = held.fence();
            if fence <= now {
                held.lost.fire_unheard();
            }
            renew.push((id, held.request));
            // Should the answer not come, ask again, and look at the fence in time.
            let again = now + held.length / 3;
            held.due = if fence > now { again.min(fence) } else { again };
            self.due.insert((held.due, id));
        }
        renew
    }

    fn answered(&mut self, id: u64, asked_at: Instant, answer: &Result<Renewal>) {
        let Some(held) = self.held.get_mut(&id) else { return };
        self.due.remove(&(held.due, id));
        match answer {
            Ok(Renewal::Extended) => {
                held.last_good = held.last_good.max(asked_at);
                held.due = held.last_good + held.length / 3;
            }
            Ok(Renewal::Lost) => {
                held.lost.fire();
                self.held.remove(&id);
                return;
            }
            Err(_) => {
                let again = Instant::now() + (held.length / 12).max(Duration::from_millis(5));
                let fence = held.fence();
                held.due = if fence > Instant::now() { again.min(fence) } else { again };
            }
        }
        self.due.insert((held.due, id));
    }
}

impl Held {
    fn fence(&self) -> Instant {
        self.last_good + self.length * 4 / 5
    }
}

async fn renew_when_due(engine: Weak<Inner>, wake: Arc<Notify>) {
    const IDLE: Duration = Duration::from_secs(3600);
    loop {
        let Some(inner) = engine.upgrade() else { return };
        let next = {
            let mut schedule = inner.renewals.schedule.lock();
            let due = schedule.take_due(Instant::now());
            if !due.is_empty() {
                // Apart, so that a store that hangs does not hold up the fences of the others.
                background::handle().spawn(renew(inner.clone(), due));
            }
            let next = schedule.due.first().map_or_else(|| Instant::now() + IDLE, |(at, _)| *at);
            schedule.wakes_at = Some(next);
            next
        };
        drop(inner);
        tokio::select! {
            biased;
            () = sleep_until(next) => {}
            () = wake.notified() => {}
        }
    }
}

async fn renew(inner: Arc<Inner>, due: Vec<(u64, RenewRequest)>) {
    let asked_at = Instant::now();
    let requests: Vec<RenewRequest> = due.iter().map(|(_, request)| *request).collect();
    let answers = inner.store.renew_many(&requests).await;
    let mut schedule = inner.renewals.schedule.lock();
    for ((id, _), answer) in due.iter().zip(&answers) {
        schedule.answered(*id, asked_at, answer);
    }
    drop(schedule);
    inner.renewals.wake.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind, KeyHash, Nonce, Owner};

    const L: Duration = Duration::from_secs(30);

    fn held(at: Instant) -> (Schedule, u64, Lost) {
        let owner = Owner { key: KeyHash::from_bytes([1; 32]), nonce: Nonce::random(), token: 1 };
        let (request, lost) = (RenewRequest { owner, max_run: L * 20 }, Lost::default());
        let due = at + L / 3;
        let mut schedule = Schedule::default();
        let lease = Held { request, length: L, last_good: at, due, lost: lost.clone() };
        let id = schedule.insert(lease);
        (schedule, id, lost)
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_its_length() {
        let start = Instant::now();
        let (mut schedule, id, lost) = held(start);
        for third in 1..20 {
            let at = start + L * third / 3;
            assert!(schedule.take_due(at - Duration::from_millis(1)).is_empty(), "{third}");
            assert_eq!(schedule.take_due(at).len(), 1, "{third}");
            schedule.answered(id, at, &Ok(Renewal::Extended));
        }
        assert!(!lost.has_fired());
        schedule.remove(id);
        assert!(schedule.due.is_empty() && schedule.held.is_empty());
    }

    #[test]
    fn an_owner_without_a_good_renewal_is_told_at_four_fifths() {
        let start = Instant::now();
        let (mut schedule, id, lost) = held(start);
        let down = Err(Error::new(ErrorKind::Unavailable, "down"));
        schedule.take_due(start + L / 3);
        schedule.answered(id, start + L / 3, &down);
        schedule.take_due(start + L * 4 / 5 - Duration::from_millis(1));
        assert!(!lost.has_fired());
        schedule.take_due(start + L * 4 / 5);
        assert!(lost.has_fired());
    }

    #[test]
    fn a_lost_lease_is_told_and_not_renewed_again() {
        let start = Instant::now();
        let (mut schedule, id, lost) = held(start);
        schedule.take_due(start + L / 3);
        schedule.answered(id, start + L / 3, &Ok(Renewal::Lost));
        assert!(lost.has_fired());
        assert!(schedule.take_due(start + L * 10).is_empty() && schedule.held.is_empty());
    }
}
