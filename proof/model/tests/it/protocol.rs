//! The protocol, with nothing wrong with it, breaks no rule in any state of the small configurations.

use std::thread;

use semel_model::{Config, Heard, Protocol, Sight};

/// Fewer would mean that a bound has become too narrow to say much.
const ENOUGH: usize = 1_000_000;

#[test]
fn the_real_steps_break_no_rule() {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let (mut states, mut seen, heard) = (0, Vec::new(), Heard::default());
    for config in Config::SMALL {
        let report = Protocol::new(*config).check(threads);
        println!("{report}");
        assert!(report.broken.is_empty() && report.exhaustive, "{report}");
        let unseen: Vec<_> = config.shows.iter().filter(|it| !report.seen.contains(it)).collect();
        assert!(unseen.is_empty(), "{}: never {unseen:?}", config.name);
        states += report.unique;
        seen.extend(report.seen);
        heard.add(&report.heard);
    }
    println!("{states} states");
    assert!(states >= ENOUGH, "only {states} states");
    assert!(Sight::ALL.iter().all(|sight| seen.contains(sight)), "only {seen:?}");
    assert_eq!(heard.missing(), [""; 0], "answers that nobody was given");
}
