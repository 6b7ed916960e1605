//! Committed offsets, read while consumers and broker are killed, and compared with what was done at that time.

use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};

use super::{
    broker::{GroupOffsets, PATIENCE},
    evidence::{Line, Step},
};

const LOOK: Duration = Duration::from_millis(2);

/// Reads the committed offsets again and again on a thread of its own, and writes those that have changed to the ledger.
/// A line is written after the broker has answered, so what had to be done by then stands before it.
pub(super) struct OffsetWatch {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<GroupOffsets>>>,
}

impl OffsetWatch {
    pub(super) fn start(group: GroupOffsets, ledger: &Path) -> Result<Self> {
        let mut ledger = File::options().append(true).open(ledger)?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let thread = thread::spawn(move || {
            let mut last = Vec::new();
            let mut answered_at = Instant::now();
            loop {
                // One more look after the end.
                let is_last = ended.load(SeqCst);
                // An error: the broker was killed, and answers later.
                if let Ok(committed) = group.committed() {
                    answered_at = Instant::now();
                    last.resize(committed.len(), 0);
                    for (partition, (next, before)) in committed.iter().zip(&last).enumerate() {
                        if next != before {
                            let line = Line::Committed { partition, next: *next };
                            ledger.write_all(line.to_string().as_bytes())?;
                        }
                    }
                    last = committed;
                    if is_last {
                        return Ok(group);
                    }
                }
                ensure!(answered_at.elapsed() < PATIENCE, "no committed offsets can be read");
                sleep(LOOK);
            }
        });
        Ok(Self { is_ended, thread: Some(thread) })
    }

    /// Ends the watch. Returns the ids of the events of all records, by partition and offset.
    pub(super) fn end(mut self) -> Result<Vec<Vec<String>>> {
        self.is_ended.store(true, SeqCst);
        let thread = self.thread.take().context("the watch runs")?;
        thread.join().map_err(|_| anyhow!("the watch of the offsets panicked"))??.events()
    }
}

impl Drop for OffsetWatch {
    /// The thread ends by itself.
    fn drop(&mut self) {
        self.is_ended.store(true, SeqCst);
    }
}

/// What the ledger says about committed offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OffsetFindings {
    /// Committed offsets that were read.
    pub(super) read: usize,
    /// What the promises do not allow.
    pub(super) wrong: Vec<String>,
}

impl OffsetFindings {
    /// Compares each committed offset with the lines before and after it. No offset goes back. Each event below it has
    /// succeeded or is a dead letter before it was read; and since its outcome was recorded by then, it never runs again.
    pub(super) fn of(events: &[Vec<String>], ledger: &[Line]) -> Self {
        let mut findings = Self::default();
        let (mut done, mut passed) = (HashSet::new(), HashSet::new());
        let mut committed = vec![0; events.len()];
        for line in ledger {
            match line {
                Line::Event { step: Step::Succeeded | Step::DeadLettered, id, .. } => {
                    done.insert(id);
                }
                Line::Event { step: Step::Begins, id, process } if passed.contains(id) => {
                    findings.wrong.push(format!(
                        "{id} ran in process {process} after an offset behind it was committed"
                    ));
                }
                Line::Committed { partition, next } => {
                    findings.read += 1;
                    let (events, last) = (&events[*partition], &mut committed[*partition]);
                    let next = usize::try_from(*next).unwrap_or_default();
                    if next < *last {
                        findings.wrong.push(format!(
                            "the committed offset of partition {partition} went from {last} back to {next}"
                        ));
                    }
                    for id in events.iter().take(next).skip(*last) {
                        passed.insert(id);
                        if !done.contains(id) {
                            findings.wrong.push(format!(
                                "{next} was committed in partition {partition} before {id} was done"
                            ));
                        }
                    }
                    *last = next;
                }
                Line::Event { .. } | Line::Killed { .. } => {}
            }
        }
        for (partition, (events, last)) in events.iter().zip(committed).enumerate() {
            if events.len() != last {
                let end = events.len();
                findings.wrong.push(format!(
                    "partition {partition} has {end} records, and {last} was committed last"
                ));
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found for one partition with these events.
    fn wrong(events: &[&str], ledger: &str) -> Vec<String> {
        let lines: Vec<Line> = ledger.lines().map(|line| line.parse().unwrap()).collect();
        OffsetFindings::of(&[events.iter().map(|&id| id.to_owned()).collect()], &lines).wrong
    }

    #[test]
    fn offsets_that_follow_what_is_done_are_allowed() {
        let ledger = "\
begins 1 plain-1
begins 1 plain-2
succeeded 1 plain-2
succeeded 1 plain-1
committed 0 2
begins 1 refused-3
refused 1 refused-3
dead-lettered 1 refused-3
committed 0 4";
        assert!(wrong(&["plain-1", "plain-2", "refused-3", "plain-1"], ledger).is_empty());
    }

    #[test]
    fn an_offset_that_goes_back_is_found() {
        let ledger = "succeeded 1 plain-1\ncommitted 0 1\ncommitted 0 0\ncommitted 0 1";
        let wrong = wrong(&["plain-1"], ledger);
        assert_eq!(wrong, ["the committed offset of partition 0 went from 1 back to 0"]);
    }

    #[test]
    fn an_offset_that_passes_an_event_too_early_is_found() {
        for too_early in [
            "begins 1 plain-1\ncommitted 0 1\nsucceeded 1 plain-1",
            "begins 1 plain-1\nfailed 1 plain-1\ncommitted 0 1",
            "begins 1 plain-1\nrefused 1 plain-1\ncommitted 0 1",
        ] {
            let wrong = wrong(&["plain-1"], too_early);
            assert_eq!(wrong, ["1 was committed in partition 0 before plain-1 was done"]);
        }
    }

    #[test]
    fn an_event_that_runs_again_after_its_offset_was_committed_is_found() {
        let ledger = "\
begins 1 plain-1
succeeded 1 plain-1
committed 0 1
killed 1
begins 2 plain-1
succeeded 2 plain-1
committed 0 2";
        let wrong = wrong(&["plain-1", "plain-1"], ledger);
        assert_eq!(wrong, ["plain-1 ran in process 2 after an offset behind it was committed"]);
    }

    #[test]
    fn a_record_that_is_never_committed_is_found() {
        let wrong = wrong(&["plain-1"], "succeeded 1 plain-1");
        assert_eq!(wrong, ["partition 0 has 1 records, and 0 was committed last"]);
    }
}
