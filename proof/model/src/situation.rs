//! Situations that must occur somewhere in a model. Without them a run would prove nothing.

use std::sync::atomic::{AtomicU32, Ordering};

use semel_core::State;
use stateright::Property;

use crate::{
    Protocol,
    world::{WorkerStage, WorldState},
};

macro_rules! situations {
    ($($situation:ident = $words:literal, $when:expr;)*) => {
        /// A situation that a configuration may require to occur.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Situation {
            $(#[doc = $words] $situation,)*
        }

        impl Situation {
            /// Every situation.
            pub const ALL: &[Self] = &[$(Self::$situation,)*];

            /// The situation as a sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$situation => $words,)*
                }
            }
        }

        pub(crate) fn properties() -> Vec<Property<Protocol>> {
            vec![$(Property::sometimes($words, |protocol, world| {
                let when: fn(&WorldState) -> bool = $when;
                protocol.situations.first(Situation::$situation, || when(world))
            }),)*]
        }
    };
}

situations! {
    Recorded = "an outcome is recorded", |world| in_state(world, State::Completed);
    Unknown = "a key waits for an operator", |world| in_state(world, State::Unknown);
    Dead = "a key is out of attempts", |world| in_state(world, State::Dead);
    Erased = "a key is erased", |world| in_state(world, State::Erased);
    Superseded = "an owner is superseded and does not know it", superseded;
    Unanswered = "a worker owns a key and does not know it", |world| {
        in_state(world, State::InProgress)
            && world.workers.iter().any(|it| matches!(it.stage, WorkerStage::Claiming { .. }))
    };
    TwoRuns = "two workers have done the work", |world| {
        world.owners().filter(|(_, owning)| owning.ran).count() > 1
    };
    Abandoned = "a claim is abandoned", |world| {
        world.live().is_some_and(|record| record.abandoned)
    };
    Contested = "a lease is over, and its owner has the grace period", |world| {
        world.live().is_some_and(|record| record.contested)
    };
    Dirty = "a key is owned after an earlier attempt that may have had an effect", |world| {
        world.live().is_some_and(|record| record.dirty && record.state == State::InProgress)
    };
    SecondLife = "a record expires and the key is claimed again", |world| world.ledger.begun > 1;
}

fn in_state(world: &WorldState, state: State) -> bool {
    world.live().is_some_and(|record| record.state == state)
}

fn superseded(world: &WorldState) -> bool {
    let status = world.ledger.status;
    world.owners().any(|(_, owning)| status.is_some_and(|it| !it.is_owner(owning.owner_id)))
}

/// The situations that have occurred so far. The checker evaluates them in every state, and needs only the first.
#[derive(Debug, Default)]
pub(crate) struct SituationsSeen(AtomicU32);

impl SituationsSeen {
    fn first(&self, situation: Situation, when: impl Fn() -> bool) -> bool {
        let bit = 1 << situation as u32;
        self.0.load(Ordering::Relaxed) & bit == 0
            && when()
            && self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn has(&self, situation: Situation) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << situation as u32) != 0
    }
}
