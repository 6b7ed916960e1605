//! What the upstream has seen and done, by order: the caller's own name for what it wants once.

use std::collections::BTreeMap;

use crate::sdk::case::Case;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<String, Entry>,
    made: u32,
}

/// One order. Wanted is one effect, however often it was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) calls: u32,
    /// The effects: an object each.
    pub(crate) ids: Vec<String>,
    /// Every key that came with a call, and what was last made under it.
    pub(crate) keys: BTreeMap<String, Option<String>>,
}

/// What the upstream does with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Refuse,
    Answer(String),
    /// The object is made, but nobody is told.
    Hush,
}

impl Ledger {
    pub(crate) fn entry(&self, order: &str) -> Entry {
        self.entries.get(order).cloned().unwrap_or_default()
    }

    /// Books a call and its effect. `prefix` is the kind of object, such as `ch`.
    pub(crate) fn call(&mut self, case: Case, order: &str, key: &str, prefix: &str) -> Doing {
        let entry = self.entries.entry(order.to_owned()).or_default();
        entry.calls += 1;
        let first = entry.calls == 1;
        let made = entry.keys.entry(key.to_owned()).or_default();
        match (case, made.as_ref()) {
            (Case::FailFirst, _) if first => return Doing::Refuse,
            // Only here does the upstream know keys itself: nobody else can tell that it was done.
            (Case::DropFirst, Some(id)) => return Doing::Answer(id.clone()),
            _ => {}
        }
        self.made += 1;
        let id = format!("{prefix}_{}", self.made);
        *made = Some(id.clone());
        entry.ids.push(id.clone());
        if first && case == Case::DropFirst { Doing::Hush } else { Doing::Answer(id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_an_effect_whatever_its_key() {
        let mut ledger = Ledger::default();
        for id in ["ch_1", "ch_2"] {
            assert_eq!(ledger.call(Case::Slow, "a", "k", "ch"), Doing::Answer(id.to_owned()));
        }
        assert_eq!(ledger.entry("a").ids, ["ch_1", "ch_2"]);
        assert!(ledger.entry("b").ids.is_empty());
    }

    #[test]
    fn a_call_that_is_refused_has_no_effect() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.call(Case::FailFirst, "a", "k", "ch"), Doing::Refuse);
        assert!(ledger.entry("a").ids.is_empty());
        assert_eq!(ledger.call(Case::FailFirst, "a", "k", "ch"), Doing::Answer("ch_1".to_owned()));
    }

    #[test]
    fn what_was_done_before_a_break_is_found_by_its_key_alone() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.call(Case::DropFirst, "a", "k", "ch"), Doing::Hush);
        assert_eq!(ledger.call(Case::DropFirst, "a", "k", "ch"), Doing::Answer("ch_1".to_owned()));
        assert_eq!(ledger.entry("a").ids.len(), 1);
        ledger.call(Case::DropFirst, "a", "other", "ch");
        assert_eq!(ledger.entry("a").ids.len(), 2);
    }
}
