//! Building an inbox.

use std::{sync::Arc, time::Duration};

use semel_core::{Classifier, DefaultClassifier, Error, Result};

use crate::table::InboxTable;
use crate::{
    InboxOptions, InboxPool, InboxVariant, PgInbox, inbox::About, sql::Statements,
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
    classifier: Classify,
    install: bool,
    is_operator: bool,
}

/// Less forgets an event before its twin comes.
pub(crate) const RETENTION_AT_LEAST: Duration = Duration::from_secs(60);

/// More is for ever, and further back than a server's calendar goes.
const RETENTION_AT_MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

struct Classify(Arc<dyn Classifier>);

impl std::fmt::Debug for Classify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Classifier")
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// An inbox over this pool, in the table `public.processed_events` unless told otherwise.
    pub fn builder(pool: P) -> PgInboxBuilder<P> {
        PgInboxBuilder {
            pool,
            schema: "public".to_owned(),
            table: "processed_events".to_owned(),
            consumer: "default".to_owned(),
            variant: InboxVariant::default(),
            options: InboxOptions::default(),
            classifier: Classify(Arc::new(DefaultClassifier)),
            install: false,
            is_operator: false,
        }
    }
}

impl<P: InboxPool> PgInboxBuilder<P> {
    /// The schema of the table.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// The table.
    #[must_use]
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// Who consumes: each consumer of a table handles every event once. A table of the variant
    /// [`Minimal`](InboxVariant::Minimal) has one consumer.
    #[must_use]
    pub fn consumer(self, consumer: impl Into<String>) -> Self {
        Self { consumer: consumer.into(), ..self }
    }

    /// What the table looks like.
    #[must_use]
    pub fn variant(self, variant: InboxVariant) -> Self {
        Self { variant, ..self }
    }

    /// How duplicates, locks and age are treated.
    #[must_use]
    pub fn options(self, options: InboxOptions) -> Self {
        Self { options, ..self }
    }

    /// How long events are remembered.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.policy.retention = retention;
        self
    }

    /// The longest after which the source may deliver an event again, seven days unless told otherwise.
    #[must_use]
    pub fn source_window(mut self, window: Duration) -> Self {
        self.options.policy.source_window = window;
        self
    }

    /// Which errors of a handler are final.
    #[must_use]
    pub fn classifier(self, classifier: impl Classifier) -> Self {
        Self { classifier: Classify(Arc::new(classifier)), ..self }
    }

    /// For all consumers, whose window is noted on the table.
    pub(crate) fn operator(self) -> Self {
        Self { is_operator: true, ..self }.source_window(Duration::ZERO)
    }

    /// Makes the table if it is not there.
    #[must_use]
    pub fn install(self, install: bool) -> Self {
        Self { install, ..self }
    }

    /// The inbox.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for names and times that cannot be, and where
    /// partitions are to be made on a server before PostgreSQL 14;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when the table cannot be made.
    pub async fn build(self) -> Result<PgInbox<P>> {
        let table = InboxTable::new(&self.schema, &self.table)?;
        check(&self.consumer, &self.options)?;
        let about = About {
            statements: Statements::new(self.variant, &table),
            table,
            variant: self.variant,
            consumer: self.consumer,
            is_operator: self.is_operator,
            options: self.options,
            classifier: self.classifier.0,
        };
        let inbox = PgInbox { pool: self.pool, about: Arc::new(about) };
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
            "{}, or say with source_window how long that is",
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
