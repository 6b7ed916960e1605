//! Claims events in a transaction, and records their outcomes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{Error, ErrorKind, Outcome, Result, codec};
use tokio::time::timeout;

use crate::{
    InboxContext, InboxError, InboxEvent, InboxPool, PgInbox,
    inbox::InboxSettings,
    process::AttemptError,
    sql::array,
    transaction::{InboxTx, TxError},
};

const BEGUN: &str = "SET LOCAL semel.begun = 'on'";
/// How long `claim_in` waits for the creation of a partition that its event needs.
const PARTITION_WAIT: Duration = Duration::from_secs(5);
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT semel_claim";

/// The result of [`PgInbox::claim_in`].
#[derive(Debug)]
pub enum Claimed {
    /// The event is new, and is recorded if the transaction commits.
    New(InboxClaim),
    /// The event was processed, with this outcome if one is kept. End the transaction.
    Duplicate(Option<Arc<Outcome>>),
    /// Another copy of the event is in an open transaction. Roll back, and try again later.
    Busy,
}

/// A new event that is claimed in a transaction.
#[derive(Debug)]
#[must_use = "the outcome of an event is kept only if it is recorded"]
pub struct InboxClaim {
    settings: Arc<InboxSettings>,
    id: String,
    day: String,
}

impl InboxClaim {
    /// Records the outcome that duplicates get, in the transaction that claimed the event. Without it, duplicates get
    /// no value.
    ///
    /// # Errors
    ///
    /// When the statement fails; then the transaction has to be rolled back.
    pub async fn record(self, tx: &mut impl InboxTx, outcome: &Outcome) -> Result<()> {
        // Fails if a statement of the transaction has failed; a driver may commit such a transaction without an error.
        tx.run("SELECT 1").await?;
        let row = EventRow { id: &self.id, day: &self.day };
        self.settings.record(tx, &[(row, outcome)]).await.map_err(Error::from)
    }
}

/// What identifies a row, together with the consumer.
#[derive(Clone, Copy)]
pub(crate) struct EventRow<'a> {
    pub(crate) id: &'a str,
    pub(crate) day: &'a str,
}

impl<P: InboxPool> PgInbox<P> {
    /// Claims an event in a transaction of the caller. What the caller then writes commits together with the record,
    /// or not at all.
    ///
    /// # Errors
    ///
    /// When the statement fails; then the transaction has to be rolled back. If the server reported an error, the
    /// source is a [`TxError`], whose code shows whether a new transaction may succeed.
    pub async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Result<Claimed> {
        let settings = &self.settings;
        let parameters = settings.claim_parameters(event, &settings.context(event)?)?;
        // The server refuses a savepoint outside of a transaction, where the claim would commit without the effect.
        tx.run(&format!("SAVEPOINT semel_claim; {BEGUN}")).await?;
        let mut reply = tx.query_text(&settings.statements.claim, &parameters.as_array()).await;
        if reply.as_ref().is_err_and(|error| settings.is_partition_missing(error)) {
            tx.run(&format!("{ROLL_BACK}; {BEGUN}")).await?;
            // This takes a second connection while the caller holds one. If all callers wait here, the pool is empty.
            match timeout(PARTITION_WAIT, self.create_partition_for(&parameters.day)).await {
                Ok(AttemptError::Retry(_)) => {}
                Ok(error) => return Err(into_store_error(error)),
                Err(_) => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "inbox: the event's day has no partition, and no connection was free to create it; give the \
                         inbox a pool of its own",
                    ));
                }
            }
            reply = tx.query_text(&settings.statements.claim, &parameters.as_array()).await;
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) if error.is_locked() => {
                tx.run(ROLL_BACK).await?;
                return Ok(Claimed::Busy);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match ClaimReply::parse(reply.as_deref())? {
            ClaimReply::Busy => Claimed::Busy,
            ClaimReply::Duplicate => {
                Claimed::Duplicate(settings.outcome(tx, parameters.row()).await?)
            }
            ClaimReply::New => Claimed::New(InboxClaim {
                settings: settings.clone(),
                id: parameters.id,
                day: parameters.day,
            }),
        })
    }
}

/// The parameters of the claim statement.
pub(crate) struct ClaimParameters {
    patience: String,
    lock: String,
    pub(crate) id: String,
    event_type: String,
    consumer: String,
    pub(crate) day: String,
}

impl ClaimParameters {
    pub(crate) fn as_array(&self) -> [&str; 6] {
        let Self { patience, lock, id, event_type, consumer, day } = self;
        [patience, lock, id, event_type, consumer, day]
    }

    pub(crate) fn row(&self) -> EventRow<'_> {
        EventRow { id: &self.id, day: &self.day }
    }
}

/// What the claim statement returns for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimReply {
    New,
    Duplicate,
    Busy,
}

impl ClaimReply {
    pub(crate) fn parse(reply: Option<&str>) -> Result<Self> {
        match reply {
            Some("new") => Ok(Self::New),
            Some("duplicate") => Ok(Self::Duplicate),
            Some("busy") => Ok(Self::Busy),
            Some("outside") => Err(Error::new(
                ErrorKind::Unavailable,
                "inbox: the transaction did not begin, and nothing happened",
            )),
            _ => Err(unexpected_reply()),
        }
    }
}

impl InboxSettings {
    pub(crate) fn claim_parameters(
        &self,
        event: &InboxEvent,
        context: &InboxContext,
    ) -> Result<ClaimParameters> {
        let lock: [u8; 8] = std::array::from_fn(|at| context.key.as_bytes()[at]);
        Ok(ClaimParameters {
            patience: self.patience(),
            lock: i64::from_be_bytes(lock).to_string(),
            id: self.id(event)?,
            event_type: event.event_type().to_owned(),
            consumer: self.consumer.clone(),
            day: self.day(event)?.to_owned(),
        })
    }

    /// Writes outcomes to rows that were claimed in this transaction.
    pub(crate) async fn record(
        &self,
        tx: &mut impl InboxTx,
        rows: &[(EventRow<'_>, &Outcome)],
    ) -> Result<(), TxError> {
        // A final failure is always recorded if the table has a column for it.
        let is_recorded = |(_, outcome): &&(EventRow<'_>, &Outcome)| match outcome.is_success() {
            true => self.keeps_outcomes() && !is_unit(outcome),
            false => self.variant.keeps_outcomes(),
        };
        let rows: Vec<_> = rows.iter().filter(is_recorded).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let packed: Vec<_> = rows.iter().map(|(_, outcome)| codec::pack(outcome)).collect();
        let hexes: Vec<String> = packed.iter().map(|packed| hex(&packed.bytes)).collect();
        let ids = array(rows.iter().map(|(row, _)| row.id));
        let days = array(rows.iter().map(|(row, _)| row.day));
        let outcomes = array(hexes.iter().map(String::as_str));
        let formats = array(packed.iter().map(|packed| if packed.compressed { "1" } else { "0" }));
        let failed = array(rows.iter().map(|(_, it)| if it.is_success() { "f" } else { "t" }));
        let parameters: [&str; 6] = [&ids, &self.consumer, &days, &outcomes, &formats, &failed];
        let reply = tx.query_text(&self.statements.record, &parameters).await?;
        // If the handler deleted its own claim, the next copy of the event would run again.
        match reply.and_then(|count| count.parse().ok()) == Some(rows.len()) {
            true => Ok(()),
            false => Err(TxError::new(
                Some("XX000".to_owned()),
                "the claim was deleted in its own transaction",
            )),
        }
    }

    /// The outcome of one row, if one is kept.
    pub(crate) async fn outcome(
        &self,
        tx: &mut impl InboxTx,
        row: EventRow<'_>,
    ) -> Result<Option<Arc<Outcome>>> {
        Ok(self.outcomes(tx, &[row]).await?.remove(row.id))
    }

    /// The outcomes of these rows, by id. In a separate statement, because only a new snapshot sees what another copy
    /// of the event committed meanwhile.
    pub(crate) async fn outcomes(
        &self,
        tx: &mut impl InboxTx,
        rows: &[EventRow<'_>],
    ) -> Result<HashMap<String, Arc<Outcome>>> {
        if rows.is_empty() || !self.variant.keeps_outcomes() {
            return Ok(HashMap::new());
        }
        let ids = array(rows.iter().map(|row| row.id));
        let days = array(rows.iter().map(|row| row.day));
        let reply =
            tx.query_text(&self.statements.outcomes, &[&ids, &self.consumer, &days]).await?;
        let rows: Vec<(String, bool, Option<i16>, Option<String>)> =
            serde_json::from_str(reply.as_deref().unwrap_or_default())
                .map_err(|_| unexpected_reply())?;
        let outcomes = rows.into_iter().map(|(id, failed, format, bytes)| {
            Ok(unpack(failed, format, bytes)?.map(|outcome| (id, outcome)))
        });
        outcomes.filter_map(Result::transpose).collect()
    }
}

fn into_store_error(error: AttemptError) -> Error {
    match error.into_error() {
        InboxError::Store(error) => error,
        other => Error::new(ErrorKind::Unavailable, other.to_string()),
    }
}

/// A success without a value needs no outcome: the row itself shows it.
fn is_unit(outcome: &Outcome) -> bool {
    *outcome == unit()
}

fn unit() -> Outcome {
    Outcome::json(&()).unwrap_or_else(|_| Outcome::success("null"))
}

fn unpack(
    failed: bool,
    format: Option<i16>,
    bytes: Option<String>,
) -> Result<Option<Arc<Outcome>>> {
    match (format, bytes) {
        (Some(format @ (0 | 1)), Some(bytes)) => {
            let bytes = unhex(&bytes).ok_or_else(unexpected_reply)?;
            codec::unpack(Bytes::from(bytes), format == 1).map(Some)
        }
        (None, None) if failed => {
            Ok(Some(Arc::new(Outcome::failure("failed", "the reason was not kept"))))
        }
        (None, None) => Ok(None),
        _ => Err(unexpected_reply()),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Corrupt, "inbox: the server returned an unexpected reply")
}
