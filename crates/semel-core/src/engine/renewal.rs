//! Renews every lease of an engine, from the background runtime.
//!
//! One task per engine sleeps until the first lease is due and renews all that are due in one batch.
//! A run shorter than a third of its lease costs an insert and a remove.
//!
//! The owner counts its lease from before the last successful renewal was sent. After four fifths of the lease without
//! a successful renewal, the lease counts as lost and its signal fires, early enough that the work starts no new
//! effect. Renewal continues, since an expired lease is still the owner's until another owner takes over.
//!
//! A store that did not answer for longer than the lease may process the claim of another process first when it
//! answers again. That claim only contests the key, and the owner has a third of the lease to renew it. So a renewal
//! that got no reply is repeated every twelfth of the lease, and each waits for a sixth of it at most.

use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;

use super::{EngineInner, lease_lost::LeaseLost};
use crate::{
    Error, ErrorKind, Lease, RenewRequest, Renewal, Result, background,
    sync::{
        self, Mutex, Notify, bug,
        time::{Instant, sleep_until},
    },
};

/// Renewals of one lease that may be without a reply at the same time. A store that does not even report a timeout gets
/// one more with each lease.
const MAX_UNANSWERED: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Renewals {
    schedule: Mutex<RenewalSchedule>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct RenewalSchedule {
    leases: HashMap<u64, RenewedLease>,
    due: BTreeSet<(Instant, u64)>,
    last_id: u64,
    /// When the task wakes up; `None` while it is awake and will read the schedule anyway.
    wakes_at: Option<Instant>,
}

#[derive(Debug)]
struct RenewedLease {
    request: RenewRequest,
    length: Duration,
    /// When the last successful renewal was sent.
    renewed_at: Instant,
    due: Instant,
    /// When the last renewal was sent.
    sent_at: Instant,
    /// How many renewals have no reply yet.
    unanswered: u32,
    lost: LeaseLost,
}

/// Renews one lease until this handle is dropped.
#[derive(Debug)]
pub(super) struct LeaseRenewal {
    inner: Arc<EngineInner>,
    id: u64,
    /// The lease is not renewed after this.
    ends_at: sync::Instant,
}

impl LeaseRenewal {
    /// Renews `lease`, which was claimed at `claimed`, for `max_run` at most, and fires `lost` then.
    pub(super) fn new(
        inner: Arc<EngineInner>,
        lease: &Lease,
        claimed: sync::Instant,
        max_run: Duration,
        lost: LeaseLost,
    ) -> Self {
        let request = RenewRequest::new(lease.owner, max_run).reply_within(lease.length / 6);
        let id = inner.renewals.add(request, lease.length, Instant::from_std(claimed), lost);
        Self { inner, id, ends_at: claimed + max_run }
    }

    /// When the run has lasted for `max_run`: the lease is not renewed after that.
    pub(super) const fn ends_at(&self) -> sync::Instant {
        self.ends_at
    }

    /// True if the store has answered a renewal that was sent after this time.
    pub(super) fn was_answered_since(&self, at: sync::Instant) -> bool {
        let schedule = self.inner.renewals.schedule.lock();
        // A lease that the store calls lost is in the schedule no more.
        schedule.leases.get(&self.id).is_none_or(|lease| lease.renewed_at > Instant::from_std(at))
    }
}

impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.inner.renewals.schedule.lock().remove(self.id);
    }
}

impl Renewals {
    /// Starts the task. It ends with the engine.
    pub(super) fn start(inner: &Arc<EngineInner>) {
        background::handle()
            .spawn(renew_when_due(Arc::downgrade(inner), inner.renewals.wake.clone()));
    }

    /// Wakes the task, so that it sees that the engine was dropped.
    pub(super) fn stop(&self) {
        self.wake.notify_one();
    }

    fn add(
        &self,
        request: RenewRequest,
        length: Duration,
        claimed: Instant,
        lost: LeaseLost,
    ) -> u64 {
        let due = claimed + length / 3;
        let lease = RenewedLease {
            request,
            length,
            renewed_at: claimed,
            due,
            sent_at: claimed,
            unanswered: 0,
            lost,
        };
        bug!(RenewalTaskNotWoken => {
            let too_late = self.schedule.lock().wakes_at.is_some_and(|at| due < at);
            let id = self.schedule.lock().insert(lease);
            if too_late {
                self.wake.notify_one();
            }
            return id;
        });
        let mut schedule = self.schedule.lock();
        let id = schedule.insert(lease);
        // Waking the task costs more than most runs, so it is woken only for a lease that is due before it wakes by
        // itself.
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

impl RenewalSchedule {
    fn insert(&mut self, lease: RenewedLease) -> u64 {
        self.last_id += 1;
        self.due.insert((lease.due, self.last_id));
        self.leases.insert(self.last_id, lease);
        self.last_id
    }

    fn remove(&mut self, id: u64) {
        if let Some(lease) = self.leases.remove(&id) {
            self.due.remove(&(lease.due, id));
        }
    }

    /// Every lease that is due at `now`. Fires the signal of a lease that was not renewed for too long.
    fn take_due(&mut self, now: Instant) -> Vec<(u64, RenewRequest)> {
        let mut renew = Vec::new();
        while let Some(&(at, id)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            let lost_at = lease.lost_at();
            if lost_at <= now {
                lease.lost.fire_without_reply();
            }
            if lease.unanswered < MAX_UNANSWERED || now >= lease.sent_at + lease.length {
                lease.unanswered += 1;
                lease.sent_at = now;
                renew.push((id, lease.request));
            }
            // If no reply comes, the lease is due again, and not later than it counts as lost.
            let again = now + lease.pause_without_reply();
            lease.due = if lost_at > now { again.min(lost_at) } else { again };
            self.due.insert((lease.due, id));
        }
        renew
    }

    fn apply_reply(&mut self, id: u64, sent_at: Instant, reply: &Result<Renewal>, now: Instant) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        self.due.remove(&(lease.due, id));
        lease.unanswered = lease.unanswered.saturating_sub(1);
        match reply {
            Ok(Renewal::Extended) => {
                lease.renewed_at = lease.renewed_at.max(sent_at);
                lease.due = lease.renewed_at + lease.length / 3;
            }
            Ok(Renewal::Lost) => {
                lease.lost.fire();
                self.leases.remove(&id);
                return;
            }
            // Not later than it is due already, without that reply.
            Err(_) => lease.due = lease.due.min(now + lease.pause_without_reply()),
        }
        self.due.insert((lease.due, id));
    }
}

impl RenewedLease {
    /// When the lease counts as lost, unless it is renewed before.
    fn lost_at(&self) -> Instant {
        self.renewed_at + self.length * 4 / 5
    }

    /// How long after a renewal the next one is sent if there was no reply. Several fit into the grace period of a
    /// contested key, which is a third of the lease.
    fn pause_without_reply(&self) -> Duration {
        (self.length / 12).max(Duration::from_millis(5))
    }
}

async fn renew_when_due(engine: Weak<EngineInner>, wake: Arc<Notify>) {
    const IDLE: Duration = Duration::from_secs(3600);
    loop {
        let Some(inner) = engine.upgrade() else { return };
        let next = {
            let mut schedule = inner.renewals.schedule.lock();
            let due = schedule.take_due(Instant::now());
            if !due.is_empty() {
                // In a task of its own, so that a store that hangs does not delay the signals of the other leases.
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

async fn renew(inner: Arc<EngineInner>, due: Vec<(u64, RenewRequest)>) {
    let sent_at = Instant::now();
    let requests: Vec<RenewRequest> = due.iter().map(|(_, request)| *request).collect();
    let renewing = AssertUnwindSafe(inner.store.renew_many(&requests)).catch_unwind();
    let replies = renewing.await.unwrap_or_else(|_| {
        let panicked = || Err(Error::new(ErrorKind::Unavailable, "the store panicked"));
        requests.iter().map(|_| panicked()).collect()
    });
    let (mut schedule, now) = (inner.renewals.schedule.lock(), Instant::now());
    for ((id, _), reply) in due.iter().zip(&replies) {
        schedule.apply_reply(*id, sent_at, reply, now);
    }
    drop(schedule);
    inner.renewals.wake.notify_one();
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::{KeyHash, Nonce, Owner, Policy};

    const LEASE: Duration = Duration::from_secs(30);

    fn one_lease(at: Instant) -> (RenewalSchedule, u64, LeaseLost) {
        let owner = Owner { key: KeyHash::from_bytes([1; 32]), nonce: Nonce::random(), token: 1 };
        let (request, lost) = (RenewRequest::new(owner, LEASE * 20), LeaseLost::default());
        let due = at + LEASE / 3;
        let mut schedule = RenewalSchedule::default();
        let lease = RenewedLease {
            request,
            length: LEASE,
            renewed_at: at,
            due,
            sent_at: at,
            unanswered: 0,
            lost: lost.clone(),
        };
        let id = schedule.insert(lease);
        (schedule, id, lost)
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_its_length() {
        let start = Instant::now();
        let (mut schedule, id, lost) = one_lease(start);
        for third in 1..20 {
            let at = start + LEASE * third / 3;
            assert!(schedule.take_due(at - Duration::from_millis(1)).is_empty(), "{third}");
            assert_eq!(schedule.take_due(at).len(), 1, "{third}");
            schedule.apply_reply(id, at, &Ok(Renewal::Extended), at);
        }
        assert!(!lost.has_fired());
        schedule.remove(id);
        assert!(schedule.due.is_empty() && schedule.leases.is_empty());
    }

    #[test]
    fn an_owner_without_a_successful_renewal_gets_the_signal_at_four_fifths() {
        let start = Instant::now();
        let (mut schedule, id, lost) = one_lease(start);
        let down = Err(Error::new(ErrorKind::Unavailable, "down"));
        schedule.take_due(start + LEASE / 3);
        schedule.apply_reply(id, start + LEASE / 3, &down, start + LEASE / 3);
        schedule.take_due(start + LEASE * 4 / 5 - Duration::from_millis(1));
        assert!(!lost.has_fired());
        schedule.take_due(start + LEASE * 4 / 5);
        assert!(lost.has_fired());
    }

    /// A stalled server may end its stall at any time, and contest the key in the same moment.
    #[test]
    fn an_owner_without_replies_is_heard_several_times_in_every_grace_period() {
        let grace = Policy::api().lease(LEASE).terms().grace_period().to_duration();
        assert!(grace < LEASE / 2, "an owner is not waited for much longer than before");
        let start = Instant::now();
        let (mut schedule, id, _) = one_lease(start);
        let (mut sent, mut unanswered) = (Vec::new(), VecDeque::<Instant>::new());
        let down = Err(Error::new(ErrorKind::Unavailable, "down"));
        for at in (0..3_000).map(|tick| start + LEASE / 3 + Duration::from_millis(50) * tick) {
            // The store gives a renewal up after a sixth of the lease.
            while let Some(sent_at) = unanswered.pop_front_if(|it| *it + LEASE / 6 <= at) {
                schedule.apply_reply(id, sent_at, &down, at);
            }
            unanswered.extend(schedule.take_due(at).iter().map(|_| at));
            sent.extend(unanswered.back().filter(|it| **it == at));
        }
        let gap = |pair: &[Instant]| pair[1].saturating_duration_since(pair[0]);
        let longest = sent.windows(2).map(gap).max().unwrap();
        assert!(longest * 3 < grace, "every {longest:?} in a grace period of {grace:?}");
    }

    #[test]
    fn a_lost_lease_fires_its_signal_and_is_not_renewed_again() {
        let start = Instant::now();
        let (mut schedule, id, lost) = one_lease(start);
        schedule.take_due(start + LEASE / 3);
        schedule.apply_reply(id, start + LEASE / 3, &Ok(Renewal::Lost), start + LEASE / 3);
        assert!(lost.has_fired());
        assert!(schedule.take_due(start + LEASE * 10).is_empty() && schedule.leases.is_empty());
    }
}
