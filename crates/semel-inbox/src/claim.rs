//! Claiming events in a transaction, and recording what became of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{Error, ErrorKind, Outcome, Result, codec};
use tokio::time::timeout;

use crate::{
    InboxContext, InboxError, InboxEvent, InboxPool, PgInbox,
    inbox::About,
    process::Stop,
    sql::array,
    transaction::{InboxTx, TxError},
};

const BEGUN: &str = "SET LOCAL semel.begun = 'on'";
/// How long a partition is waited for that an event of the caller's transaction needs.
const PARTITION_WAIT: Duration = Duration::from_secs(5);
const BACK: &str = "ROLLBACK TO SAVEPOINT semel_claim";

/// How an event stands, for who owns the transaction.
#[derive(Debug)]
pub enum Claimed {
    /// It is new, and recorded if the transaction commits.
    New(InboxClaim),
    /// It is recorded, with this outcome if one is kept. End the transaction.
    Duplicate(Option<Arc<Outcome>>),
    /// A twin's transaction is open. Roll back, and try again later.
    Busy,
}

/// An event that is new in a transaction.
#[derive(Debug)]
#[must_use = "the outcome of an event is kept only if it is recorded"]
pub struct InboxClaim {
    about: Arc<About>,
    id: String,
    day: String,
}

impl InboxClaim {
    /// Records the outcome that duplicates are answered with, in the transaction that claimed the event.
    /// Without it a duplicate is answered with no value.
    ///
    /// # Errors
    ///
    /// When the statement fails; then the transaction has to be rolled back.
    pub async fn record(self, tx: &mut impl InboxTx, outcome: &Outcome) -> Result<()> {
        // Fails in a transaction of which a statement failed, which a driver may commit without a word.
        tx.run("SELECT 1").await?;
        let row = Row { id: &self.id, day: &self.day };
        self.about.record(tx, &[(row, outcome)]).await.map_err(Error::from)
    }
}

/// What names a row, together with the consumer.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) id: &'a str,
    pub(crate) day: &'a str,
}

impl<P: InboxPool> PgInbox<P> {
    /// Claims an event in a transaction of the caller's own. What the caller then writes commits together with the
    /// record, or not at all.
    ///
    /// # Errors
    ///
    /// When the statement fails; then the transaction has to be rolled back. If the server said why, the source of the
    /// error is a [`TxError`], whose code says whether a fresh transaction may succeed.
    pub async fn claim_in(&self, tx: &mut impl InboxTx, event: &InboxEvent) -> Result<Claimed> {
        let about = &self.about;
        let ask = about.ask(event, &about.context(event)?)?;
        // Refused by the server outside of a transaction, where the claim would be recorded alone.
        tx.run(&format!("SAVEPOINT semel_claim; {BEGUN}")).await?;
        let mut asked = tx.ask(&about.statements.claim, &ask.parameters()).await;
        if asked.as_ref().is_err_and(|error| about.lacks_partition(error)) {
            tx.run(&format!("{BACK}; {BEGUN}")).await?;
            // Over a second connection, while the caller holds one: if all do, there is none to give.
            match timeout(PARTITION_WAIT, self.partition_for(&ask.day)).await {
                Ok(Stop::Again(_)) => {}
                Ok(stop) => return Err(into_store(stop)),
                Err(_) => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "inbox: the event's day lacks a partition, and no connection was free to make it; give the \
                         inbox a pool of its own",
                    ));
                }
            }
            asked = tx.ask(&about.statements.claim, &ask.parameters()).await;
        }
        let said = match asked {
            Ok(said) => said,
            Err(error) if error.is_locked() => {
                tx.run(BACK).await?;
                return Ok(Claimed::Busy);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match Standing::read(said.as_deref())? {
            Standing::Busy => Claimed::Busy,
            Standing::Duplicate => Claimed::Duplicate(about.outcome(tx, ask.row()).await?),
            Standing::New => {
                Claimed::New(InboxClaim { about: about.clone(), id: ask.id, day: ask.day })
            }
        })
    }
}

/// The parameters of a claim.
pub(crate) struct Ask {
    patience: String,
    lock: String,
    pub(crate) id: String,
    event_type: String,
    consumer: String,
    pub(crate) day: String,
}

impl Ask {
    pub(crate) fn parameters(&self) -> [&str; 6] {
        let Self { patience, lock, id, event_type, consumer, day } = self;
        [patience, lock, id, event_type, consumer, day]
    }

    pub(crate) fn row(&self) -> Row<'_> {
        Row { id: &self.id, day: &self.day }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    New,
    Duplicate,
    Busy,
}

impl Standing {
    pub(crate) fn read(said: Option<&str>) -> Result<Self> {
        match said {
            Some("new") => Ok(Self::New),
            Some("duplicate") => Ok(Self::Duplicate),
            Some("busy") => Ok(Self::Busy),
            Some("outside") => Err(Error::new(
                ErrorKind::Unavailable,
                "inbox: the transaction did not begin, and nothing happened",
            )),
            _ => Err(odd()),
        }
    }
}

impl About {
    pub(crate) fn ask(&self, event: &InboxEvent, context: &InboxContext) -> Result<Ask> {
        let lock: [u8; 8] = std::array::from_fn(|at| context.key.as_bytes()[at]);
        Ok(Ask {
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
        rows: &[(Row<'_>, &Outcome)],
    ) -> Result<(), TxError> {
        // That an event failed for good is always written down, where the table can say it.
        let worth = |(_, outcome): &&(Row<'_>, &Outcome)| match outcome.is_success() {
            true => self.keeps_outcomes() && !says_nothing(outcome),
            false => self.variant.keeps_outcomes(),
        };
        let rows: Vec<_> = rows.iter().filter(worth).collect();
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
        let said = tx.ask(&self.statements.record, &parameters).await?;
        // A handler that deleted its own claim would run again.
        match said.and_then(|count| count.parse().ok()) == Some(rows.len()) {
            true => Ok(()),
            false => Err(TxError::new(
                Some("XX000".to_owned()),
                "the claim is gone from its own transaction",
            )),
        }
    }

    /// The outcome of one row, if one is kept.
    pub(crate) async fn outcome(
        &self,
        tx: &mut impl InboxTx,
        row: Row<'_>,
    ) -> Result<Option<Arc<Outcome>>> {
        Ok(self.outcomes(tx, &[row]).await?.remove(row.id))
    }

    /// The outcomes of these rows, by id. In a statement of its own: only that sees what a twin committed.
    pub(crate) async fn outcomes(
        &self,
        tx: &mut impl InboxTx,
        rows: &[Row<'_>],
    ) -> Result<HashMap<String, Arc<Outcome>>> {
        if rows.is_empty() || !self.variant.keeps_outcomes() {
            return Ok(HashMap::new());
        }
        let ids = array(rows.iter().map(|row| row.id));
        let days = array(rows.iter().map(|row| row.day));
        let said = tx.ask(&self.statements.outcomes, &[&ids, &self.consumer, &days]).await?;
        let found: Vec<(String, bool, Option<i16>, Option<String>)> =
            serde_json::from_str(said.as_deref().unwrap_or_default()).map_err(|_| odd())?;
        let found = found.into_iter().map(|(id, failed, format, bytes)| {
            Ok(unpacked(failed, format, bytes)?.map(|outcome| (id, outcome)))
        });
        found.filter_map(Result::transpose).collect()
    }
}

fn into_store(stop: Stop) -> Error {
    match stop.into_error() {
        InboxError::Store(error) => error,
        other => Error::new(ErrorKind::Unavailable, other.to_string()),
    }
}

/// A success without a value is what a row says by itself.
fn says_nothing(outcome: &Outcome) -> bool {
    *outcome == nothing()
}

fn nothing() -> Outcome {
    Outcome::json(&()).unwrap_or_else(|_| Outcome::success("null"))
}

fn unpacked(
    failed: bool,
    format: Option<i16>,
    bytes: Option<String>,
) -> Result<Option<Arc<Outcome>>> {
    match (format, bytes) {
        (Some(format @ (0 | 1)), Some(bytes)) => {
            let bytes = unhex(&bytes).ok_or_else(odd)?;
            codec::unpack(Bytes::from(bytes), format == 1).map(Some)
        }
        (None, None) if failed => {
            Ok(Some(Arc::new(Outcome::failure("failed", "the reason was not kept"))))
        }
        (None, None) => Ok(None),
        _ => Err(odd()),
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

fn odd() -> Error {
    Error::new(ErrorKind::Corrupt, "inbox: the server answered something else than was asked")
}
