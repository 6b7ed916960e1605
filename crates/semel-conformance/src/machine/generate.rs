//! Generates sequences that are likely to find bugs: real and stale owners, times just before and just after the
//! end of a lease or a retention.

use std::{num::NonZeroU32, time::Duration};

use proptest::{prelude::*, sample::select, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;
use semel_core::{Effect, ManualClock, OnLostOwner, State, Terms, Timestamp};

use super::{
    identifiers::{Identifiers, KEYS, OUTCOMES, index_of},
    model::{Model, StepReply, StepTime},
    transition::{
        IndexedDecision, IndexedOwner, IndexedSighting, IndexedStep, NonceIndex, Transition,
    },
};
use crate::{LEASE, RETENTION};

const BACKOFF: Duration = Duration::from_millis(150);

/// The protocol in virtual time.
#[derive(Debug)]
pub(super) struct ProtocolMachine;

/// The state of the protocol while a sequence is generated.
#[derive(Clone, Debug)]
pub(super) struct GeneratorState {
    /// The first bytes of the keys. Generated like everything else, so that a seed repeats their order too.
    pub(super) starts: [u8; KEYS],
    identifiers: Identifiers,
    model: Model,
    now: Timestamp,
    nonces: NonceIndex,
    /// Every owner that was ever granted a key, the latest last.
    owners: Vec<IndexedOwner>,
}

impl ReferenceStateMachine for ProtocolMachine {
    type State = GeneratorState;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<GeneratorState> {
        let start = |starts| GeneratorState {
            starts,
            identifiers: Identifiers::fixed(),
            model: Model::default(),
            now: ManualClock::START,
            nonces: 0,
            owners: Vec::new(),
        };
        any::<[u8; KEYS]>().prop_map(start).boxed()
    }

    fn transitions(state: &GeneratorState) -> BoxedStrategy<Transition> {
        let one = |weight, moves: BoxedStrategy<IndexedStep>| {
            (weight, moves.prop_map(Transition::One).boxed())
        };
        let batch = |weight, moves: BoxedStrategy<IndexedStep>| {
            let moves = prop::collection::vec(moves, 0..5);
            (weight, moves.prop_map(Transition::Batch).boxed())
        };
        Union::new_weighted(vec![
            one(16, state.claim()),
            one(4, state.renew()),
            one(6, state.complete()),
            one(6, state.release()),
            one(4, state.abandon()),
            one(5, state.resolve()),
            one(1, (0..KEYS).prop_map(|key| IndexedStep::Erase { key }).boxed()),
            one(1, (0..KEYS).prop_map(|key| IndexedStep::Forget { key }).boxed()),
            batch(4, state.claim()),
            batch(1, state.renew()),
            batch(1, state.complete()),
            batch(1, state.release()),
            (2, Just(Transition::Purge).boxed()),
            (1, list()),
            (10, state.pass()),
        ])
        .boxed()
    }

    fn apply(mut state: GeneratorState, transition: &Transition) -> GeneratorState {
        match transition {
            Transition::One(step) => state.step(step),
            Transition::Batch(steps) => steps.iter().for_each(|step| state.step(step)),
            Transition::Purge => state.model.purge(state.now),
            Transition::List { .. } => {}
            Transition::Pass(span) => state.now = state.now.after(*span),
        }
        state
    }
}

impl GeneratorState {
    fn step(&mut self, step: &IndexedStep) {
        let request = self.identifiers.request(step);
        let moment = StepTime { now: self.now, purged: false };
        let (record, reply) = self.model.step(&request, moment);
        self.model.put(*request.key(), record);
        if let IndexedStep::Claim { key, nonce, .. } = *step {
            self.nonces = self.nonces.max(nonce + 1);
            if let StepReply::Claim(semel_core::Claim::Granted(lease)) = reply {
                self.owners.push(IndexedOwner { key, nonce, token: lease.owner.token });
            }
        }
    }

    fn claim(&self) -> BoxedStrategy<IndexedStep> {
        let fresh = self.nonces..self.nonces + 2;
        let nonce = prop_oneof![5 => fresh, 1 => 0..=self.nonces];
        let fingerprint = prop_oneof![6 => Just(0), 1 => Just(1)];
        (0..KEYS, nonce, fingerprint, any::<bool>(), terms())
            .prop_map(|(key, nonce, fingerprint, labels, terms)| IndexedStep::Claim {
                key,
                nonce,
                fingerprint,
                labels,
                terms,
            })
            .boxed()
    }

    fn renew(&self) -> BoxedStrategy<IndexedStep> {
        let max_run = select(vec![LEASE * 1_000, LEASE, BACKOFF, Duration::ZERO]);
        (self.owner(), max_run).prop_map(|(by, max_run)| IndexedStep::Renew { by, max_run }).boxed()
    }

    fn complete(&self) -> BoxedStrategy<IndexedStep> {
        let moves = (self.owner(), 0..OUTCOMES);
        moves.prop_map(|(by, outcome)| IndexedStep::Complete { by, outcome }).boxed()
    }

    fn release(&self) -> BoxedStrategy<IndexedStep> {
        (self.owner(), effect())
            .prop_map(|(by, effect)| IndexedStep::Release { by, effect })
            .boxed()
    }

    fn abandon(&self) -> BoxedStrategy<IndexedStep> {
        let backoff = select(vec![Duration::ZERO, BACKOFF, LEASE * 2]);
        (self.owner(), backoff)
            .prop_map(|(by, backoff)| IndexedStep::Abandon { by, backoff })
            .boxed()
    }

    fn resolve(&self) -> BoxedStrategy<IndexedStep> {
        let sightings = |(key, hash)| {
            let record = self.model.record(hash)?;
            Some((key, IndexedSighting { nonce: record.nonce.map(index_of), token: record.token }))
        };
        let mut sightings: Vec<_> =
            self.identifiers.keys.iter().enumerate().filter_map(sightings).collect();
        let stale = |owner: &IndexedOwner| {
            (owner.key, IndexedSighting { nonce: Some(owner.nonce), token: owner.token })
        };
        sightings.extend(self.owners.last().map(stale));
        sightings.push((0, IndexedSighting { nonce: None, token: 1 }));
        let choice = prop_oneof![
            (0..OUTCOMES).prop_map(|outcome| IndexedDecision::Complete { outcome }),
            effect().prop_map(IndexedDecision::Reopen),
        ];
        (select(sightings), choice)
            .prop_map(|((key, seen), decision)| IndexedStep::Resolve { key, seen, decision })
            .boxed()
    }

    /// Mostly a current owner, sometimes a former one, sometimes one that never existed.
    fn owner(&self) -> BoxedStrategy<IndexedOwner> {
        let made_up = (0..KEYS, 0..=self.nonces, 0..4_u64)
            .prop_map(|(key, nonce, token)| IndexedOwner { key, nonce, token });
        let latest: Vec<_> = (0..KEYS).filter_map(|key| self.latest(key)).collect();
        if latest.is_empty() {
            return made_up.boxed();
        }
        prop_oneof![8 => select(latest), 3 => select(self.owners.clone()), 1 => made_up].boxed()
    }

    fn latest(&self, key: usize) -> Option<IndexedOwner> {
        self.owners.iter().rev().find(|owner| owner.key == key).copied()
    }

    /// Time passes to just before, exactly at or just after the next end of a lease or retention, or by a fixed span.
    fn pass(&self) -> BoxedStrategy<Transition> {
        const TICK: Duration = Duration::from_millis(1);
        let mut spans = vec![Duration::ZERO, TICK, BACKOFF, LEASE, RETENTION * 3];
        let records = self.identifiers.keys.iter().filter_map(|key| self.model.record(key));
        let instants = records.flat_map(|record| [Some(record.lease_until), record.expires_at]);
        for at in instants.flatten().filter(|at| *at > self.now) {
            let span = at.since(self.now);
            spans.extend([span - TICK, span, span + TICK]);
        }
        select(spans).prop_map(Transition::Pass).boxed()
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let hold = prop_oneof![2 => Just(OnLostOwner::Rerun), 1 => Just(OnLostOwner::Hold)];
    let cap = prop_oneof![3 => Just(None), 1 => (1..3_u32).prop_map(NonZeroU32::new)];
    let kept = select(vec![(RETENTION, RETENTION / 2), (RETENTION * 2, RETENTION * 3)]);
    (select(vec![LEASE, LEASE * 2]), hold, cap, kept).prop_map(
        |(lease, on_lost_owner, max_attempts, (retention, failure_retention))| Terms {
            lease: lease.into(),
            on_lost_owner,
            max_attempts,
            retention: retention.into(),
            failure_retention: failure_retention.into(),
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    select(vec![Effect::None, Effect::Possible])
}

fn list() -> BoxedStrategy<Transition> {
    let state = select(vec![
        None,
        Some(State::Open),
        Some(State::InProgress),
        Some(State::Completed),
        Some(State::Unknown),
    ]);
    (state, 0..4_usize).prop_map(|(state, limit)| Transition::List { state, limit }).boxed()
}
