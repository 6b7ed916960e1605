//! The stages that are one cargo command each.

use semel_servers::command;

use crate::gate::GateStage;

pub(crate) const FMT: GateStage = GateStage {
    name: "fmt",
    fix: "run `cargo fmt --all`",
    run: |gate| command::run(&mut gate.cargo(&["fmt", "--all", "--check"])),
};

pub(crate) const CLIPPY: GateStage = GateStage {
    name: "clippy",
    fix: "correct the warnings above; `cargo clippy --workspace --all-targets --all-features` repeats them",
    run: |gate| {
        let mut clippy = gate.low_priority_cargo(&["clippy", "--workspace", "--all-targets"]);
        gate.run_beside_tests("clippy", clippy.args(["--all-features", "--", "-D", "warnings"]))
    },
};

pub(crate) const DOCTESTS: GateStage = GateStage {
    name: "doctests",
    fix: "correct the failing examples in the docs; `cargo test -p CRATE --doc NAME` repeats one",
    run: |gate| {
        // All failures in one run: a gate that stops at the first costs a run for each.
        let mut test = gate.low_priority_cargo(&["test", "--workspace", "--doc"]);
        gate.run_beside_tests("doctests", test.args(["--all-features", "--no-fail-fast"]))
    },
};

pub(crate) const DOCS: GateStage = GateStage {
    name: "docs",
    fix: "correct the rustdoc warnings above",
    run: |gate| {
        let mut doc = gate.low_priority_cargo(&["doc", "--workspace", "--no-deps"]);
        doc.arg("--all-features").env("RUSTDOCFLAGS", "-D warnings");
        gate.run_beside_tests("docs", &mut doc)
    },
};
