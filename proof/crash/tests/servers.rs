//! Stores that processes share lose nothing that they acknowledged, whatever happens to their workers,
//! to their server and to the way there.

use semel_crash::{Plan, storm};

/// Every kind of blow at least twice.
const BLOWS: u32 = 20;
const KILLS: u32 = 40;

fn keeps_its_word(store: &str) {
    let plan = Plan::new(env!("CARGO_BIN_EXE_semel-crash"), store).kills(KILLS).blows(BLOWS);
    let report = storm(&plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

// One after the other: two storms at once would be a test of the machine.
#[test]
fn shared_stores_keep_their_word_through_kills_of_workers_and_servers() {
    keeps_its_word("postgres:");
    keeps_its_word("redis:");
}
