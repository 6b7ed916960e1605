//! The model as the checker sees it.

use std::sync::Arc;

use semel_core::{Outcome, Timestamp};
use semel_planted_bugs::Flaw;
use stateright::{Model, Property};

use crate::{
    Client, Config, Heard, Rule,
    action::{self, Action},
    ledger::LIVES,
    request,
    rule::{self, Broken},
    situation::{self, Sights},
    world::World,
};

/// One bounded world over the real steps, or over steps with one flaw.
#[derive(Debug)]
pub struct Protocol {
    pub(crate) config: Config,
    pub(crate) flaw: &'static Flaw,
    /// Rules that are looked at.
    watched: Broken,
    pub(crate) heard: Heard,
    pub(crate) sights: Sights,
    outcomes: Vec<Arc<Outcome>>,
}

impl Protocol {
    /// The protocol itself, with every rule.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::build(config, &Flaw::NONE, Broken::ALL)
    }

    /// The protocol with a flaw, and only this rule: others may be broken on the way to it.
    #[must_use]
    pub fn flawed(config: Config, flaw: &'static Flaw, rule: Rule) -> Self {
        Self::build(config, flaw, Broken::only(rule))
    }

    fn build(config: Config, flaw: &'static Flaw, watched: Broken) -> Self {
        let outcomes = all_outcomes(&config);
        let (heard, sights) = (Heard::default(), Sights::default());
        Self { config, flaw, watched, heard, sights, outcomes }
    }

    /// The nonce of a worker's next claim call. Nonces count from one, worker by worker.
    pub(crate) fn fresh_nonce(&self, worker: usize, calls_left: u8) -> u8 {
        let before = worker * usize::from(self.config.calls);
        let call = self.config.calls - calls_left;
        u8::try_from(before).unwrap_or(u8::MAX) + call + 1
    }

    /// What the claim with this nonce records; the operator's outcome is number zero.
    pub(crate) fn outcome(&self, nonce: u8) -> &Arc<Outcome> {
        &self.outcomes[usize::from(nonce)]
    }
}

fn all_outcomes(config: &Config) -> Vec<Arc<Outcome>> {
    let calls = usize::from(config.calls);
    let claims = config.clients.iter().flat_map(|client| std::iter::repeat_n(client, calls));
    let everybody = std::iter::once(&Client::RERUN).chain(claims);
    (0..).zip(everybody).map(|(nonce, client)| request::outcome(nonce, client)).collect()
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.config)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // What comes after a broken rule tells nothing about the protocol.
        if world.broken.is_empty() {
            action::possible(&self.config, world, actions);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        self.play(&mut world, action)?;
        self.inspect(&mut world);
        world.broken = world.broken.and(self.watched);
        tidy(&mut world);
        (world != *before).then_some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        usize::from(world.ledger.begun) <= LIVES
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rule::properties().into_iter().chain(situation::properties()).collect()
    }
}

/// No step reads when a record was made: two worlds that differ in that alone are one.
fn tidy(world: &mut World) {
    if let Some(record) = &mut world.record {
        record.created_at = Timestamp::default();
        record.completed_at = None;
    }
}
