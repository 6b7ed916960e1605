//! Runs the checker and reports.

use std::{
    fmt,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{Config, Heard, Protocol, Rule, Sight, counterexample};

/// What a run found.
#[derive(Debug)]
pub struct Report {
    /// The configuration.
    pub name: &'static str,
    /// States that differ.
    pub unique: usize,
    /// States reached, each as often as it was reached.
    pub generated: usize,
    /// Actions on the longest of the shortest paths.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether every state within the configuration's bounds was seen.
    pub exhaustive: bool,
    /// Broken rules, each with its counterexample.
    pub broken: Vec<(Rule, String)>,
    /// Sights that occurred.
    pub seen: Vec<Sight>,
    /// Answers that were given.
    pub heard: Heard,
}

impl Protocol {
    /// Looks at every state, on `threads` threads, until a rule is broken.
    ///
    /// # Panics
    ///
    /// When the checker itself fails.
    #[must_use]
    pub fn check(self, threads: usize) -> Report {
        let Config { name, at_most, .. } = self.config;
        let started = Instant::now();
        let checker = self.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
        let checker = at_most.into_iter().fold(checker, |it, most| it.target_state_count(most));
        let checker = checker.spawn_bfs().join();
        let took = started.elapsed();
        let mut found = checker.discoveries();
        let counterexample = |rule: &Rule| {
            let path = found.remove(rule.words())?;
            Some((*rule, counterexample::tell(&path.into_vec())))
        };
        let broken: Vec<_> = Rule::ALL.iter().filter_map(counterexample).collect();
        let generated = checker.state_count();
        let protocol = checker.model();
        let seen = Sight::ALL.iter().copied().filter(|it| protocol.sights.has(*it)).collect();
        let heard = Heard::default();
        heard.add(&protocol.heard);
        Report {
            name,
            unique: checker.unique_state_count(),
            generated,
            depth: checker.max_depth(),
            took,
            exhaustive: broken.is_empty() && at_most.is_none_or(|most| generated < most),
            broken,
            seen,
            heard,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unique, generated, depth, .. } = self;
        let seconds = self.took.as_secs_f32();
        let kind = match (self.exhaustive, self.broken.is_empty()) {
            (true, _) => "exhaustive",
            (false, true) => "bounded",
            (false, false) => "stopped",
        };
        write!(f, "{name:<20} {unique:>9} states, {generated:>9} generated, ")?;
        write!(f, "depth {depth:>2}, {seconds:>5.1} s, {kind}")?;
        self.broken.iter().try_for_each(|(rule, story)| write!(f, "\nBROKEN {rule}\n{story}"))
    }
}
