//! What the ledger, the store and the dead letters say at the end, compared with the promises.

use std::{
    collections::{HashMap, HashSet},
    fmt, fs,
    path::Path,
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use semel_consumer::dead_letter::DeadLetterReason;
use semel_core::{Body, ListQuery, Record, State, Store};

use super::{broker::Addresses, committed::OffsetFindings};

/// A step of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Begins,
    Succeeded,
    Refused,
    /// The attempt failed, and may be repeated.
    Failed,
    /// The dead letter was published, and nothing that follows from it has happened yet.
    DeadLettered,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Event {
        step: Step,
        process: u32,
        id: String,
    },
    /// The process has ended: what it ran may run again from this line on.
    Killed {
        process: u32,
    },
    /// A broker with partitions had committed `next` when it was read.
    Committed {
        partition: usize,
        next: i64,
    },
}

const STEPS: [(Step, &str); 5] = [
    (Step::Begins, "begins"),
    (Step::Succeeded, "succeeded"),
    (Step::Refused, "refused"),
    (Step::Failed, "failed"),
    (Step::DeadLettered, "dead-lettered"),
];

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event { step, process, id } => {
                let (_, name) = STEPS.iter().find(|(it, _)| it == step).ok_or(fmt::Error)?;
                writeln!(f, "{name} {process} {id}")
            }
            Self::Killed { process } => writeln!(f, "killed {process}"),
            Self::Committed { partition, next } => writeln!(f, "committed {partition} {next}"),
        }
    }
}

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["killed", process] => Ok(Self::Killed { process: process.parse()? }),
            ["committed", partition, next] => {
                Ok(Self::Committed { partition: partition.parse()?, next: next.parse()? })
            }
            [step, process, id] => {
                let (step, _) =
                    STEPS.iter().find(|(_, name)| *name == step).context("a known step")?;
                Ok(Self::Event { step: *step, process: process.parse()?, id: id.to_owned() })
            }
            _ => bail!("the ledger has the line {line:?}"),
        }
    }
}

pub(super) fn read(ledger: &Path) -> Result<Vec<Line>> {
    fs::read_to_string(ledger)?.lines().map(str::parse).collect()
}

/// How many events have what they must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerTally {
    /// Events.
    pub events: usize,
    /// Runs of all events.
    pub runs: usize,
    /// Runs after a process was killed during an earlier one, or before its outcome was recorded.
    pub repeated: usize,
    /// Recorded outcomes.
    pub outcomes: usize,
    /// Dead letters.
    pub letters: usize,
    /// Committed offsets that were read during the run, for a broker that has them.
    pub offsets: usize,
    /// What the promises do not allow.
    pub wrong: Vec<String>,
}

impl fmt::Display for ConsumerTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, runs, repeated, outcomes, letters, offsets, wrong } = self;
        write!(f, "{events} events, {runs} runs ({repeated} after a kill), ")?;
        write!(f, "{outcomes} outcomes, {letters} dead letters")?;
        if *offsets > 0 {
            write!(f, ", {offsets} committed offsets")?;
        }
        wrong.iter().take(20).try_for_each(|wrong| write!(f, "\n  BROKEN {wrong}"))
    }
}

/// The last run of an event.
#[derive(Clone, Copy)]
struct LastRun {
    process: u32,
    /// `None` while it runs.
    ended: Option<Step>,
}

impl ConsumerTally {
    /// Reads the runs of all events. A run is allowed if it is the first, if the last one failed in a way that may be
    /// repeated, or if the process of the last one was killed.
    pub(super) fn of(ids: &[String], ledger: &[Line]) -> Self {
        let mut tally = Self { events: ids.len(), ..Self::default() };
        let mut last: HashMap<&str, LastRun> = HashMap::new();
        let mut killed = HashSet::new();
        for line in ledger {
            let (step, process, id) = match line {
                Line::Event { step, process, id } => (step, process, id),
                Line::Killed { process } => {
                    killed.insert(*process);
                    continue;
                }
                Line::Committed { .. } => continue,
            };
            match step {
                Step::Begins => {
                    tally.runs += 1;
                    let run = LastRun { process: *process, ended: None };
                    let Some(earlier) = last.insert(id, run) else { continue };
                    if earlier.ended == Some(Step::Failed) {
                        continue;
                    }
                    tally.repeated += 1;
                    if !killed.contains(&earlier.process) {
                        let LastRun { process: other, ended } = earlier;
                        tally.wrong.push(format!(
                            "{id} ran in process {process} though process {other} lived and its run ended as {ended:?}"
                        ));
                    }
                }
                Step::Succeeded | Step::Refused | Step::Failed => match last.get_mut(&**id) {
                    Some(run) if run.process == *process => run.ended = Some(*step),
                    // A killed process writes nothing after its kill was noted.
                    _ => tally.wrong.push(format!("{id} ended in process {process}, not begun")),
                },
                // Whether it had to be one is compared at the end.
                Step::DeadLettered => {}
            }
        }
        tally
    }

    /// Compares the committed offsets in the ledger with what was done when they were read.
    pub(super) fn compare_offsets(&mut self, events: &[Vec<String>], ledger: &[Line]) {
        let OffsetFindings { read, wrong } = OffsetFindings::of(events, ledger);
        self.offsets = read;
        self.wrong.extend(wrong);
    }

    /// Every event has one record with its own outcome; those that cannot succeed have one dead letter, and no other
    /// has one.
    pub(super) async fn compare_records(
        &mut self,
        servers: &Addresses,
        ids: &[String],
    ) -> Result<()> {
        let starting_with = |kind: &str| -> HashSet<String> {
            ids.iter().filter(|id| id.starts_with(kind)).cloned().collect()
        };
        let (refused, poison) = (starting_with("refused"), starting_with("poison"));
        let fails = |id: &String| refused.contains(id) || poison.contains(id);
        let succeed: HashSet<_> = ids.iter().filter(|id| !fails(id)).cloned().collect();

        let records = records(&servers.store().await?).await?;
        let (mut succeeded, mut failures, mut dead) = (HashSet::new(), 0, 0);
        for record in &records {
            match (record.state, &record.outcome) {
                (State::Dead, _) => dead += 1,
                (State::Completed, Some(outcome)) if outcome.as_failure().is_some() => {
                    failures += 1
                }
                (State::Completed, Some(outcome)) => {
                    let Body::Kept(id) = outcome.body() else { bail!("an outcome without a body") };
                    let id: String = serde_json::from_slice(id)?;
                    if !succeeded.insert(id.clone()) {
                        self.wrong.push(format!("{id} has two outcomes"));
                    }
                }
                (state, _) => self.wrong.push(format!("the state of a record is {state:?}")),
            }
        }
        self.outcomes = succeeded.len() + failures + dead;
        self.expect_same("a success", &succeed, &succeeded);
        self.expect_count("recorded failures", refused.len(), failures);
        self.expect_count("dead keys", poison.len(), dead);

        let sink = servers.broker().dead_letters().await?;
        let (mut failed, mut exhausted) = (HashSet::new(), HashSet::new());
        let mut after = None;
        loop {
            let page = sink.list(after.as_deref(), 500).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            for letter in page {
                self.letters += 1;
                let id = letter.event_id.context("a letter names its event")?;
                match letter.reason {
                    DeadLetterReason::Failed => failed.insert(id),
                    DeadLetterReason::AttemptsExhausted => exhausted.insert(id),
                    other => bail!("{id} is a dead letter because of {other:?}"),
                };
            }
        }
        self.expect_same("a dead letter", &refused, &failed);
        self.expect_same("a dead letter after its last attempt", &poison, &exhausted);
        self.expect_count("dead letters", refused.len() + poison.len(), self.letters);
        Ok(())
    }

    fn expect_same(&mut self, what: &str, wanted: &HashSet<String>, found: &HashSet<String>) {
        for id in wanted.difference(found) {
            self.wrong.push(format!("{id} has no {what}").replace("no a ", "no "));
        }
        for id in found.difference(wanted) {
            self.wrong.push(format!("{id} has {what}"));
        }
    }

    fn expect_count(&mut self, what: &str, wanted: usize, found: usize) {
        if wanted != found {
            self.wrong.push(format!("{found} {what}, expected {wanted}"));
        }
    }
}

async fn records(store: &dyn Store) -> Result<Vec<Record>> {
    let mut query = ListQuery { limit: 500, ..ListQuery::default() };
    let mut records = Vec::new();
    loop {
        let page = store.list(&query).await?;
        let Some(last) = page.last() else { return Ok(records) };
        query.after = Some(last.key);
        records.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a ledger whose only event is `plain-1`.
    fn wrong(ledger: &str) -> usize {
        let lines: Vec<Line> = ledger.lines().map(|line| line.parse().unwrap()).collect();
        ConsumerTally::of(&["plain-1".to_owned()], &lines).wrong.len()
    }

    #[test]
    fn runs_with_a_reason_are_allowed() {
        assert_eq!(wrong("begins 1 plain-1\nsucceeded 1 plain-1"), 0);
        assert_eq!(wrong("begins 1 plain-1\nkilled 1\nbegins 2 plain-1\nsucceeded 2 plain-1"), 0);
        let recorded_too_late = "begins 1 plain-1\nsucceeded 1 plain-1\nkilled 1\nbegins 2 plain-1\nsucceeded 2 plain-1";
        assert_eq!(wrong(recorded_too_late), 0);
        assert_eq!(wrong("begins 1 plain-1\nfailed 1 plain-1\nbegins 2 plain-1"), 0);
    }

    #[test]
    fn a_run_beside_a_living_process_is_found() {
        assert_eq!(wrong("begins 1 plain-1\nbegins 2 plain-1"), 1);
        assert_eq!(wrong("begins 1 plain-1\nsucceeded 1 plain-1\nbegins 1 plain-1"), 1);
        assert_eq!(wrong("begins 1 plain-1\nbegins 2 plain-1\nkilled 1"), 1, "killed afterwards");
        assert_eq!(wrong("begins 1 plain-1\nkilled 2\nbegins 3 plain-1"), 1, "another was killed");
    }
}
