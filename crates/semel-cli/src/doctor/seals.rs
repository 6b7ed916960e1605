//! Checks whether the seal keys open the stored records.

use std::{collections::BTreeMap, sync::Arc};

use semel::{Finding, KeyRing, ListQuery, MemoryStore, Record, Seal, Sealed, Store, seals_of};
use semel_service::settings::StoreConfig;

/// How many records are checked.
const SAMPLE: usize = 200;

/// What a sample of records showed.
#[derive(Debug, Default)]
struct SealSample {
    records: usize,
    /// Records by the key they need.
    ids: BTreeMap<String, usize>,
    clear: usize,
    /// Records that do not open.
    unopened: usize,
    /// Why the first of them does not open.
    why: Option<String>,
}

/// `store` is without the sealing layer, so that it returns sealed records as they are stored.
pub(super) async fn check(config: &StoreConfig, store: &dyn Store) -> Vec<Finding> {
    let query = ListQuery { limit: SAMPLE, ..ListQuery::default() };
    let Ok(records) = store.list(&query).await else { return Vec::new() };
    let seal = config.options.seal.as_ref();
    let sample = SealSample::of(&records, seal.map(|seal| &seal.ring));
    match seal {
        None if sample.ids.is_empty() => Vec::new(),
        None => vec![Finding::bad(
            format!(
                "seals: records are sealed ({}), and there are no seal keys here",
                sample.keys()
            ),
            "give the keys that the gateways have: --seal-keys FILE or SEMEL_SEAL_KEYS",
        )],
        Some(seal) => {
            let sealing = format!("seals: key {} seals", seal.ring.keys().seals_with());
            let mut findings = vec![sample.opened(&sealing)];
            findings.extend(sample.in_the_clear(seal.accept_unsealed));
            findings.extend(guessable(config));
            findings
        }
    }
}

impl SealSample {
    fn of(records: &[Record], ring: Option<&KeyRing>) -> Self {
        let mut sample = Self { records: records.len(), ..Self::default() };
        // Records in the clear are counted, not refused.
        let opener = ring.map(|ring| {
            Sealed::new(Arc::new(MemoryStore::new()), ring.clone()).accept_unsealed(true)
        });
        for record in records {
            sample.add(record);
            if let Some(Err(error)) = opener.as_ref().map(|it| it.open(record.clone())) {
                sample.unopened += 1;
                sample.why.get_or_insert_with(|| error.to_string());
            }
        }
        sample
    }

    fn add(&mut self, record: &Record) {
        let seals = seals_of(record);
        for id in seals.ids() {
            *self.ids.entry(id.to_owned()).or_default() += 1;
        }
        self.clear += usize::from(seals.has(&Seal::Clear));
    }

    /// `2026-11: 93 records, 2026-10: 7 records`.
    fn keys(&self) -> String {
        let of = |(id, count): (&String, &usize)| format!("{id}: {count} records");
        self.ids.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    fn opened(&self, sealing: &str) -> Finding {
        match (&self.why, self.ids.is_empty()) {
            (Some(why), _) => Finding::bad(
                format!(
                    "{sealing}, but {} of {} records looked at do not open: {why}",
                    self.unopened, self.records
                ),
                "put the missing key back, behind the others",
            ),
            (None, true) => Finding::good(format!("{sealing}; nothing is sealed yet")),
            (None, false) => Finding::good(format!(
                "{sealing}, and all of {} records looked at open ({})",
                self.records,
                self.keys()
            )),
        }
    }

    fn in_the_clear(&self, accepted: bool) -> Option<Finding> {
        let (clear, records) = (self.clear, self.records);
        let what = format!("seals: {clear} of {records} records looked at are not sealed");
        match (clear, accepted) {
            (0, true) => Some(Finding::warning(
                "seals: unsealed records are accepted, and none was found",
                "leave --accept-unsealed out: with it, a writer to the store can plant outcomes",
            )),
            (0, false) => None,
            (_, true) => Some(Finding::warning(
                what,
                "wait until they have expired, then leave --accept-unsealed out",
            )),
            (_, false) => Some(Finding::bad(
                format!("{what}, and are refused"),
                "accept them until they have expired: --accept-unsealed",
            )),
        }
    }
}

/// Without a hash secret, a reader of the store can guess short keys and payloads from their hashes.
fn guessable(config: &StoreConfig) -> Option<Finding> {
    let guessable = config.url.is_shared() && config.options.hash_secret.is_none();
    guessable.then(|| {
        Finding::warning(
            "seals: keys and payloads are hashed without a secret, so that short ones can be guessed",
            "a new store can begin with one: --hash-secret-file FILE",
        )
    })
}
