//! [`PgInbox`] and its settings.

use std::{sync::Arc, time::Duration};

use semel_core::{Classifier, DownstreamKey, Error, KeyHash, Result, Scope};

use crate::{
    event::InboxEvent, schema::InboxVariant, sql::Statements, table::InboxTable, table_comment,
};

/// Records events in the transaction that carries out what they ask for: both commit, or neither does.
///
/// ```text
/// begin ── insert the event ──┬─ new ──────▶ handler ──▶ commit
///                             ├─ committed ▶ duplicate, with its recorded outcome
///                             └─ running ──▶ busy
/// ```
///
/// A clone is another handle on the same inbox.
#[derive(Clone, Debug)]
pub struct PgInbox<P> {
    pub(crate) pool: P,
    pub(crate) about: Arc<About>,
}

impl<P> PgInbox<P> {
    /// The table as people write it.
    pub(crate) fn table(&self) -> String {
        format!("{}.{}", self.about.table.schema, self.about.table.name)
    }
}

/// What an inbox is built with.
pub(crate) struct About {
    pub(crate) table: InboxTable,
    pub(crate) variant: InboxVariant,
    pub(crate) consumer: String,
    /// Looks after the table for all consumers.
    pub(crate) is_operator: bool,
    pub(crate) options: InboxOptions,
    pub(crate) statements: Statements,
    pub(crate) classifier: Arc<dyn Classifier>,
}

/// How an inbox treats duplicates, locks and age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxOptions {
    /// True: duplicates are answered with the recorded outcome. False: they are only rejected, and no outcome
    /// is kept.
    pub use_idempotency: bool,
    /// The rest.
    pub policy: InboxPolicy,
}

/// See [`InboxOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxPolicy {
    /// How long a claim waits for a twin whose transaction is open before it says busy.
    pub patience: Duration,
    /// How often a transaction is begun anew after a deadlock, a serialisation failure or a lost connection.
    pub attempts: u32,
    /// How long an event is remembered. An older copy of it runs again, or is refused where there are
    /// partitions: never less than the source may redeliver after.
    pub retention: Duration,
    /// The longest after which the source may deliver an event again: how long the broker keeps what is not
    /// acknowledged. A shorter retention is refused, here and for whoever purges the table.
    pub source_window: Duration,
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self { use_idempotency: true, policy: InboxPolicy::default() }
    }
}

/// Busy after 50 ms, five attempts, 30 days, of a source that may deliver again within seven.
impl Default for InboxPolicy {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            patience: Duration::from_millis(50),
            attempts: 5,
            retention: 30 * day,
            source_window: table_comment::WINDOW_UNSAID,
        }
    }
}

/// What a handler is told about the event.
#[derive(Clone, Debug)]
pub struct InboxContext {
    pub(crate) key: KeyHash,
}

impl InboxContext {
    /// The key to pass on to services outside of the transaction: the same for every copy of the event.
    #[must_use]
    pub fn downstream_key(&self) -> DownstreamKey {
        DownstreamKey::new(&self.key, "")
    }

    /// A downstream key of its own for each of several effects.
    #[must_use]
    pub fn derive(&self, label: &str) -> DownstreamKey {
        DownstreamKey::new(&self.key, label)
    }
}

impl std::fmt::Debug for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("About")
            .field("table", &self.table)
            .field("variant", &self.variant)
            .field("consumer", &self.consumer)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl About {
    pub(crate) fn context(&self, event: &InboxEvent) -> Result<InboxContext> {
        let scope = Scope::new(self.table.quoted(), self.consumer.as_str(), "inbox");
        Ok(InboxContext { key: scope.key(self.id(event)?)?.hash(None) })
    }

    /// The id as the table has it.
    pub(crate) fn id(&self, event: &InboxEvent) -> Result<String> {
        match self.variant {
            InboxVariant::Minimal => event.uuid(),
            InboxVariant::Full | InboxVariant::Partitioned => Ok(event.id().to_owned()),
        }
    }

    /// The day as the table has it; empty for none.
    pub(crate) fn day<'e>(&self, event: &'e InboxEvent) -> Result<&'e str> {
        match (self.variant, event.day()) {
            (InboxVariant::Minimal, _) => Ok(""),
            (InboxVariant::Partitioned, None) => Err(Error::invalid(
                "an event without a day: this table is partitioned by the day that the producer gave; \
                 say InboxEvent::occurred_on, or use the variant Full",
            )),
            (_, day) => Ok(day.unwrap_or_default()),
        }
    }

    pub(crate) fn patience(&self) -> String {
        self.patience_of_at_most(Duration::MAX)
    }

    pub(crate) fn patience_of_at_most(&self, most: Duration) -> String {
        format!("{}ms", self.options.policy.patience.min(most).as_millis().max(1))
    }

    pub(crate) const fn keeps_outcomes(&self) -> bool {
        self.options.use_idempotency && self.variant.keeps_outcomes()
    }
}
