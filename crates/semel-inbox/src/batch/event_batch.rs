//! The events of a batch, and the state of each.

use std::collections::{BTreeSet, HashMap, HashSet};

use semel_core::Error;

use crate::{InboxError, InboxEvent, InboxVariant, claim::EventRow, inbox::InboxSettings};

/// The state of one event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventState {
    New,
    Duplicate,
    Busy,
    /// The same event as an earlier one of the batch, at this index.
    CopyOf(usize),
    /// The table cannot hold it: it has its own error.
    Refused,
}

/// The events of a batch, what identifies their rows, and their states.
pub(super) struct EventBatch<'e> {
    pub(super) events: &'e [InboxEvent],
    pub(super) ids: Vec<String>,
    pub(super) days: Vec<&'e str>,
    pub(super) states: Vec<EventState>,
    pub(super) refused: HashMap<usize, Error>,
}

impl<'e> EventBatch<'e> {
    pub(super) fn new(settings: &InboxSettings, events: &'e [InboxEvent]) -> Self {
        let (mut ids, mut days, mut refused) = (Vec::new(), Vec::new(), HashMap::new());
        for (at, event) in events.iter().enumerate() {
            let row = settings.id(event).and_then(|id| Ok((id, settings.day(event)?)));
            let (id, day) = row.unwrap_or_else(|error| {
                refused.insert(at, error);
                Default::default()
            });
            ids.push(id);
            days.push(day);
        }
        let mut batch = Self { events, ids, days, states: Vec::new(), refused };
        if settings.variant == InboxVariant::Partitioned {
            batch.refuse_second_days();
        }
        batch.reset_states();
        batch
    }

    /// Refuses an id that comes again with another day. It may be another event, of a producer that reuses ids each
    /// day, or a copy with a wrong day. The inbox cannot know which, so it must not treat it as a duplicate.
    fn refuse_second_days(&mut self) {
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

    /// The states before the claim: an event counts as busy until it is claimed. A refused event has no copies,
    /// because another event with its id may be valid.
    fn reset_states(&mut self) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        let state = |(at, id)| match self.refused.contains_key(&at) {
            true => EventState::Refused,
            false => match *first.entry(id).or_insert(at) {
                first if first == at => EventState::Busy,
                first => EventState::CopyOf(first),
            },
        };
        self.states = self.ids.iter().map(String::as_str).enumerate().map(state).collect();
    }

    /// Refuses the events of these days with the error of the day, and resets the states of the others.
    pub(super) fn refuse(&mut self, days: &HashMap<String, Error>) {
        for (at, day) in self.days.iter().enumerate() {
            if let Some(error) = days.get(*day) {
                self.refused.entry(at).or_insert_with(|| error.clone());
            }
        }
        self.reset_states();
    }

    /// The days of the events that are not refused.
    pub(super) fn open_days(&self) -> BTreeSet<&'e str> {
        let at = (0..self.events.len()).filter(|at| !self.refused.contains_key(at));
        at.map(|at| self.days[at]).collect()
    }

    pub(super) fn refusal(&self, at: usize) -> InboxError {
        let unknown = || Error::invalid("inbox: an event was refused without an error");
        InboxError::Store(self.refused.get(&at).cloned().unwrap_or_else(unknown))
    }

    pub(super) fn row(&self, at: usize) -> EventRow<'_> {
        EventRow { id: &self.ids[at], day: self.days[at] }
    }

    /// The indexes of the events in this state.
    pub(super) fn all(&self, state: EventState) -> impl Iterator<Item = usize> {
        (0..self.events.len()).filter(move |at| self.states[*at] == state)
    }

    /// The indexes of the events to claim, sorted by id, so that two batches lock rows in the same order.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut indexes: Vec<usize> = self.all(EventState::Busy).collect();
        indexes.sort_unstable_by(|one, other| self.ids[*one].cmp(&self.ids[*other]));
        indexes
    }

    /// Sets the states of claimed events. `new` are the ids that were inserted.
    pub(super) fn set_claimed(&mut self, indexes: &[usize], new: &HashSet<String>) {
        for at in indexes {
            let is_new = new.contains(&self.ids[*at]);
            self.states[*at] = if is_new { EventState::New } else { EventState::Duplicate };
        }
    }
}
