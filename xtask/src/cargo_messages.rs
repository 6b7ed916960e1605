//! Programs that cargo built, as it tells them with `--message-format=json-render-diagnostics`.

use std::path::PathBuf;

use serde::Deserialize;

/// One of cargo's messages; others lack these fields.
#[derive(Debug, Deserialize)]
struct BuiltArtifact {
    package_id: String,
    target: BuiltTarget,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct BuiltTarget {
    name: String,
    kind: Vec<String>,
}

/// The program of a target, among the messages of the command that built it.
pub(crate) fn executable(built: &str, package: &str, kind: &str, name: &str) -> Option<PathBuf> {
    let artifacts =
        built.lines().filter_map(|line| serde_json::from_str::<BuiltArtifact>(line).ok());
    let mut own = artifacts.filter(|artifact| {
        artifact.package_id == package
            && artifact.target.name == name
            && artifact.target.kind.iter().any(|own| own == kind)
    });
    own.find_map(|artifact| artifact.executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_found_among_cargos_messages() {
        let built = concat!(
            r#"{"reason":"build-script-executed","package_id":"p"}"#,
            "\n",
            r#"{"package_id":"p","target":{"name":"p","kind":["lib"]},"executable":null}"#,
            "\n",
            r#"{"package_id":"p","target":{"name":"quick","kind":["example"]},"executable":"/t/quick"}"#,
        );
        let find = |kind, name| executable(built, "p", kind, name);
        assert_eq!(find("example", "quick"), Some(PathBuf::from("/t/quick")));
        assert_eq!(find("example", "slow"), None);
        assert_eq!(find("bin", "quick"), None);
    }
}
