//! Effect and record commit together, whoever is killed.

use semel_crash::inbox::{Plan, storm};

use crate::PROGRAM;

#[test]
fn every_event_has_one_effect_and_one_record_after_a_hundred_kills() {
    let report = storm(&Plan::new(PROGRAM, 84)).unwrap();
    println!("{report}");
    assert!(report.kills + report.server_kills >= 100, "{report}");
    assert!(report.is_right(), "{report}");
}
