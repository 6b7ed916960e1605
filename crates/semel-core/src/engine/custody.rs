//! Custody: whoever was granted a key gives it back, even if its task is dropped.

use super::{Engine, background, settle::retry};
use crate::{AbandonRequest, Effect, Owner, ReleaseRequest};

/// Held from the grant until the settling has begun. Dropped before that, the runtime went away
/// under the work: the key is released if nothing started, abandoned if something did.
#[derive(Debug)]
pub(super) struct Custody {
    engine: Engine,
    owner: Owner,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Granted,
    Started,
    Settling,
}

impl Custody {
    pub(super) const fn new(engine: Engine, owner: Owner) -> Self {
        Self { engine, owner, stage: Stage::Granted }
    }

    pub(super) const fn started(&mut self) {
        self.stage = Stage::Started;
    }

    /// The settling looks after the key from here on.
    pub(super) fn settling(mut self) {
        self.stage = Stage::Settling;
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        let (owner, inner, policy) = (self.owner, &self.engine.inner, &self.engine.policy);
        let (store, budget, backoff) = (inner.store.clone(), policy.record_budget, policy.backoff);
        match self.stage {
            Stage::Settling => {}
            Stage::Granted => {
                let request = ReleaseRequest { owner, effect: Effect::None };
                let release = async move { drop(retry(budget, || store.release(&request)).await) };
                inner.tasks.spawn_on(release, background::handle());
            }
            Stage::Started => {
                let request = AbandonRequest { owner, backoff };
                let abandon = async move { drop(retry(budget, || store.abandon(&request)).await) };
                inner.tasks.spawn_on(abandon, background::handle());
            }
        }
    }
}
