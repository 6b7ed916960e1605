//! The embedded store loses nothing that it acknowledged when its process is killed.

use semel_crash::{ChaosPlan, chaos_run};

use crate::PROGRAM;

#[test]
fn the_embedded_store_loses_nothing_through_200_kills() {
    let plan = ChaosPlan::new(PROGRAM, "file:{dir}/store").kills(200);
    let report = chaos_run(&plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}
