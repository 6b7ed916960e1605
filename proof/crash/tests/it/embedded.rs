//! The embedded store loses nothing that it acknowledged, however often its process is killed.

use semel_crash::{Plan, storm};

use crate::PROGRAM;

#[test]
fn the_embedded_store_keeps_its_word_through_200_kills() {
    let plan = Plan::new(PROGRAM, "file:{dir}/store").kills(200);
    let report = storm(&plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}
