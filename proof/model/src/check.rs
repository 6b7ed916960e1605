//! Runs the checker and builds the report.

use std::{
    fmt,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{ModelConfig, Protocol, ProtocolRule, ReplyCoverage, Situation, counterexample};

/// The result of a run.
#[derive(Debug)]
pub struct ModelReport {
    /// The name of the configuration.
    pub name: &'static str,
    /// The number of different states.
    pub unique: usize,
    /// The number of generated states, repetitions included.
    pub generated: usize,
    /// The length of the longest of the shortest paths.
    pub depth: usize,
    /// The time that the run took.
    pub took: Duration,
    /// Whether every state within the bounds of the configuration was explored.
    pub exhaustive: bool,
    /// Broken rules, each with its counterexample.
    pub broken: Vec<(ProtocolRule, String)>,
    /// The situations that occurred.
    pub seen: Vec<Situation>,
    /// The replies that occurred.
    pub replies: ReplyCoverage,
}

impl Protocol {
    /// Explores every state on `threads` threads, until a rule is broken.
    ///
    /// # Panics
    ///
    /// When the checker itself fails.
    #[must_use]
    pub fn check(self, threads: usize) -> ModelReport {
        let ModelConfig { name, at_most, .. } = self.config;
        let started = Instant::now();
        let checker = self.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
        let checker = at_most.into_iter().fold(checker, |it, most| it.target_state_count(most));
        let checker = checker.spawn_bfs().join();
        let took = started.elapsed();
        let mut found = checker.discoveries();
        let counterexample = |rule: &ProtocolRule| {
            let path = found.remove(rule.words())?;
            Some((*rule, counterexample::describe(&path.into_vec())))
        };
        let broken: Vec<_> = ProtocolRule::ALL.iter().filter_map(counterexample).collect();
        let generated = checker.state_count();
        let protocol = checker.model();
        let seen =
            Situation::ALL.iter().copied().filter(|it| protocol.situations.has(*it)).collect();
        let replies = ReplyCoverage::default();
        replies.add(&protocol.replies);
        ModelReport {
            name,
            unique: checker.unique_state_count(),
            generated,
            depth: checker.max_depth(),
            took,
            exhaustive: broken.is_empty() && at_most.is_none_or(|most| generated < most),
            broken,
            seen,
            replies,
        }
    }
}

impl fmt::Display for ModelReport {
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
        self.broken.iter().try_for_each(|(rule, text)| write!(f, "\nBROKEN {rule}\n{text}"))
    }
}
