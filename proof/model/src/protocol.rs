//! The model in the form that the checker explores.

use std::sync::Arc;

use semel_core::{Outcome, Timestamp};
use semel_planted_bugs::PlantedBug;
use stateright::{Model, Property};

use crate::{
    ModelClient, ModelConfig, ProtocolRule, ReplyCoverage,
    action::{self, Action},
    ledger::LIVES,
    request,
    rule::{self, BrokenRules},
    situation::{self, SituationsSeen},
    world::WorldState,
};

/// A bounded model over the real steps, or over steps with one planted bug.
#[derive(Debug)]
pub struct Protocol {
    pub(crate) config: ModelConfig,
    pub(crate) bug: &'static PlantedBug,
    /// The rules that are checked.
    watched: BrokenRules,
    pub(crate) replies: ReplyCoverage,
    pub(crate) situations: SituationsSeen,
    outcomes: Vec<Arc<Outcome>>,
}

impl Protocol {
    /// The protocol itself, with every rule.
    #[must_use]
    pub fn new(config: ModelConfig) -> Self {
        Self::build(config, &PlantedBug::NONE, BrokenRules::ALL)
    }

    /// The protocol with a planted bug. Only `rule` is checked, because the bug may break others first.
    #[must_use]
    pub fn with_bug(config: ModelConfig, bug: &'static PlantedBug, rule: ProtocolRule) -> Self {
        Self::build(config, bug, BrokenRules::only(rule))
    }

    fn build(config: ModelConfig, bug: &'static PlantedBug, watched: BrokenRules) -> Self {
        let outcomes = all_outcomes(&config);
        let (replies, situations) = (ReplyCoverage::default(), SituationsSeen::default());
        Self { config, bug, watched, replies, situations, outcomes }
    }

    /// The nonce of a worker's next claim. Nonces count from one, worker by worker.
    pub(crate) fn fresh_nonce(&self, worker: usize, calls_left: u8) -> u8 {
        let before = worker * usize::from(self.config.calls);
        let call = self.config.calls - calls_left;
        u8::try_from(before).unwrap_or(u8::MAX) + call + 1
    }

    /// The outcome that the claim with this nonce records. Number zero is the operator's outcome.
    pub(crate) fn outcome(&self, nonce: u8) -> &Arc<Outcome> {
        &self.outcomes[usize::from(nonce)]
    }
}

fn all_outcomes(config: &ModelConfig) -> Vec<Arc<Outcome>> {
    let calls = usize::from(config.calls);
    let claims = config.clients.iter().flat_map(|client| std::iter::repeat_n(client, calls));
    let clients = std::iter::once(&ModelClient::RERUN).chain(claims);
    (0..).zip(clients).map(|(nonce, client)| request::outcome(nonce, client)).collect()
}

impl Model for Protocol {
    type State = WorldState;
    type Action = Action;

    fn init_states(&self) -> Vec<WorldState> {
        vec![WorldState::new(&self.config)]
    }

    fn actions(&self, world: &WorldState, actions: &mut Vec<Action>) {
        // States after a broken rule prove nothing about the protocol.
        if world.broken.is_empty() {
            action::possible(&self.config, world, actions);
        }
    }

    fn next_state(&self, before: &WorldState, action: Action) -> Option<WorldState> {
        let mut world = before.clone();
        self.apply(&mut world, action)?;
        self.inspect(&mut world);
        world.broken = world.broken.and(self.watched);
        tidy(&mut world);
        (world != *before).then_some(world)
    }

    fn within_boundary(&self, world: &WorldState) -> bool {
        usize::from(world.ledger.begun) <= LIVES
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rule::properties().into_iter().chain(situation::properties()).collect()
    }
}

/// No step reads these times, so states that differ in them alone are equal.
fn tidy(world: &mut WorldState) {
    if let Some(record) = &mut world.record {
        record.created_at = Timestamp::default();
        record.completed_at = None;
    }
}
