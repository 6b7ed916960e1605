//! What the processes of one promise did, in order.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::KeyHash;
use tokio::time::{Instant, sleep};

use crate::breakable::Switch;

/// Pauses between two looks at the journal.
const LOOK: Duration = Duration::from_millis(10);
/// Entries that are shown when something does not happen.
const SHOWN: usize = 60;

/// One step with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The source handed a message over.
    Received,
    /// The handler started.
    Ran { attempt: u32 },
    /// The handler's effect happened, with this downstream key.
    Effect { key: String },
    /// The handler ended.
    Ended { succeeded: bool },
    /// The dead-letter sink has the letter with this id.
    Published { id: String },
    /// The dead-letter sink did not take a letter.
    Unpublished,
    /// The store has the outcome.
    Recorded,
    /// An acknowledgement was sent.
    Acked,
    /// The message was given back.
    Nacked(Duration),
    /// A rejection was sent.
    Rejected,
    /// A settlement was lost on its way to the broker.
    Lost,
}

/// A step, and which process took it with which event.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) process: usize,
    pub(super) id: Arc<str>,
    pub(super) step: Step,
}

type KillPoint = Box<dyn Fn(&Entry) -> bool + Send>;

/// The journal that all processes of one promise write to.
#[derive(Default)]
pub(super) struct Journal(Mutex<JournalState>);

#[derive(Default)]
struct JournalState {
    entries: Vec<Entry>,
    /// A switch for each process: set once it is dead.
    dead: Vec<Switch>,
    kill_point: Option<KillPoint>,
    /// The events of the keys that have a dead letter.
    ids: HashMap<KeyHash, Arc<str>>,
    recorded: usize,
}

impl Journal {
    /// Numbers a process that is killed by this switch.
    pub(super) fn add_process(&self, dead: Switch) -> usize {
        let mut state = self.0.lock();
        state.dead.push(dead);
        state.dead.len() - 1
    }

    /// Kills the process that writes the next entry that matches. From then on nothing leaves that process.
    pub(super) fn kill_at(&self, matches: impl Fn(&Entry) -> bool + Send + 'static) {
        self.0.lock().kill_point = Some(Box::new(matches));
    }

    pub(super) fn write(&self, process: usize, id: &Arc<str>, step: Step) {
        let mut state = self.0.lock();
        let entry = Entry { process, id: id.clone(), step };
        if state.kill_point.as_ref().is_some_and(|matches| matches(&entry)) {
            state.kill_point = None;
            state.dead[process].set(true);
        }
        if entry.step == Step::Recorded {
            state.recorded += 1;
        }
        state.entries.push(entry);
    }

    /// Remembers which event has this key.
    pub(super) fn learn(&self, key: KeyHash, id: &Arc<str>) {
        self.0.lock().ids.insert(key, id.clone());
    }

    /// The event with this key, if it has a dead letter.
    pub(super) fn event(&self, key: &KeyHash) -> Option<Arc<str>> {
        self.0.lock().ids.get(key).cloned()
    }

    /// Outcomes that were recorded.
    pub(super) fn recorded(&self) -> usize {
        self.0.lock().recorded
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.lock().entries.clone()
    }

    /// Entries that match.
    pub(super) fn count(&self, matches: impl Fn(&Entry) -> bool) -> usize {
        self.0.lock().entries.iter().filter(|entry| matches(entry)).count()
    }

    /// The steps of one event, in order.
    pub(super) fn steps(&self, id: &str) -> Vec<Step> {
        let state = self.0.lock();
        state
            .entries
            .iter()
            .filter(|entry| &*entry.id == id)
            .map(|entry| entry.step.clone())
            .collect()
    }

    /// How often the handler started for an event.
    pub(super) fn runs(&self, id: &str) -> usize {
        self.count(|entry| &*entry.id == id && matches!(entry.step, Step::Ran { .. }))
    }

    /// Waits until this many entries match.
    pub(super) async fn until(
        &self,
        patience: Duration,
        what: &str,
        count: usize,
        matches: impl Fn(&Entry) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        loop {
            let found = self.count(&matches);
            if found >= count {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {found} of {count} times.\n{self:?}");
            sleep(LOOK).await;
        }
    }
}

/// The last entries.
impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        let skipped = entries.len().saturating_sub(SHOWN);
        writeln!(f, "{skipped} earlier steps, then:")?;
        for Entry { process, id, step } in &entries[skipped..] {
            writeln!(f, "process {process}, event {id}: {step:?}")?;
        }
        Ok(())
    }
}
