//! The builder of an inbox.

use std::{sync::Arc, time::Duration};

use semel_core::{Classifier, DefaultClassifier, Error, Result};

use crate::table::InboxTable;
use crate::{
    InboxOptions, InboxPool, InboxVariant, PgInbox, inbox::InboxSettings, sql::InboxStatements,
    table_comment::too_short,
};

/// Builds a [`PgInbox`].
#[derive(Debug)]
pub struct PgInboxBuilder<P> {
    pool: P,
    schema: String,
    table: String,
    consumer: String,
    variant: InboxVariant,
    options: InboxOptions,
    classifier: DynClassifier,
    install: bool,
    is_operator: bool,
}

/// A shorter retention would remove the record of an event before its next copy comes.
pub(crate) const RETENTION_AT_LEAST: Duration = Duration::from_secs(60);

/// The server's calendar does not go further back than a few thousand years; a century is enough.
const RETENTION_AT_MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

struct DynClassifier(Arc<dyn Classifier>);

impl std::fmt::Debug for DynClassifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Classifier")
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// An inbox over this pool, by default in the table `public.processed_events`.
    pub fn builder(pool: P) -> PgInboxBuilder<P> {
        PgInboxBuilder {
            pool,
            schema: "public".to_owned(),
            table: "processed_events".to_owned(),
            consumer: "default".to_owned(),
            variant: InboxVariant::default(),
            options: InboxOptions::default(),
            classifier: DynClassifier(Arc::new(DefaultClassifier)),
            install: false,
            is_operator: false,
        }
    }
}

impl<P: InboxPool> PgInboxBuilder<P> {
    /// Sets the schema of the table.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// Sets the table.
    #[must_use]
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// Sets the consumer. Each consumer of a table processes every event once. A table of the variant
    /// [`Minimal`](InboxVariant::Minimal) has one consumer.
    #[must_use]
    pub fn consumer(self, consumer: impl Into<String>) -> Self {
        Self { consumer: consumer.into(), ..self }
    }

    /// Sets the variant of the table.
    #[must_use]
    pub fn variant(self, variant: InboxVariant) -> Self {
        Self { variant, ..self }
    }

    /// Sets how duplicates, locks and old events are treated.
    #[must_use]
    pub fn options(self, options: InboxOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets how long the record of an event is kept.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.policy.retention = retention;
        self
    }

    /// Sets the longest time after which the source may deliver an event again. The default is seven days.
    #[must_use]
    pub fn source_window(mut self, window: Duration) -> Self {
        self.options.policy.source_window = window;
        self
    }

    /// Sets which errors of a handler are final.
    #[must_use]
    pub fn classifier(self, classifier: impl Classifier) -> Self {
        Self { classifier: DynClassifier(Arc::new(classifier)), ..self }
    }

    /// For an operator: acts for all consumers, and uses the window in the table's comment.
    pub(crate) fn operator(self) -> Self {
        Self { is_operator: true, ..self }.source_window(Duration::ZERO)
    }

    /// Sets whether building creates the table if it does not exist.
    #[must_use]
    pub fn install(self, install: bool) -> Self {
        Self { install, ..self }
    }

    /// Builds the inbox.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for names and times out of range, and when
    /// partitions are to be created on a server before PostgreSQL 14;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when the table cannot be created.
    pub async fn build(self) -> Result<PgInbox<P>> {
        let table = InboxTable::new(&self.schema, &self.table)?;
        check(&self.consumer, &self.options)?;
        let settings = InboxSettings {
            statements: InboxStatements::new(self.variant, &table),
            table,
            variant: self.variant,
            consumer: self.consumer,
            is_operator: self.is_operator,
            options: self.options,
            classifier: self.classifier.0,
        };
        let inbox = PgInbox { pool: self.pool, settings: Arc::new(settings) };
        if self.install {
            inbox.install().await?;
        }
        Ok(inbox)
    }
}

fn check(consumer: &str, options: &InboxOptions) -> Result<()> {
    if consumer.is_empty() || consumer.len() > 100 || consumer.chars().any(char::is_control) {
        return Err(Error::invalid(
            "consumer: use 1 to 100 characters, none of them a control character",
        ));
    }
    let policy = &options.policy;
    if policy.retention < policy.source_window {
        return Err(Error::invalid(format!(
            "{}, or set source_window if it is shorter",
            too_short(policy.retention, policy.source_window)
        )));
    }
    let kept = RETENTION_AT_LEAST..=RETENTION_AT_MOST;
    if !kept.contains(&policy.retention) || policy.attempts == 0 {
        return Err(Error::invalid(
            "retention: use a minute or more, and a hundred years at most; attempts: use one or more",
        ));
    }
    Ok(())
}
