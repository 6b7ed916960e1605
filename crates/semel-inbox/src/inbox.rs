//! [`PgInbox`] and its settings.

use std::{sync::Arc, time::Duration};

use semel_core::{Classifier, DownstreamKey, Error, KeyHash, Result, Scope};

use crate::{
    event::InboxEvent, schema::InboxVariant, sql::InboxStatements, table::InboxTable, table_comment,
};

/// Records events in the transaction that carries out their effect: both commit, or neither does.
///
/// ```text
/// begin ── insert the event ──┬─ new ──────▶ handler ──▶ commit
///                             ├─ committed ▶ duplicate, with its recorded outcome
///                             └─ running ──▶ busy
/// ```
///
/// A clone is another handle of the same inbox.
#[derive(Clone, Debug)]
pub struct PgInbox<P> {
    pub(crate) pool: P,
    pub(crate) settings: Arc<InboxSettings>,
}

impl<P> PgInbox<P> {
    /// The table as `schema.table`, for logs and labels.
    pub(crate) fn table(&self) -> String {
        format!("{}.{}", self.settings.table.schema, self.settings.table.name)
    }
}

/// The settings of an inbox, with its statements.
pub(crate) struct InboxSettings {
    pub(crate) table: InboxTable,
    pub(crate) variant: InboxVariant,
    pub(crate) consumer: String,
    /// True for an operator: it maintains the table for all consumers.
    pub(crate) is_operator: bool,
    pub(crate) options: InboxOptions,
    pub(crate) statements: InboxStatements,
    pub(crate) classifier: Arc<dyn Classifier>,
}

/// How an inbox treats duplicates, locks and old events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxOptions {
    /// True: duplicates get the recorded outcome. False: duplicates are only rejected, and no outcome is kept.
    pub use_idempotency: bool,
    /// Locks, attempts and times.
    pub policy: InboxPolicy,
}

/// See [`InboxOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxPolicy {
    /// How long a claim waits for the open transaction of another copy before it returns busy.
    pub patience: Duration,
    /// How many attempts an event gets if its transaction fails with a deadlock, a serialisation failure or a lost
    /// connection.
    pub attempts: u32,
    /// How long the record of an event is kept. A copy that comes later runs again, or is refused if the table is
    /// partitioned, so this must not be shorter than the source may redeliver after.
    pub retention: Duration,
    /// The longest time after which the source may deliver an event again: how long the broker keeps events that are
    /// not acknowledged. A shorter retention is refused, here and for every process that purges the table.
    pub source_window: Duration,
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self { use_idempotency: true, policy: InboxPolicy::default() }
    }
}

/// 50 ms of patience, five attempts, 30 days of retention, seven days of source window.
impl Default for InboxPolicy {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            patience: Duration::from_millis(50),
            attempts: 5,
            retention: 30 * day,
            source_window: table_comment::DEFAULT_SOURCE_WINDOW,
        }
    }
}

/// What a handler gets beside its transaction: the keys for calls to other services.
#[derive(Clone, Debug)]
pub struct InboxContext {
    pub(crate) key: KeyHash,
}

impl InboxContext {
    /// The key to send to services outside of the transaction. It is the same for every copy of the event.
    #[must_use]
    pub fn downstream_key(&self) -> DownstreamKey {
        DownstreamKey::new(&self.key, "")
    }

    /// A separate downstream key for each of several effects.
    #[must_use]
    pub fn derive(&self, label: &str) -> DownstreamKey {
        DownstreamKey::new(&self.key, label)
    }
}

impl std::fmt::Debug for InboxSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxSettings")
            .field("table", &self.table)
            .field("variant", &self.variant)
            .field("consumer", &self.consumer)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl InboxSettings {
    pub(crate) fn context(&self, event: &InboxEvent) -> Result<InboxContext> {
        let scope = Scope::new(self.table.quoted(), self.consumer.as_str(), "inbox");
        Ok(InboxContext { key: scope.key(self.id(event)?)?.hash(None) })
    }

    /// The id in the form that the table stores.
    pub(crate) fn id(&self, event: &InboxEvent) -> Result<String> {
        match self.variant {
            InboxVariant::Minimal => event.uuid(),
            InboxVariant::Full | InboxVariant::Partitioned => Ok(event.id().to_owned()),
        }
    }

    /// The day in the form that the table stores; empty for none.
    pub(crate) fn day<'e>(&self, event: &'e InboxEvent) -> Result<&'e str> {
        match (self.variant, event.day()) {
            (InboxVariant::Minimal, _) => Ok(""),
            (InboxVariant::Partitioned, None) => Err(Error::invalid(
                "an event without a day: this table is partitioned by the day that the producer gave; \
                 set it with InboxEvent::occurred_on, or use the variant Full",
            )),
            (_, day) => Ok(day.unwrap_or_default()),
        }
    }

    pub(crate) fn patience(&self) -> String {
        self.patience_up_to(Duration::MAX)
    }

    pub(crate) fn patience_up_to(&self, most: Duration) -> String {
        format!("{}ms", self.options.policy.patience.min(most).as_millis().max(1))
    }

    pub(crate) const fn keeps_outcomes(&self) -> bool {
        self.options.use_idempotency && self.variant.keeps_outcomes()
    }
}
