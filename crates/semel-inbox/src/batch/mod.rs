//! Many events in one transaction.

mod handlers;
mod results;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    slice,
    time::Duration,
};

use semel_core::{Error, ErrorKind, Outcome, WorkError};
use serde::{Serialize, de::DeserializeOwned};

use self::{
    handlers::{Each, Run, Together},
    results::Ended,
};
use crate::{
    Done, InboxContext, InboxError, InboxEvent, InboxPool, InboxTransaction, InboxTx, InboxVariant,
    PgInbox,
    claim::Row,
    inbox::About,
    process::{BEGIN, Stop, again, pause},
    sql::array,
    transaction::TxError,
};

/// Parts of a batch that may be found locked before such parts are not looked into any more.
const LOCKED_AT_MOST: usize = 40;

/// How long each of them is waited for.
const PART_PATIENCE: Duration = Duration::from_millis(5);

/// How one event of a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Duplicate,
    Busy,
    /// The same event as an earlier one of the batch.
    Twin(usize),
    /// The table cannot hold it: its own error says why.
    Refused,
}

/// A batch: what is asked of the table, and how each event stands.
struct Batch<'e> {
    events: &'e [InboxEvent],
    ids: Vec<String>,
    days: Vec<&'e str>,
    standing: Vec<Standing>,
    refused: HashMap<usize, Error>,
}

impl<'e> Batch<'e> {
    fn new(about: &About, events: &'e [InboxEvent]) -> Self {
        let (mut ids, mut days, mut refused) = (Vec::new(), Vec::new(), HashMap::new());
        for (at, event) in events.iter().enumerate() {
            let row = about.id(event).and_then(|id| Ok((id, about.day(event)?)));
            let (id, day) = row.unwrap_or_else(|error| {
                refused.insert(at, error);
                Default::default()
            });
            ids.push(id);
            days.push(day);
        }
        let mut batch = Self { events, ids, days, standing: Vec::new(), refused };
        if about.variant == InboxVariant::Partitioned {
            batch.refuse_other_days();
        }
        batch.stand();
        batch
    }

    /// Whoever counts ids anew each day has two events here, and whoever sends one with two days has one. Nobody
    /// can say which, so the second is not taken for a duplicate.
    fn refuse_other_days(&mut self) {
        let mut days: HashMap<&str, &str> = HashMap::new();
        for (at, id) in self.ids.iter().enumerate() {
            if !self.refused.contains_key(&at)
                && *days.entry(id).or_insert(self.days[at]) != self.days[at]
            {
                let error = Error::invalid(
                    "inbox: an id comes twice in a batch, with two days; every copy of an event carries the same \
                     day, and an id names one event",
                );
                self.refused.insert(at, error);
            }
        }
    }

    /// How they stand before anybody asked. What is refused has no twins: a copy of it may be sound.
    fn stand(&mut self) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        let stand = |(at, id)| match self.refused.contains_key(&at) {
            true => Standing::Refused,
            false => match *first.entry(id).or_insert(at) {
                first if first == at => Standing::Busy,
                first => Standing::Twin(first),
            },
        };
        self.standing = self.ids.iter().map(String::as_str).enumerate().map(stand).collect();
    }

    /// Gives the events of these days their own error; the others stand as at first.
    fn refuse(&mut self, days: &HashMap<String, Error>) {
        for (at, day) in self.days.iter().enumerate() {
            if let Some(error) = days.get(*day) {
                self.refused.entry(at).or_insert_with(|| error.clone());
            }
        }
        self.stand();
    }

    /// The days of what is not refused.
    fn open_days(&self) -> BTreeSet<&'e str> {
        let at = (0..self.events.len()).filter(|at| !self.refused.contains_key(at));
        at.map(|at| self.days[at]).collect()
    }

    fn refusal(&self, at: usize) -> InboxError {
        let unsaid = || Error::invalid("inbox: an event that was refused without a word");
        InboxError::Store(self.refused.get(&at).cloned().unwrap_or_else(unsaid))
    }

    fn row(&self, at: usize) -> Row<'_> {
        Row { id: &self.ids[at], day: self.days[at] }
    }

    fn all(&self, standing: Standing) -> impl Iterator<Item = usize> {
        (0..self.events.len()).filter(move |at| self.standing[*at] == standing)
    }

    /// Those that are not twins, by id: two batches then lock in the same order.
    fn sorted(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.all(Standing::Busy).collect();
        places.sort_unstable_by(|one, other| self.ids[*one].cmp(&self.ids[*other]));
        places
    }

    fn settle(&mut self, places: &[usize], new: &HashSet<String>) {
        for at in places {
            let is_new = new.contains(&self.ids[*at]);
            self.standing[*at] = if is_new { Standing::New } else { Standing::Duplicate };
        }
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// Runs `handler` once for all of these events that are new, in one transaction: for work that is one
    /// statement over many rows. An event that the table cannot hold, such as one of a day that was dropped, is
    /// answered with its own error, and the others go on. Answers in the order of `events`.
    ///
    /// # Errors
    ///
    /// When the handler or the server fails, and then nothing of the batch is written or recorded: deliver it
    /// again. Use [`PgInbox::process_each`] where one bad event must not hold up the others.
    pub async fn process_batch<F>(
        &self,
        events: &[InboxEvent],
        handler: F,
    ) -> Result<Vec<Result<Done<()>, InboxError>>, InboxError>
    where
        F: AsyncFn(&mut P::Tx, &[&InboxEvent]) -> Result<(), WorkError>,
    {
        let done = self.in_batch(events, &Together(handler)).await;
        let (batch, ended) = done.map_err(Stop::into_error)?;
        Ok(ended.answers(&batch))
    }

    /// Runs `handler` for each of these events that is new, each under a savepoint, in one transaction. An event
    /// whose handler fails is not recorded, or recorded as failed for good, and one that the table cannot hold is
    /// answered with its own error; the others are not disturbed. Answers in the order of `events`.
    ///
    /// What a constraint defers to the commit is looked at after each handler. If the server refuses the commit all
    /// the same, for what others did meanwhile, nothing is written, and each event runs once more in a transaction of
    /// its own.
    ///
    /// # Errors
    ///
    /// When the server fails, and then nothing of the batch is written.
    pub async fn process_each<T, F>(
        &self,
        events: &[InboxEvent],
        handler: F,
    ) -> Result<Vec<Result<Done<T>, InboxError>>, InboxError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxEvent, &InboxContext) -> Result<T, WorkError>,
    {
        let each = Each(handler);
        match self.in_batch(events, &each).await {
            Ok((batch, ended)) => Ok(ended.answers(&batch)),
            Err(Stop::Uncommitted(_)) if events.len() > 1 => {
                Ok(self.one_by_one(events, &each).await)
            }
            Err(Stop::Uncommitted(error)) => Ok(vec![Err(Stop::Uncommitted(error).into_error())]),
            Err(stop) => Err(stop.into_error()),
        }
    }

    /// One of these events is why the batch cannot be committed, and only alone it can be told from the others.
    async fn one_by_one<T: Serialize + DeserializeOwned>(
        &self,
        events: &[InboxEvent],
        run: &impl Run<P, T>,
    ) -> Vec<Result<Done<T>, InboxError>> {
        let together = Batch::new(&self.about, events);
        let mut away: Option<Error> = None;
        let mut answers = Vec::with_capacity(events.len());
        for (at, event) in events.iter().enumerate() {
            if let Some(error) = together.refused.get(&at).or(away.as_ref()) {
                answers.push(Err(InboxError::Store(error.clone())));
                continue;
            }
            answers.extend(match self.in_batch(slice::from_ref(event), run).await {
                Ok((batch, ended)) => ended.answers(&batch),
                Err(stop) => {
                    let error = stop.into_error();
                    // The server does not answer; it would not answer for the others either.
                    if let InboxError::Store(store) = &error
                        && store.kind() == ErrorKind::Unavailable
                    {
                        away = Some(store.clone());
                    }
                    vec![Err(error)]
                }
            });
        }
        answers
    }

    /// Claims a batch, lets `run` do its part, and commits.
    async fn in_batch<'e, T>(
        &self,
        events: &'e [InboxEvent],
        run: &impl Run<P, T>,
    ) -> Result<(Batch<'e>, Ended<T>), Stop> {
        let mut round = 0;
        loop {
            round += 1;
            let attempt = async {
                let mut batch = Batch::new(&self.about, events);
                let mut tx = self.claim_batch(&mut batch).await?;
                match run.run(self, &mut tx, &batch).await {
                    Ok(ran) => {
                        tx.commit().await.map_err(Stop::at_commit)?;
                        Ok((batch, ran))
                    }
                    Err(stop) => {
                        let _ = tx.roll_back().await;
                        Err(stop)
                    }
                }
            };
            match attempt.await {
                Err(Stop::Again(_)) if round < self.about.options.policy.attempts => {
                    pause(round).await;
                }
                done => return done,
            }
        }
    }

    /// Begins a transaction in which the new events of the batch are claimed. Days that have no partition get one,
    /// or their events an error.
    async fn claim_batch(&self, batch: &mut Batch<'_>) -> Result<P::Tx, Stop> {
        match self.claim_at_once(batch).await {
            // No connection is held here: making a partition takes one.
            Err(error) if self.about.lacks_partition(&error) => {
                batch.refuse(&self.make_missing(batch.open_days()).await?);
            }
            claimed => return Ok(claimed?),
        }
        match self.claim_at_once(batch).await {
            Err(error) if self.about.lacks_partition(&error) => {
                Err(again("partitions were missing"))
            }
            claimed => Ok(claimed?),
        }
    }

    /// No locks but those of the rows: a server has few others, and a batch is large.
    async fn claim_at_once(&self, batch: &mut Batch<'_>) -> Result<P::Tx, TxError> {
        let about = &self.about;
        let places = batch.sorted();
        let asked = Asked::new(about, batch, &places);
        match self.pool.begin(BEGIN, &about.statements.claim_many, &asked.parameters()).await {
            Ok((tx, said)) => {
                batch.settle(&places, &ids_in(said.as_deref())?);
                Ok(tx)
            }
            Err(error) if error.is_locked() => self.claim_parts(batch, places).await,
            Err(error) => Err(error),
        }
    }

    /// Some events are locked by others: halves of the batch are tried until they are found.
    async fn claim_parts(
        &self,
        batch: &mut Batch<'_>,
        places: Vec<usize>,
    ) -> Result<P::Tx, TxError> {
        let (mut tx, _) = self.pool.begin(BEGIN, "SELECT '1'::text", &[]).await?;
        match self.claim_each_part(&mut tx, batch, places).await {
            Ok(()) => Ok(tx),
            Err(error) => {
                // Before anybody asks again: what was claimed so far would be in the way.
                let _ = tx.roll_back().await;
                Err(error)
            }
        }
    }

    async fn claim_each_part(
        &self,
        tx: &mut P::Tx,
        batch: &mut Batch<'_>,
        places: Vec<usize>,
    ) -> Result<(), TxError> {
        let about = &self.about;
        let (mut parts, mut locked) = (vec![places], 0);
        while let Some(mut part) = parts.pop() {
            tx.run("SAVEPOINT semel_part").await?;
            let asked = Asked::new(about, batch, &part).hurried(about);
            match tx.ask(&about.statements.claim_many, &asked.parameters()).await {
                Ok(said) => batch.settle(&part, &ids_in(said.as_deref())?),
                Err(error) if error.is_locked() => {
                    tx.run("ROLLBACK TO SAVEPOINT semel_part").await?;
                    locked += 1;
                    // A part that is not looked into any more stays busy, and is delivered again.
                    if part.len() > 1 && locked < LOCKED_AT_MOST {
                        // In the order of ids here too.
                        let rest = part.split_off(part.len() / 2);
                        parts.extend([rest, part]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What the duplicates of a batch are answered with.
    async fn recorded(
        &self,
        tx: &mut P::Tx,
        batch: &Batch<'_>,
    ) -> Result<HashMap<String, std::sync::Arc<Outcome>>, Error> {
        let duplicates: Vec<Row<'_>> =
            batch.all(Standing::Duplicate).map(|at| batch.row(at)).collect();
        self.about.outcomes(tx, &duplicates).await
    }

    /// Records what came to an end, and takes back the claims of what did not.
    async fn settle<T: Serialize>(
        &self,
        tx: &mut P::Tx,
        batch: &Batch<'_>,
        ended: &Ended<T>,
    ) -> Result<(), Stop> {
        let recorded: Vec<_> = ended.outcomes.iter().map(|(at, it)| (batch.row(*at), it)).collect();
        self.about.record(tx, &recorded).await?;
        let open: Vec<Row<'_>> = ended.open.keys().map(|at| batch.row(*at)).collect();
        if open.is_empty() {
            return Ok(());
        }
        let (ids, days) =
            (array(open.iter().map(|row| row.id)), array(open.iter().map(|row| row.day)));
        let parameters: [&str; 3] = [&ids, &self.about.consumer, &days];
        let said = tx.ask(&self.about.statements.unclaim, &parameters).await?;
        match said.and_then(|count| count.parse().ok()) == Some(open.len()) {
            true => Ok(()),
            false => Err(again("claims are gone from their own transaction")),
        }
    }
}

/// The parameters of a claim of many.
struct Asked([String; 5]);

impl Asked {
    fn new(about: &About, batch: &Batch<'_>, places: &[usize]) -> Self {
        let places = || places.iter().copied();
        Self([
            about.patience(),
            array(places().map(|at| batch.ids[at].as_str())),
            array(places().map(|at| batch.events[at].event_type())),
            about.consumer.clone(),
            array(places().map(|at| batch.days[at])),
        ])
    }

    /// With less patience, for one of many that may be locked.
    fn hurried(mut self, about: &About) -> Self {
        self.0[0] = about.patience_of_at_most(PART_PATIENCE);
        self
    }

    fn parameters(&self) -> [&str; 5] {
        self.0.each_ref().map(String::as_str)
    }
}

fn ids_in(said: Option<&str>) -> Result<HashSet<String>, TxError> {
    if said == Some("outside") {
        return Err(TxError::new(None, "the transaction did not begin"));
    }
    let odd = |error| TxError::new(Some("XX000".to_owned()), error);
    serde_json::from_str(said.unwrap_or_default()).map_err(odd)
}
