//! A model of a store that stalls: it answers nothing for a while, and then processes what waits in any order.
//!
//! One owner, two claimants and cleanup act on one key, with the real steps of the store. A living owner renews every
//! third of its lease; one that got no reply sends again every twelfth. While the store is up, it processes everything
//! before the time goes on. The rules are:
//!
//! - the key of a living owner is neither taken over nor put on hold;
//! - the key of a dead owner is taken over at most a grace period after its lease and the last stall have ended.
//!
//! The second stall may not begin in a grace period in which the store has not heard the owner. That case is left: the
//! promise page names it.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    num::NonZeroU32,
    sync::Arc,
};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, OnLostOwner, Outcome, Owner,
    Record, RenewRequest, Renewal, Span, State, Terms, Timestamp,
};
use semel_planted_bugs::{PlantedBug, StepReply, StepRequest};

use crate::request::to_nonce;

/// The lease of the owner, in ticks.
const LEASE: u8 = 12;
/// How long after a renewal the owner sends the next one.
const RENEWAL: u8 = LEASE / 3;
const GRACE: u8 = LEASE / 3;
const KEY: KeyHash = KeyHash::from_bytes([9; 32]);
const OWNER: u8 = 1;
const CLAIMANTS: [u8; 2] = [2, 3];

/// What a stall model explores.
#[derive(Clone, Copy, Debug)]
pub struct StallConfig {
    /// Its name in reports.
    pub name: &'static str,
    /// How often the store stalls. A stall may take any time.
    pub stalls: u8,
    /// The last tick.
    pub ticks: u8,
    /// After how many ticks an owner without a reply sends again.
    pub retry_ticks: u8,
    /// The lease in the claims of others.
    pub contender_lease: u8,
    /// What happens to the key of a lost owner.
    pub on_lost_owner: OnLostOwner,
    /// The owner has its last attempt.
    pub is_last_attempt: bool,
    /// Cleanup may run at any time.
    pub purges: bool,
    /// The owner did not get the reply to its claim, and sends it again.
    pub claim_reply_is_lost: bool,
    /// The owner is dead.
    pub is_dead: bool,
    /// A bug beyond single steps: the grace period counts from when the claim was sent.
    pub dated_by_client: bool,
}

/// What was explored, and the shortest way to a broken rule.
#[derive(Clone, Debug)]
pub struct StallCheck {
    /// The number of states.
    pub states: usize,
    /// How often an owner was heard in its grace period.
    pub contests_ended: usize,
    /// The rule that was broken, and the actions that led there.
    pub broken: Option<(&'static str, Vec<StallAction>)>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallAction {
    /// Time goes on.
    Tick,
    /// The store stops to answer.
    Stall,
    /// It answers again.
    Recover,
    /// A claimant sends its claim.
    Claim(u8),
    /// The work of the owner is done.
    Finish,
    /// The store processes a message.
    Process(StallMessage),
    /// A message is lost with its connection.
    Lose(StallMessage),
    /// Cleanup runs.
    Purge,
}

/// A message to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallMessage {
    /// The owner renews its lease.
    Renew,
    /// The owner records its outcome.
    Complete,
    /// The owner repeats its claim.
    Repeat,
    /// A claim of another process, and when it was sent, if that matters.
    Claim(u8, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StallWorld {
    now: u8,
    record: Record,
    is_up: bool,
    stalls_left: u8,
    recovered_at: u8,
    /// Sent, and not processed.
    queue: BTreeSet<StallMessage>,
    /// When the owner sends next.
    due: u8,
    is_answered: bool,
    is_done: bool,
    /// The key was contested, and the owner was not heard since.
    is_contest_open: bool,
}

/// Why a path ends.
enum PathEnd {
    /// The outcome is recorded, or the dead owner's key is taken.
    Done,
    Broken(&'static str),
}

impl StallConfig {
    /// One stall, and an owner that lives.
    pub const ONE: Self = Self {
        name: "one stall",
        stalls: 1,
        ticks: 34,
        retry_ticks: LEASE / 12,
        contender_lease: LEASE,
        on_lost_owner: OnLostOwner::Rerun,
        is_last_attempt: false,
        purges: false,
        claim_reply_is_lost: false,
        is_dead: false,
        dated_by_client: false,
    };

    /// Two stalls.
    pub const TWO: Self = Self { name: "two stalls", stalls: 2, ticks: 46, ..Self::ONE };

    /// What the tests explore.
    pub const ALL: &[Self] = &[
        Self::ONE,
        Self::TWO,
        Self { name: "shorter lease of others", contender_lease: 3, ..Self::TWO },
        Self { name: "owner heard late", retry_ticks: GRACE - 1, ..Self::TWO },
        Self { name: "lost reply to a claim", claim_reply_is_lost: true, ..Self::TWO },
        Self { name: "last attempt", is_last_attempt: true, purges: true, ..Self::TWO },
        Self { name: "hold", on_lost_owner: OnLostOwner::Hold, purges: true, ..Self::TWO },
        Self { name: "dead owner", is_dead: true, ..Self::ONE },
    ];

    /// Explores every state, with a bug in every node.
    #[must_use]
    pub fn check(&self, bug: &PlantedBug) -> StallCheck {
        self.check_nodes(bug, bug)
    }

    /// Explores every state, with one bug in the owner's node and another one in all others.
    #[must_use]
    pub fn check_nodes(&self, of_owner: &PlantedBug, of_others: &PlantedBug) -> StallCheck {
        let start = self.start(of_owner);
        let mut seen = HashSet::from([start.clone()]);
        let mut level = vec![(start, Vec::new())];
        let mut contests_ended = 0;
        // Level by level, so that the first counterexample is a shortest one.
        while !level.is_empty() {
            let mut next = Vec::new();
            for (world, path) in level {
                for action in self.actions(&world) {
                    let mut after = world.clone();
                    let is_owners = matches!(
                        action,
                        StallAction::Process(
                            StallMessage::Renew | StallMessage::Complete | StallMessage::Repeat
                        )
                    );
                    let bug = if is_owners { of_owner } else { of_others };
                    let end = self.apply(&mut after, action, bug);
                    let is_ended = world.record.contested && !after.record.contested;
                    contests_ended += usize::from(end.is_none() && is_ended);
                    match end {
                        Some(PathEnd::Broken(rule)) => {
                            let path = [path, vec![action]].concat();
                            let broken = Some((rule, path));
                            return StallCheck { states: seen.len(), contests_ended, broken };
                        }
                        None if seen.insert(after.clone()) => {
                            let mut path = path.clone();
                            path.push(action);
                            next.push((after, path));
                        }
                        Some(PathEnd::Done) | None => {}
                    }
                }
            }
            level = next;
        }
        StallCheck { states: seen.len(), contests_ended, broken: None }
    }

    fn start(&self, bug: &PlantedBug) -> StallWorld {
        let (record, _) = bug.step(None, self.claim(OWNER, LEASE), at(0));
        StallWorld {
            now: 0,
            record: record.expect("a first claim is granted"),
            is_up: true,
            stalls_left: self.stalls,
            recovered_at: 0,
            queue: BTreeSet::new(),
            due: if self.claim_reply_is_lost { self.retry_ticks } else { RENEWAL },
            is_answered: !self.claim_reply_is_lost,
            is_done: false,
            is_contest_open: false,
        }
    }

    fn claim(&self, number: u8, lease: u8) -> StepRequest {
        let long = Span::from_millis(1_000);
        let max_attempts = NonZeroU32::new(if self.is_last_attempt { 1 } else { 9 });
        StepRequest::Claim(ClaimRequest {
            key: KEY,
            fingerprint: Fingerprint::of_bytes(b"stall"),
            nonce: to_nonce(number),
            terms: Terms {
                lease: Span::from_millis(lease.into()),
                on_lost_owner: self.on_lost_owner,
                max_attempts,
                retention: long,
                failure_retention: long,
            },
            labels: None,
        })
    }

    fn actions(&self, world: &StallWorld) -> Vec<StallAction> {
        let mut actions = Vec::new();
        // A store that is up answers at once.
        let is_prompt = !world.is_up || world.queue.is_empty();
        if is_prompt && world.now < self.ticks {
            actions.push(StallAction::Tick);
        }
        if world.is_up {
            actions.extend(world.queue.iter().map(|message| StallAction::Process(*message)));
            if self.purges {
                actions.push(StallAction::Purge);
            }
            if world.stalls_left > 0 && !world.is_contest_open {
                actions.push(StallAction::Stall);
            }
        } else {
            let of_owner = |it: &&StallMessage| !matches!(it, StallMessage::Claim(..));
            let lost = world.queue.iter().filter(of_owner);
            actions.extend(lost.map(|message| StallAction::Lose(*message)));
            actions.push(StallAction::Recover);
        }
        let waits = |number: u8| {
            world.queue.iter().any(|it| matches!(it, StallMessage::Claim(by, _) if *by == number))
        };
        // Claims before the lease has ended change nothing.
        let may_matter = !world.record.is_leased(at(world.now)) || !world.is_up;
        let idle = CLAIMANTS.into_iter().filter(|number| may_matter && !waits(*number));
        actions.extend(idle.map(StallAction::Claim));
        if !world.is_done && !self.is_dead && world.is_answered {
            actions.push(StallAction::Finish);
        }
        actions
    }

    fn apply(
        &self,
        world: &mut StallWorld,
        action: StallAction,
        bug: &PlantedBug,
    ) -> Option<PathEnd> {
        match action {
            StallAction::Tick => return self.tick(world),
            StallAction::Stall => {
                world.is_up = false;
                world.stalls_left -= 1;
            }
            StallAction::Recover => (world.is_up, world.recovered_at) = (true, world.now),
            StallAction::Claim(number) => {
                let sent_at = if self.dated_by_client { world.now } else { 0 };
                world.queue.insert(StallMessage::Claim(number, sent_at));
            }
            StallAction::Finish => (world.is_done, world.due) = (true, world.now),
            StallAction::Lose(message) => drop(world.queue.remove(&message)),
            StallAction::Process(message) => {
                world.queue.remove(&message);
                return self.process(world, message, bug);
            }
            StallAction::Purge => {
                return self.step(world, StepRequest::Purge, None, bug).err();
            }
        }
        None
    }

    /// The owner sends what is due.
    fn tick(&self, world: &mut StallWorld) -> Option<PathEnd> {
        world.now += 1;
        if self.is_dead {
            // One claimant waits for the key, and claims it again and again.
            world.queue.insert(StallMessage::Claim(CLAIMANTS[0], 0));
            let lapsed_at = world.record.claimed_at.after(Span::from_millis(LEASE.into()));
            let lapsed_at = u8::try_from(lapsed_at.as_millis()).unwrap_or(u8::MAX);
            // Its claims come once in a tick: one contests the key, and one takes it over.
            let free_at = lapsed_at.max(world.recovered_at) + 1 + GRACE;
            let is_late = world.is_up && world.now > free_at + 1;
            return is_late.then_some(PathEnd::Broken("the key of a dead owner is taken over"));
        }
        if world.now >= world.due {
            world.due = world.now + self.retry_ticks;
            world.queue.insert(match (world.is_done, world.is_answered) {
                (true, _) => StallMessage::Complete,
                (false, true) => StallMessage::Renew,
                (false, false) => StallMessage::Repeat,
            });
        }
        None
    }

    fn process(
        &self,
        world: &mut StallWorld,
        message: StallMessage,
        bug: &PlantedBug,
    ) -> Option<PathEnd> {
        let owner = Owner { key: KEY, nonce: to_nonce(OWNER), token: 1 };
        let (call, sent_at) = match message {
            StallMessage::Renew => {
                let max_run = Span::from_millis(1_000).to_duration();
                (StepRequest::Renew(RenewRequest::new(owner, max_run)), None)
            }
            StallMessage::Complete => {
                let outcome = Arc::new(Outcome::success("done"));
                (StepRequest::Complete(CompleteRequest { owner, outcome }), None)
            }
            StallMessage::Repeat => (self.claim(OWNER, LEASE), None),
            StallMessage::Claim(number, sent_at) => {
                (self.claim(number, self.contender_lease), Some(sent_at))
            }
        };
        let reply = match self.step(world, call, sent_at, bug) {
            Ok(reply) => reply,
            Err(end) => return Some(end),
        };
        match reply {
            StepReply::Complete(_) => return Some(PathEnd::Done),
            StepReply::Renew(Renewal::Extended) => self.heard(world),
            StepReply::Claim(Claim::Granted(lease)) if lease.owner == owner => self.heard(world),
            _ => {}
        }
        None
    }

    fn heard(&self, world: &mut StallWorld) {
        world.is_answered = true;
        world.is_contest_open = false;
        if !world.is_done {
            world.due = world.now + RENEWAL;
        }
    }

    /// Runs a step, and ends the path if it took the key from its owner.
    fn step(
        &self,
        world: &mut StallWorld,
        call: StepRequest,
        sent_at: Option<u8>,
        bug: &PlantedBug,
    ) -> Result<StepReply, PathEnd> {
        let before = world.record.clone();
        let (record, reply) = bug.step(Some(before.clone()), call, at(world.now));
        let mut record = record.expect("no record of this model expires");
        let is_contest =
            record.contested && (!before.contested || record.lease_until != before.lease_until);
        if let Some(sent_at) = sent_at.filter(|_| is_contest && self.dated_by_client) {
            record.lease_until = at(sent_at).after(before.terms.grace_period());
        }
        world.is_contest_open |= is_contest;
        let is_recorded = record.state == State::Completed;
        let is_taken = record.state != State::InProgress || record.nonce != before.nonce;
        world.record = record;
        match (is_taken && !is_recorded, self.is_dead) {
            (false, _) => Ok(reply),
            (true, true) => Err(PathEnd::Done),
            (true, false) => Err(PathEnd::Broken("a living owner keeps its key")),
        }
    }
}

fn at(tick: u8) -> Timestamp {
    Timestamp::from_millis(tick.into())
}

impl fmt::Display for StallCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.broken {
            None => write!(f, "{:>9} states, holds", self.states),
            Some((rule, path)) => {
                write!(f, "{:>9} states, BROKEN {rule}: {path:?}", self.states)
            }
        }
    }
}
