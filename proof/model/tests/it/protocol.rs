//! The protocol without bugs breaks no rule in any state of the small configurations.

use std::thread;

use semel_model::{ModelConfig, Protocol, ReplyCoverage, Situation};

/// Fewer states would mean that a bound has become too narrow to prove much.
const ENOUGH: usize = 1_000_000;

#[test]
fn the_real_steps_break_no_rule() {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let (mut states, mut seen, replies) = (0, Vec::new(), ReplyCoverage::default());
    for config in ModelConfig::SMALL {
        let report = Protocol::new(*config).check(threads);
        println!("{report}");
        assert!(report.broken.is_empty() && report.exhaustive, "{report}");
        let unseen: Vec<_> = config.shows.iter().filter(|it| !report.seen.contains(it)).collect();
        assert!(unseen.is_empty(), "{}: never {unseen:?}", config.name);
        states += report.unique;
        seen.extend(report.seen);
        replies.add(&report.replies);
    }
    println!("{states} states");
    assert!(states >= ENOUGH, "only {states} states");
    assert!(Situation::ALL.iter().all(|situation| seen.contains(situation)), "only {seen:?}");
    assert_eq!(replies.missing(), [""; 0], "replies that never occurred");
}
