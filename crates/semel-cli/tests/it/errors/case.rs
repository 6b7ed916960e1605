//! A case: the input of the binary, its exit code, and the words it prints.

use std::{fs, path::Path};

use futures_util::{StreamExt, stream};

use super::FLAGS;
use crate::harness::{CommandOutput, command, run_command};

/// One wrong use. Words are searched in stderr as they are; no case may panic or write to stdout.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorCase {
    args: &'static [&'static str],
    /// `semel gateway` with the usual flags, but those that the row sets itself.
    is_gateway: bool,
    toml: &'static str,
    variables: &'static [(&'static str, &'static str)],
    files: &'static [(&'static str, &'static str)],
    code: i32,
    says: &'static [&'static str],
    never: &'static [&'static str],
}

type Words = &'static [&'static str];

/// `semel gateway` with these flags beside the usual ones, or in their place.
pub(super) const fn flags(args: Words, code: i32, says: Words) -> ErrorCase {
    let (toml, variables, files, never) = ("", &[], &[], &[]);
    ErrorCase { args, is_gateway: true, toml, variables, files, code, says, never }
}

/// `semel gateway` with this `semel.toml`.
pub(super) const fn toml(toml: &'static str, code: i32, says: Words) -> ErrorCase {
    ErrorCase { toml, ..flags(&[], code, says) }
}

/// `semel gateway` with these variables.
pub(super) const fn variables(
    variables: &'static [(&'static str, &'static str)],
    code: i32,
    says: Words,
) -> ErrorCase {
    ErrorCase { variables, ..flags(&[], code, says) }
}

/// Any command, with nothing added.
pub(super) const fn semel(args: Words, code: i32, says: Words) -> ErrorCase {
    ErrorCase { is_gateway: false, ..flags(args, code, says) }
}

impl ErrorCase {
    /// With these files in its folder.
    pub(super) const fn files(self, files: &'static [(&'static str, &'static str)]) -> Self {
        Self { files, ..self }
    }

    /// Words that must not be printed, such as a secret.
    pub(super) const fn never(self, never: Words) -> Self {
        Self { never, ..self }
    }

    async fn run(self) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        self.fill(folder.path());
        let mut command = command(folder.path());
        if self.is_gateway {
            let is_set = |flag: &str| self.args.iter().any(|it| it.split('=').next() == Some(flag));
            let usual = FLAGS.chunks(2).filter(|flag| !is_set(flag[0])).flatten();
            command.arg("gateway").args(usual);
        }
        command.args(self.args).envs(self.variables.iter().copied());
        let ended = run_command(command).await;
        self.wrong(&ended).map_or(Ok(()), |wrong| Err(format!("{wrong}\n{self:#?}\n{ended:#?}")))
    }

    /// A folder named `folder` is there, too.
    fn fill(&self, folder: &Path) {
        fs::create_dir(folder.join("folder")).unwrap();
        if !self.toml.is_empty() {
            fs::write(folder.join("semel.toml"), self.toml).unwrap();
        }
        for (name, text) in self.files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    fn wrong(&self, ended: &CommandOutput) -> Option<String> {
        if ended.code != Some(self.code) {
            return Some(format!("the exit code is not {}", self.code));
        }
        if !ended.stdout.is_empty() {
            return Some("there is something on stdout".to_owned());
        }
        let missing = self.says.iter().find(|word| !ended.stderr.contains(**word));
        let never = self.never.iter().chain(&["panicked", "RUST_BACKTRACE"]);
        let leaked = never.copied().find(|word| ended.stderr.contains(word));
        missing
            .map(|word| format!("{word:?} is not said"))
            .or(leaked.map(|word| format!("{word:?} is said")))
    }
}

/// Runs the rows, a few at a time, and lists every row that fails.
pub(super) async fn check(rows: &[ErrorCase]) {
    let ended = stream::iter(rows.iter().map(|row| row.run())).buffer_unordered(4);
    let wrong: Vec<_> = ended.filter_map(async |ended| ended.err()).collect().await;
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
