//! What must be the case somewhere: without it a run would prove nothing.

use std::sync::atomic::{AtomicU32, Ordering};

use semel_core::State;
use stateright::Property;

use crate::{
    Protocol,
    world::{Stage, World},
};

macro_rules! sights {
    ($($sight:ident = $words:literal, $when:expr;)*) => {
        /// What a configuration may promise to show.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sight {
            $(#[doc = $words] $sight,)*
        }

        impl Sight {
            /// Every sight.
            pub const ALL: &[Self] = &[$(Self::$sight,)*];

            /// The sight as a sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$sight => $words,)*
                }
            }
        }

        pub(crate) fn properties() -> Vec<Property<Protocol>> {
            vec![$(Property::sometimes($words, |protocol, world| {
                let when: fn(&World) -> bool = $when;
                protocol.sights.first(Sight::$sight, || when(world))
            }),)*]
        }
    };
}

sights! {
    Recorded = "an outcome is recorded", |world| in_state(world, State::Completed);
    Unknown = "a key waits for an operator", |world| in_state(world, State::Unknown);
    Dead = "a key is out of attempts", |world| in_state(world, State::Dead);
    Erased = "a key is erased", |world| in_state(world, State::Erased);
    Taken = "an owner is superseded and does not know", superseded;
    Unanswered = "a key is owned by somebody who does not know", |world| {
        in_state(world, State::InProgress)
            && world.workers.iter().any(|it| matches!(it.stage, Stage::Asking { .. }))
    };
    Crowd = "two workers have done the work", |world| {
        world.owners().filter(|(_, owning)| owning.ran).count() > 1
    };
    Abandoned = "a claim is abandoned", |world| {
        world.live().is_some_and(|record| record.abandoned)
    };
    Dirty = "a key is owned after an earlier attempt that may have had an effect", |world| {
        world.live().is_some_and(|record| record.dirty && record.state == State::InProgress)
    };
    SecondLife = "a record expires and the key is claimed again", |world| world.ledger.begun > 1;
}

fn in_state(world: &World, state: State) -> bool {
    world.live().is_some_and(|record| record.state == state)
}

fn superseded(world: &World) -> bool {
    let standing = world.ledger.standing;
    world.owners().any(|(_, owning)| standing.is_some_and(|it| !it.is_owner(owning.pair)))
}

/// Sights seen so far. The checker asks in every state; only the first answer is worth a path.
#[derive(Debug, Default)]
pub(crate) struct Sights(AtomicU32);

impl Sights {
    fn first(&self, sight: Sight, when: impl Fn() -> bool) -> bool {
        let bit = 1 << sight as u32;
        self.0.load(Ordering::Relaxed) & bit == 0
            && when()
            && self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn has(&self, sight: Sight) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << sight as u32) != 0
    }
}
