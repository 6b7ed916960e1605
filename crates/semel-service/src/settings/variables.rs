//! Warns of `SEMEL_*` variables that no setting reads.

use clap::Command;

use super::field_names::closest_name;

/// A warning for each variable that looks like a setting and is none.
pub(super) fn unknown(command: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let arguments = command.get_arguments().filter_map(|it| it.get_env()?.to_str());
    let known: Vec<_> = arguments.chain([super::HASH_SECRET, super::SEAL_KEYS]).collect();
    let mut unknown: Vec<_> = names
        .filter(|name| name.starts_with("SEMEL_") && !known.contains(&name.as_str()))
        .filter(|name| !of_kubernetes(name) && !of_tests(name))
        .map(|name| {
            let short = name.trim_start_matches("SEMEL_");
            let near =
                closest_name(short, known.iter().map(|name| name.trim_start_matches("SEMEL_")));
            let fix =
                near.map_or("it is ignored".into(), |near| format!("did you mean SEMEL_{near}?"));
            format!("unknown variable {name}; {fix}")
        })
        .collect();
    unknown.sort();
    unknown
}

/// Kubernetes sets variables such as SEMEL_SERVICE_HOST and SEMEL_PORT_8080_TCP in every pod if a service is named
/// semel or semel-admin. No setting has such a name.
fn of_kubernetes(name: &str) -> bool {
    let words: Vec<_> = name.split('_').collect();
    words.contains(&"PORT") || words.contains(&"SERVICE")
}

/// The project's own tests find their servers in these.
fn of_tests(name: &str) -> bool {
    name.starts_with("SEMEL_TEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_reported_and_those_of_kubernetes_are_not() {
        let names = [
            "PATH",
            "SEMEL_LISTEN",
            "SEMEL_HASH_SECRET",
            "SEMEL_SEAL_KEYS",
            "SEMEL_LISEN",
            "SEMEL_ZZZ",
            "SEMEL_PORT",
            "SEMEL_PORT_8080_TCP_ADDR",
            "SEMEL_SERVICE_HOST",
            "SEMEL_SERVICE_PORT_HTTP",
            "SEMEL_ADMIN_SERVICE_HOST",
            "SEMEL_TEST_REDIS_URL",
        ];
        let warnings =
            unknown(&crate::settings::GatewayFlags::command(), names.map(String::from).into_iter());
        assert_eq!(
            warnings,
            [
                "unknown variable SEMEL_LISEN; did you mean SEMEL_LISTEN?",
                "unknown variable SEMEL_ZZZ; it is ignored"
            ]
        );
    }
}
