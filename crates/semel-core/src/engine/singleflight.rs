//! Single flight: in one process, one task per key talks to the store and everybody else waits.
//!
//! A flight is known by key and fingerprint together: a request for something else is never
//! answered from it, it asks the store. Whoever joined a flight gets its answer, also a failure;
//! only a request that comes after the answer starts the next flight, so a failure never stampedes.
//!
//! A flight whose lease is lost leaves the map before it lands: its work may hang for ever, and the
//! store decides who may take over, here as in any other process. So one id may have two flights that
//! have not landed, of which the map has the last; the bound of waiters for one key holds for each.

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
    telemetry::{self, Counted},
};

/// What everybody on a flight is told in the end.
pub(super) type Landing = Result<RawAnswer, RunError>;

type Id = (KeyHash, Fingerprint);

type Map = HashMap<Id, Arc<Flight>>;

type Shard = Mutex<Map>;

const SHARDS: usize = 64;

/// Bounds on waiting callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) per_key: usize,
    pub(super) in_all: usize,
}

#[derive(Debug)]
pub(super) struct Flights {
    shards: Box<[Shard]>,
    waiters: AtomicUsize,
    limits: Limits,
}

#[derive(Debug)]
struct Flight {
    id: Id,
    phase: watch::Sender<Phase>,
    /// Rises under the shard's lock only.
    followers: AtomicUsize,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The store is being asked.
    Claiming,
    /// The work runs in this process, under a lease of this length.
    Running(Duration),
    /// Another process owns the key, for this long at least.
    Elsewhere(Duration),
    Landed(Landing),
}

/// How a request meets the flights.
pub(super) enum Boarding {
    /// Nobody is on it: the caller asks the store.
    Lead(Lead),
    /// Somebody is: the caller waits.
    Follow(Seat),
    /// Too many wait already.
    Full,
}

/// The duty to bring a flight to its end. Dropped without [`Lead::land`], the flight has crashed.
#[derive(Debug)]
pub(super) struct Lead {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    landed: bool,
}

/// A leader's place, taken only if the flight does not end at once: without anybody on it, landing
/// wakes nobody.
#[derive(Debug)]
pub(super) struct Place(Arc<Flight>);

/// Where a flight stands on the map, for whoever has to take it off before it lands.
#[derive(Debug)]
pub(super) struct Listing {
    flights: Arc<Flights>,
    id: Id,
    /// Weak: the work keeps this for as long as it likes.
    flight: Weak<Flight>,
}

/// A place on somebody's flight.
#[derive(Debug)]
pub(super) struct Seat {
    phase: watch::Receiver<Phase>,
    kind: Kind,
    _waiter: Option<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Asked first: its own work may run, for as long as it takes.
    Leader,
    /// The same item again in the leader's own batch: waits as long, runs nothing.
    Twin,
    Follower,
}

#[derive(Debug)]
struct Waiter {
    flights: Arc<Flights>,
    /// Weak, so that a flight that nobody leads is seen to have ended.
    flight: Weak<Flight>,
    _gauge: Counted,
}

impl Flights {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, waiters: AtomicUsize::new(0), limits })
    }

    pub(super) fn board(self: &Arc<Self>, id: Id) -> Boarding {
        let mut shard = self.shard(&id).lock();
        match shard.entry(id) {
            Entry::Vacant(vacant) => {
                let phase = watch::Sender::new(Phase::Claiming);
                let flight = Arc::new(Flight { id, phase, followers: AtomicUsize::new(0) });
                vacant.insert(flight.clone());
                Boarding::Lead(Lead { flights: self.clone(), flight, landed: false })
            }
            Entry::Occupied(flight) => self.follow(flight.get()),
        }
    }

    fn follow(self: &Arc<Self>, flight: &Arc<Flight>) -> Boarding {
        if flight.followers.load(Relaxed) >= self.limits.per_key || !self.take_place() {
            return Boarding::Full;
        }
        flight.followers.fetch_add(1, Relaxed);
        let waiter = Waiter {
            flights: self.clone(),
            flight: Arc::downgrade(flight),
            _gauge: Counted::new(telemetry::name::WAITERS),
        };
        let phase = flight.phase.subscribe();
        Boarding::Follow(Seat { phase, kind: Kind::Follower, _waiter: Some(waiter) })
    }

    /// Looks and takes in one step: others board other flights at the same time.
    fn take_place(&self) -> bool {
        bug!(CapCheckedBeforeCounting => {
            let free = self.waiters.load(Relaxed) < self.limits.in_all;
            self.waiters.fetch_add(usize::from(free), Relaxed);
            return free;
        });
        let one_more = |waiters| (waiters < self.limits.in_all).then_some(waiters + 1);
        self.waiters.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    fn take_off(&self, id: Id, flight: *const Flight) {
        take_off(&mut self.shard(&id).lock(), id, flight);
    }

    fn shard(&self, (key, _): &Id) -> &Shard {
        &self.shards[usize::from(key.as_bytes()[0]) % SHARDS]
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.flights.waiters.fetch_sub(1, Relaxed);
        if let Some(flight) = self.flight.upgrade() {
            bug!(PlaceNotGivenBack => { return });
            bug!(PlaceGivenBackInTwoSteps => {
                let others = flight.followers.load(Relaxed).saturating_sub(1);
                flight.followers.store(others, Relaxed);
                return;
            });
            flight.followers.fetch_sub(1, Relaxed);
        }
    }
}

impl Lead {
    /// Where the leader may sit down if it has to wait.
    pub(super) fn place(&self) -> Place {
        Place(self.flight.clone())
    }

    /// The leader's own seat.
    pub(super) fn seat(&self) -> Seat {
        self.place().seat()
    }

    /// For whoever sees that the lease is lost.
    pub(super) fn listing(&self) -> Listing {
        let flight = Arc::downgrade(&self.flight);
        Listing { flights: self.flights.clone(), id: self.flight.id, flight }
    }

    /// The work runs in this process.
    pub(super) fn running(&self, lease: Duration) {
        self.flight.phase.send_if_modified(|phase| {
            // The leader's patience is no longer limited; otherwise nobody has to wake up for this.
            let was_elsewhere = matches!(phase, Phase::Elsewhere(_));
            *phase = Phase::Running(lease);
            was_elsewhere
        });
    }

    /// Another process owns the key: from now on the leader's patience is limited too.
    pub(super) fn elsewhere(&self, remaining: Duration) {
        self.flight.phase.send_if_modified(|phase| {
            let is_news = !matches!(phase, Phase::Elsewhere(_));
            *phase = Phase::Elsewhere(remaining);
            is_news
        });
    }

    /// Tells everybody, and lets the next request start anew.
    pub(super) fn land(mut self, landing: Landing) -> Landing {
        self.end(landing.clone());
        landing
    }

    /// Ends the flight if nobody is on it any more. Boarding takes the same lock.
    pub(super) fn land_if_empty(mut self) -> Option<Self> {
        bug!(DesertedWithoutLock => {
            if self.flight.phase.receiver_count() > 0 {
                return Some(self);
            }
            self.flights.shard(&self.flight.id).lock().remove(&self.flight.id);
            self.landed = true;
            return None;
        });
        let mut shard = self.flights.shard(&self.flight.id).lock();
        if self.flight.phase.receiver_count() > 0 {
            drop(shard);
            return Some(self);
        }
        take_off(&mut shard, self.flight.id, Arc::as_ptr(&self.flight));
        drop(shard);
        self.landed = true;
        None
    }

    fn end(&mut self, landing: Landing) {
        bug!(ToldBeforeOffTheMap => {
            self.flight.phase.send_replace(Phase::Landed(landing.clone()));
        });
        // Off the map first: whoever comes after the answer must start the next flight.
        self.flights.take_off(self.flight.id, Arc::as_ptr(&self.flight));
        self.landed = true;
        if self.flight.phase.receiver_count() > 0 {
            self.flight.phase.send_replace(Phase::Landed(landing));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        let error = match &*self.flight.phase.borrow() {
            Phase::Running(_) | Phase::Landed(_) => RunError::Interrupted,
            Phase::Claiming | Phase::Elsewhere(_) => RunError::Store(Error::new(
                ErrorKind::Closed,
                "the runtime was shut down before the work began",
            )),
        };
        self.end(Err(error));
    }
}

impl Listing {
    /// Lets the next request start a flight of its own. Who is on this one keeps its seat.
    pub(super) fn take_off(&self) {
        // The weak pointer keeps the address from being used again.
        self.flights.take_off(self.id, self.flight.as_ptr());
    }
}

impl Place {
    pub(super) fn seat(&self) -> Seat {
        Seat { phase: self.0.phase.subscribe(), kind: Kind::Leader, _waiter: None }
    }
}

impl Seat {
    /// The seat of an item that occurs again in the leader's own batch.
    pub(super) fn of_twin(self) -> Self {
        Self { kind: Kind::Twin, ..self }
    }

    /// Waits for the landing: the leader as long as its own work runs, everybody else for `wait`.
    pub(super) async fn landing(mut self, wait: Duration) -> Landing {
        let (kind, deadline) = (self.kind, Instant::now() + wait);
        let mut waited = false;
        loop {
            let retry_after = match &*self.phase.borrow_and_update() {
                Phase::Landed(landing) => return seen_by(kind, landing.clone()),
                Phase::Claiming | Phase::Running(_) if kind != Kind::Follower => None,
                Phase::Claiming => Some(Duration::from_secs(1)),
                Phase::Running(left) | Phase::Elsewhere(left) => Some(*left),
            };
            let changed = match retry_after {
                Some(retry_after) if waited => return Err(RunError::Busy { retry_after }),
                Some(_) => timeout_at(deadline, self.phase.changed()).await,
                None => Ok(self.phase.changed().await),
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(RunError::Interrupted),
                Err(_) => waited = true,
            }
        }
    }
}

/// Takes exactly this flight off the map. One that lost its lease is off already, and the next one of the
/// same id may be there.
fn take_off(map: &mut Map, id: Id, flight: *const Flight) {
    bug!(NextFlightTakenOff => {
        map.remove(&id);
        return;
    });
    if let Entry::Occupied(listed) = map.entry(id)
        && Arc::as_ptr(listed.get()) == flight
    {
        listed.remove();
    }
}

/// A follower did not run the work, whatever the leader did.
fn seen_by(kind: Kind, landing: Landing) -> Landing {
    match (kind, landing) {
        (Kind::Leader, landing) => landing,
        (Kind::Twin | Kind::Follower, Ok(answer)) => Ok(RawAnswer { replayed: true, ..answer }),
        (Kind::Twin | Kind::Follower, Err(error)) => Err(error),
    }
}
