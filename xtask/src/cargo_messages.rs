//! What cargo built, as it reports with `--message-format=json-render-diagnostics`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The programs among the messages of one or more cargo commands.
#[derive(Debug)]
pub(crate) struct BuildMessages {
    programs: Vec<BuiltArtifact>,
}

/// One of cargo's messages; other kinds of messages lack these fields.
#[derive(Debug, Deserialize)]
pub(crate) struct BuiltArtifact {
    pub(crate) package_id: String,
    pub(crate) target: BuiltTarget,
    pub(crate) executable: Option<PathBuf>,
    profile: BuildProfile,
}

#[derive(Debug, Deserialize)]
pub(crate) struct BuiltTarget {
    pub(crate) name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct BuildProfile {
    /// True when it was built with the test harness.
    test: bool,
}

impl BuildMessages {
    pub(crate) fn parse(messages: &str) -> Self {
        let parsed = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        let programs = parsed.filter(|built: &BuiltArtifact| built.executable.is_some()).collect();
        Self { programs }
    }

    /// The program of a target, without the test harness.
    pub(crate) fn program(&self, package_id: &str, kind: &str, name: &str) -> Option<&Path> {
        let mut own = self.programs.iter().filter(|built| {
            built.package_id == package_id
                && built.target.name == name
                && built.target.is(kind)
                && !built.profile.test
        });
        own.find_map(|built| built.executable.as_deref())
    }

    /// The test binaries.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &BuiltArtifact> {
        self.programs.iter().filter(|built| built.profile.test)
    }
}

impl BuiltTarget {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|own| own == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = concat!(
        r#"{"reason":"build-script-executed","package_id":"p"}"#,
        "\n",
        r#"{"package_id":"p","target":{"name":"p","kind":["lib"]},"profile":{"test":false},"executable":null}"#,
        "\n",
        r#"{"package_id":"p","target":{"name":"quick","kind":["example"]},"profile":{"test":false},"executable":"/t/quick"}"#,
        "\n",
        r#"{"package_id":"p","target":{"name":"p","kind":["bin"]},"profile":{"test":true},"executable":"/t/p-test"}"#,
    );

    #[test]
    fn a_program_is_found_among_cargos_messages() {
        let built = BuildMessages::parse(MESSAGES);
        assert_eq!(built.program("p", "example", "quick"), Some(Path::new("/t/quick")));
        assert_eq!(built.program("p", "example", "slow"), None);
        assert_eq!(built.program("p", "bin", "quick"), None);
    }

    #[test]
    fn a_test_binary_is_not_taken_for_the_program() {
        let built = BuildMessages::parse(MESSAGES);
        assert_eq!(built.program("p", "bin", "p"), None);
        let tests: Vec<_> = built.tests().filter_map(|test| test.executable.clone()).collect();
        assert_eq!(tests, [Path::new("/t/p-test")]);
    }
}
