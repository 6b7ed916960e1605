//! The stages that are one cargo command each.

use std::process::Stdio;

use anyhow::{Result, bail};
use semel_servers::command;

use crate::gate::{GateRun, GateStage};

pub(crate) const TOOLS: GateStage = GateStage {
    name: "tools",
    fix: "install the missing tool, then run this again",
    run: |gate| REQUIRED.iter().try_for_each(|tool| require(gate, tool)),
};

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

/// A program that the gate needs, and a command that shows whether it works.
struct RequiredTool {
    command: &'static [&'static str],
    fix: &'static str,
}

const REQUIRED: &[RequiredTool] = &[
    RequiredTool { command: &["git", "--version"], fix: "apt-get install git" },
    RequiredTool { command: &["cc", "--version"], fix: "apt-get install build-essential" },
    RequiredTool { command: &["openssl", "version"], fix: "apt-get install openssl" },
    RequiredTool { command: &["rustdoc", "--version"], fix: "rustup toolchain install stable" },
    RequiredTool { command: &["cargo", "fmt", "--version"], fix: "rustup component add rustfmt" },
    RequiredTool { command: &["cargo", "clippy", "--version"], fix: "rustup component add clippy" },
];

fn require(gate: &GateRun, tool: &RequiredTool) -> Result<()> {
    let mut command = match tool.command {
        ["cargo", args @ ..] => gate.cargo(args),
        [program, args @ ..] => {
            let mut command = gate.workspace.command(program);
            command.args(args);
            command
        }
        [] => return Ok(()),
    };
    if command::run(command.stdout(Stdio::null()).stderr(Stdio::null())).is_err() {
        bail!("`{}` does not work: run `{}`", tool.command.join(" "), tool.fix);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::GateOptions;
    use crate::gate::tests::TestScope;
    use crate::workspace::Workspace;

    #[test]
    fn a_missing_tool_fails_with_the_command_that_installs_it() {
        let gate =
            GateRun::new(Workspace::load().unwrap(), TestScope::Quick, &GateOptions::default());
        let tool = RequiredTool { command: &["no-such-tool"], fix: "apt-get install it" };
        let error = require(&gate, &tool).unwrap_err().to_string();
        assert_eq!(error, "`no-such-tool` does not work: run `apt-get install it`");
    }
}
