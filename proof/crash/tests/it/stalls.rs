//! A server that does not answer for longer than a lease makes no work of a living owner run twice.

use std::time::Duration;

use semel_crash::stall::{StallKind, StallPlan, StalledStore, stall_run};

fn freeze(store: StalledStore) {
    let plan = StallPlan {
        store,
        kind: StallKind::Freeze,
        stall: Duration::from_millis(6_750),
        lease: Duration::from_secs(3),
        rounds: 1,
        keys: 60,
    };
    let report = stall_run(&plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[test]
fn a_postgres_that_freezes_makes_no_work_run_twice() {
    freeze(StalledStore::Postgres);
}

#[test]
fn a_redis_that_freezes_makes_no_work_run_twice() {
    freeze(StalledStore::Redis);
}

#[test]
fn a_valkey_that_freezes_makes_no_work_run_twice() {
    freeze(StalledStore::Valkey);
}

#[test]
fn a_nats_server_that_freezes_makes_no_work_run_twice() {
    freeze(StalledStore::Nats);
}
