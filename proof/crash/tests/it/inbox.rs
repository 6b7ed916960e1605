//! Effect and record commit together, whether a worker or the server is killed.

use semel_crash::inbox::{InboxPlan, chaos_run};

use crate::PROGRAM;

#[test]
fn every_event_has_one_effect_and_one_record_after_a_hundred_kills() {
    let report = chaos_run(&InboxPlan::new(PROGRAM, 84)).unwrap();
    println!("{report}");
    assert!(report.kills + report.server_kills >= 100, "{report}");
    assert!(report.passed(), "{report}");
}
