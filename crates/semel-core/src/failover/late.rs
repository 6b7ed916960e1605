//! What the primary grants when nobody waits for it any more.

use crate::{Owner, sync::Mutex};

/// A claim that the primary has not answered in time. What it grants later is given back once the secondary has
/// answered instead. As long as that has not, it is not: who asks again does so by the same nonce, and works.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<Stage>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Open,
    Granted(Owner),
    Answered,
}

impl Late {
    /// The primary granted it. Says what to give back.
    pub(super) fn granted(&self, owner: Owner) -> Option<Owner> {
        let mut stage = self.0.lock();
        if let Stage::Answered = *stage {
            return Some(owner);
        }
        *stage = Stage::Granted(owner);
        None
    }

    /// The secondary answered. Says what to give back.
    pub(super) fn answered(&self) -> Option<Owner> {
        match std::mem::replace(&mut *self.0.lock(), Stage::Answered) {
            Stage::Granted(owner) => Some(owner),
            Stage::Open | Stage::Answered => None,
        }
    }
}
