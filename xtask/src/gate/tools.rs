//! The programs and libraries that the gate needs. Missing packages of Debian are installed.

use std::process::Stdio;

use anyhow::{Result, ensure};
use semel_servers::{command, debian_packages};

use crate::gate::{GateRun, GateStage};

pub(crate) const STAGE: GateStage =
    GateStage { name: "tools", fix: "install the missing tool, then run this again", run };

/// A program or library, and a command that shows whether it works.
struct RequiredTool {
    command: &'static [&'static str],
    source: ToolSource,
}

/// Where a missing tool comes from.
enum ToolSource {
    /// This Debian package.
    Debian(&'static str),
    /// This command, which is not for us to run: it changes the toolchain that we run in.
    Command(&'static str),
}

use ToolSource::{Command, Debian};

const REQUIRED: &[RequiredTool] = &[
    RequiredTool { command: &["git", "--version"], source: Debian("git") },
    RequiredTool { command: &["cc", "--version"], source: Debian("build-essential") },
    RequiredTool { command: &["openssl", "version"], source: Debian("openssl") },
    // For librdkafka, which the client of Kafka compiles.
    RequiredTool { command: &["c++", "--version"], source: Debian("g++") },
    RequiredTool { command: &["make", "--version"], source: Debian("make") },
    RequiredTool { command: &["pkg-config", "--version"], source: Debian("pkg-config") },
    RequiredTool { command: &["pkg-config", "--exists", "zlib"], source: Debian("zlib1g-dev") },
    RequiredTool { command: &["pkg-config", "--exists", "openssl"], source: Debian("libssl-dev") },
    RequiredTool {
        command: &["rustdoc", "--version"],
        source: Command("rustup toolchain install stable"),
    },
    RequiredTool {
        command: &["cargo", "fmt", "--version"],
        source: Command("rustup component add rustfmt"),
    },
    RequiredTool {
        command: &["cargo", "clippy", "--version"],
        source: Command("rustup component add clippy"),
    },
];

fn run(gate: &GateRun) -> Result<()> {
    let missing = |tool: &RequiredTool| match tool.source {
        Debian(package) if !works(gate, tool) => Some(package),
        Debian(_) | Command(_) => None,
    };
    let packages: Vec<_> = REQUIRED.iter().filter_map(missing).collect();
    if !packages.is_empty() {
        debian_packages(&packages)?;
    }
    REQUIRED.iter().try_for_each(|tool| require(gate, tool))
}

fn require(gate: &GateRun, tool: &RequiredTool) -> Result<()> {
    let fix = match tool.source {
        Debian(package) => format!("apt-get install {package}"),
        Command(command) => command.to_owned(),
    };
    ensure!(works(gate, tool), "`{}` does not work: run `{fix}`", tool.command.join(" "));
    Ok(())
}

fn works(gate: &GateRun, tool: &RequiredTool) -> bool {
    let mut command = match tool.command {
        ["cargo", args @ ..] => gate.cargo(args),
        [program, args @ ..] => {
            let mut command = gate.workspace.command(program);
            command.args(args);
            command
        }
        [] => return true,
    };
    command::run(command.stdout(Stdio::null()).stderr(Stdio::null())).is_ok()
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
        let missing = |source| {
            let tool = RequiredTool { command: &["no-such-tool"], source };
            require(&gate, &tool).unwrap_err().to_string()
        };
        let error = missing(Command("rustup component add it"));
        assert_eq!(error, "`no-such-tool` does not work: run `rustup component add it`");
        let error = missing(Debian("it"));
        assert_eq!(error, "`no-such-tool` does not work: run `apt-get install it`");
    }
}
