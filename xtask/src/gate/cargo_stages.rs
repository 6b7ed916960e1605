//! The stages that are one cargo command each.

use std::process::Stdio;

use anyhow::{Result, bail};
use semel_servers::command;

use crate::gate::{Gate, Stage};

pub(crate) const TOOLS: Stage = Stage {
    name: "tools",
    fix: "install what is missing, then run this again",
    run: |gate| REQUIRED.iter().try_for_each(|tool| require(gate, tool)),
};

pub(crate) const FMT: Stage = Stage {
    name: "fmt",
    fix: "run `cargo fmt --all`",
    run: |gate| cargo(gate, &["fmt", "--all", "--check"]),
};

pub(crate) const CLIPPY: Stage = Stage {
    name: "clippy",
    fix: "mend the warnings above; `cargo clippy --workspace --all-targets --all-features` repeats them",
    run: |gate| {
        cargo(
            gate,
            &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
        )
    },
};

/// Every target but the benches.
pub(crate) const TESTS: Stage = Stage {
    name: "tests",
    fix: "mend the failing tests above; `cargo test -p CRATE NAME` repeats one",
    run: |gate| test(gate, &["--lib", "--bins", "--tests", "--examples"]),
};

pub(crate) const UNIT_TESTS: Stage = Stage {
    name: "unit tests",
    fix: "mend the failing tests above; `cargo test -p CRATE NAME` repeats one",
    run: |gate| test(gate, &["--lib", "--bins"]),
};

pub(crate) const DOCTESTS: Stage = Stage {
    name: "doctests",
    fix: "mend the failing examples in the docs; `cargo test -p CRATE --doc NAME` repeats one",
    run: |gate| test(gate, &["--doc"]),
};

pub(crate) const DOCS: Stage = Stage {
    name: "docs",
    fix: "mend the rustdoc warnings above",
    run: |gate| {
        let mut cargo = gate.cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
        command::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
    },
};

/// A program the gate cannot do without, asked for its version.
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

fn require(gate: &Gate, tool: &RequiredTool) -> Result<()> {
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

fn cargo(gate: &Gate, args: &[&str]) -> Result<()> {
    command::run(&mut gate.cargo(args))
}

/// All failures in one run: a gate that stops at the first costs a run for each.
fn test(gate: &Gate, targets: &[&str]) -> Result<()> {
    let mut cargo = gate.cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command::run(cargo.args(targets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn a_missing_tool_fails_with_the_command_that_installs_it() {
        let gate = Gate::new(Workspace::load().unwrap());
        let tool = RequiredTool { command: &["no-such-tool"], fix: "apt-get install it" };
        let error = require(&gate, &tool).unwrap_err().to_string();
        assert_eq!(error, "`no-such-tool` does not work: run `apt-get install it`");
    }
}
