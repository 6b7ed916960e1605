//! fjall with one sync per batch: the same bytes, an expiry index, and nothing of the protocol.

use std::{path::Path, thread};

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use semel_bench::{
    durable::{CLAIMED, COMPLETED, Side},
    load::spread_out,
};
use semel_core::batch::{BatchLimits, Batcher, Batches};

type Key = [u8; 32];

enum Call {
    Claim(Key),
    Complete(Key),
}

pub(crate) struct Lsm(Batcher<Call, bool>);

impl Lsm {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = Database::builder(path).cache_size(256 << 20).open()?;
        let records = database.keyspace("records", KeyspaceCreateOptions::default)?;
        let expiry = database.keyspace("expiry", KeyspaceCreateOptions::default)?;
        let (calls, batches) = Batcher::new(BatchLimits::default());
        let writer = Writer { database, records, expiry, clock: 0 };
        thread::spawn(move || writer.run(batches));
        Ok(Self(calls))
    }
}

impl Side for Lsm {
    type Owned = ();

    async fn claim(&self, i: u64) -> Result<()> {
        let free = self.0.call(Call::Claim(spread_out(i))).await?;
        anyhow::ensure!(free, "key {i} is not free");
        Ok(())
    }

    async fn complete(&self, i: u64, (): ()) -> Result<()> {
        self.0.call(Call::Complete(spread_out(i))).await?;
        Ok(())
    }
}

struct Writer {
    database: Database,
    records: Keyspace,
    expiry: Keyspace,
    clock: u64,
}

impl Writer {
    fn run(mut self, mut batches: Batches<Call, bool>) {
        while let Some(batch) = batches.take_blocking() {
            match self.write(&batch.calls) {
                Ok(answers) => batch.reply.tell(answers),
                Err(error) => eprintln!("fjall failed: {error:#}"),
            }
        }
    }

    fn write(&mut self, calls: &[Call]) -> Result<Vec<bool>> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            self.clock += 1;
            let (key, length) = match call {
                Call::Claim(key) => (key, CLAIMED),
                Call::Complete(key) => (key, COMPLETED),
            };
            // The record is looked at before it is written, as a step does.
            let found = self.records.get(key)?;
            let mut value: Vec<u8> = spread_out::<512>(self.clock).to_vec();
            value.truncate(length - key.len());
            batch.insert(&self.records, key.as_slice(), value);
            if found.is_none() {
                let due = [&self.clock.to_be_bytes()[..], key].concat();
                batch.insert(&self.expiry, due, []);
            }
            answers.push(found.is_none() == matches!(call, Call::Claim(_)));
        }
        batch.commit()?;
        Ok(answers)
    }
}
