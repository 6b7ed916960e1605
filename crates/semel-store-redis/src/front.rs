//! `impl Shelf`: the front of another store.

use std::time::Instant;

use async_trait::async_trait;
use semel_core::{Hints, KeyHash, Result, Shelf, Shelved, Store};

use crate::{
    RedisStore,
    call::{Call, Said},
    copy,
};

/// Unwraps what a worker said to a call about a copy.
macro_rules! said {
    ($answer:expr, $kind:pat => $value:expr) => {
        $answer.map(|said| match said {
            Said::Copy($kind) => $value,
            other => unreachable!("a worker said {other:?} to another kind of call"),
        })
    };
}

/// Copies stand below `PREFIX:r:`, beside the records of a store with the same prefix.
#[async_trait]
impl Shelf for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn hints(&self) -> Option<Hints> {
        self.info().hints
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Shelved>>> {
        let calls = keys.iter().map(|key| Call::Copy(copy::Ask::Look(*key))).collect();
        let answers = self.inner().call_all(calls).await;
        answers.into_iter().map(|said| said!(said, copy::Said::Look(copy) => copy)).collect()
    }

    async fn put(&self, copies: &[Shelved], asked: Instant) -> Vec<Result<()>> {
        let put = |copy: &Shelved| Box::new(copy::Put { copy: copy.clone(), asked });
        let calls = copies.iter().map(|copy| Call::Copy(copy::Ask::Put(put(copy)))).collect();
        let answers = self.inner().call_all(calls).await;
        answers.into_iter().map(|said| said!(said, copy::Said::Put => ())).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let said = self.inner().call(Call::Copy(copy::Ask::Remove(*key))).await;
        said!(said, copy::Said::Remove(was) => was)
    }
}
