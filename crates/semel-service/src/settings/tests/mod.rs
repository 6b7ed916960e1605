//! The promises of the settings as a whole. Variables are tested on the real binary, in tests/it.

mod example;
mod routes;
mod secrets;
mod worker;

use std::{fs, time::Duration};

use semel::{StoreUrl, http::RoutePolicy};
use tempfile::TempDir;

use super::*;
use crate::settings::value::DurationValue;

/// The least that is needed.
const LEAST: &str = "upstream = 'http://127.0.0.1:3000'\nprincipal = 'authorization'\n";

fn matches(arguments: &[&str]) -> ArgMatches {
    GatewayFlags::command().no_binary_name(true).try_get_matches_from(arguments).unwrap()
}

/// Loads `text` as semel.toml under `arguments`; problems name the file by its name alone.
fn load(text: &str, arguments: &[&str]) -> Result<GatewayConfig, Vec<String>> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(FILE), text).unwrap();
    load_in(&folder, arguments)
}

fn load_in(folder: &TempDir, arguments: &[&str]) -> Result<GatewayConfig, Vec<String>> {
    let file = folder.path().join(FILE);
    let matches = matches(&[&["--config", file.to_str().unwrap()], arguments].concat());
    let prefix = format!("{}/", folder.path().display());
    super::load(&matches).map_err(|bad| {
        bad.0.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
    })
}

/// The one problem of `text` on top of the least.
fn problem(text: &str, arguments: &[&str]) -> String {
    let mut problems = load(&format!("{LEAST}{text}"), arguments).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

fn good(text: &str) -> GatewayConfig {
    load(&format!("{LEAST}{text}"), &[]).unwrap()
}

fn shown(config: &GatewayConfig) -> String {
    format!("{config:?}")
}

#[test]
fn defaults_are_the_published_ones() {
    let config = good("");
    let seconds = Duration::from_secs;
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store, Some(StoreUrl::file("semel-data")));
    assert_eq!(config.namespace, "default");
    assert!(
        config.store_options.hash_secret.is_none()
            && config.admin.is_none()
            && !config.trust_forwarded
    );
    assert_eq!(format!("{:?}", config.policy), format!("{:?}", RoutePolicy::api()));
    assert_eq!(config.shutdown_grace, seconds(25));
    assert_eq!(config.buffer_bytes, 256 << 20);
    let UpstreamTimeouts { connect, header, body, idle } = config.timeouts;
    assert_eq!([connect, header, body, idle], [5, 60, 60, 4].map(seconds));
    let ClientLimits { header, body, idle, connections } = config.client;
    assert_eq!(([header, body, idle], connections), ([10, 30, 60].map(seconds), 10_000));
    assert_eq!((config.log.level, config.log.format), (LogLevel::Info, LogFormat::Text));
    assert!(config.routes.is_empty() && !config.demo && config.warnings.is_empty());
    let [upstream] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    assert_eq!((upstream.name.as_str(), upstream.preserve_host), ("default", false));
    assert_eq!((upstream.authority.as_str(), upstream.base.as_str()), ("127.0.0.1:3000", ""));
    assert_eq!(config.default_upstream, Some(0));
    assert!(matches!(config.principal, PrincipalSource::Authorization));
}

#[test]
fn help_states_the_defaults() {
    let help = GatewayFlags::command().render_long_help().to_string();
    for default in [
        GatewayConfig::LISTEN.to_string(),
        store::default_url().to_string(),
        DurationValue(semel::Policy::LEASE).to_string(),
        DurationValue(semel::Policy::WAIT).to_string(),
        "24h".into(),
        "1h".into(),
        "1MiB".into(),
        "info".into(),
        "text".into(),
        "rerun".into(),
        "enforce".into(),
        "409".into(),
    ] {
        assert!(help.contains(&format!("[default: {default}]")), "{default}\n{help}");
    }
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    for argument in GatewayFlags::command().get_arguments() {
        let long = argument.get_long().unwrap();
        let name = format!("SEMEL_{}", long.to_uppercase().replace('-', "_"));
        // That one holds the keys themselves, as SEMEL_HASH_SECRET does its secret.
        let name = if name == super::SEAL_KEYS { format!("{name}_FILE") } else { name };
        assert_eq!(argument.get_env().unwrap().to_str(), Some(name.as_str()));
    }
}

#[test]
fn flags_take_precedence_over_the_file() {
    let text = "listen = '127.0.0.1:1'\nlease = '5s'\nrequire_key = true\n[log]\nlevel = 'warn'\n[admin]\n\
                listen = '127.0.0.1:2'";
    let config = load(
        &format!("{LEAST}{text}"),
        &[
            "--listen=127.0.0.1:9",
            "--principal=anonymous",
            "--upstream=http://other:1/base",
            "--store=memory:",
            "--namespace=pay",
            "--require-key=false",
            "--log=debug",
            "--log-format=json",
            "--admin=127.0.0.1:3",
            "--wait=0s",
        ],
    )
    .unwrap();
    assert_eq!(config.listen.port(), 9);
    assert!(matches!(config.principal, PrincipalSource::Anonymous));
    assert_eq!(config.upstreams[0].authority.as_str(), "other:1");
    assert_eq!(config.upstreams[0].base, "/base");
    assert_eq!((config.store, config.namespace.as_str()), ("memory:".parse().ok(), "pay"));
    assert_eq!((config.log.level, config.log.format), (LogLevel::Debug, LogFormat::Json));
    assert_eq!(config.admin.unwrap().listen.unwrap().port(), 3);
    let policy =
        RoutePolicy::api().wait(Duration::ZERO).with(|it| it.lease(Duration::from_secs(5)));
    assert_eq!(format!("{:?}", config.policy), format!("{policy:?}"));
}

#[test]
fn a_missing_principal_lists_the_choices() {
    let problems = load("upstream = 'http://a:1'", &[]).unwrap_err();
    assert_eq!(problems.len(), 1);
    for choice in ["authorization ", "jwt:FILE ", "header:NAME ", "anonymous ", "SEMEL_PRINCIPAL"] {
        assert!(problems[0].contains(choice), "{}", problems[0]);
    }
    // One that is there and bad is not missing.
    let problems = load("upstream = 'http://a:1'\nprincipal = 'me'", &[]).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("semel.toml:2:13: principal: not a principal"), "{problems:?}");
}

#[test]
fn a_missing_upstream_is_reported_once() {
    let problems = load("principal = 'anonymous'", &[]).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("--upstream http://HOST:PORT"), "{problems:?}");
    let problems = load("principal = 'anonymous'\nupstream = 5", &[]).unwrap_err();
    assert_eq!(problems, ["semel.toml:2:12: upstream: not text; write it in quotes"]);
}

#[test]
fn the_demo_needs_nothing() {
    let config = load("", &["--demo"]).unwrap();
    assert!(config.demo && config.default_upstream.is_none() && config.store.is_none());
    assert!(matches!(config.principal, PrincipalSource::Anonymous));
    let admin = load("", &["--demo", "--admin-token=0123456789abcdef"]).unwrap().admin.unwrap();
    assert!(admin.listen.is_none() && admin.token.unwrap().is(b"0123456789abcdef"));
}

#[test]
fn the_demo_refuses_settings_that_it_brings_itself() {
    for flag in [
        "--upstream=http://127.0.0.1:9",
        "--principal=authorization",
        "--store=memory:",
        "--mode=observe",
        "--mismatch-status=422",
    ] {
        let problems = load("", &["--demo", flag]).unwrap_err();
        let name = flag.split('=').next().unwrap();
        assert!(problems[0].starts_with(&format!("{name}: is set, but the demo")), "{problems:?}");
    }
    let file = "[upstreams.a]\nurl = 'http://a:1'\n[[routes]]\nmatch = '/a'\nupstream = 'a'";
    let problems = load(file, &["--demo"]).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn urls_that_are_refused_name_the_setting_and_hide_the_password() {
    for (arguments, start) in [
        (["--store=mssql://u:hunter2@h/d"], "--store: SQL Server is not in this release"),
        (["--store=postgres://u:hunter/2@h/d"], "--store: not the URL of a server"),
        (
            ["--upstream=https://u:hunter2@h"],
            "--upstream: TLS to the upstream is not in this release",
        ),
        (["--upstream=http://u:hunter2@h"], "--upstream: has a user or a password"),
    ] {
        let problem = problem("", &arguments);
        assert!(problem.starts_with(start) && !problem.contains("hunter2"), "{problem}");
    }
    let problem = problem("store = 'mssql://:hunter2@h'", &[]);
    assert!(
        problem.starts_with("semel.toml:3:1: store: SQL Server is not in this release"),
        "{problem}"
    );
}

#[test]
fn several_problems_come_in_the_order_of_the_file() {
    let text = "store = 'mssql://a'\nnamespace = ''\nlease = '1ms'\n[timeouts]\nbody = '0s'\nhedder = '1s'";
    let problems = load(&format!("{LEAST}{text}"), &["--upstream=x"]).unwrap_err();
    let starts =
        ["semel.toml:3:1", "semel.toml:4:1", "semel.toml:5:1", "semel.toml:7:1", "semel.toml:8:1"];
    assert_eq!(problems.len(), 6, "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts.into_iter().chain(["--upstream"])) {
        assert!(problem.starts_with(start), "{start}: {problem}");
    }
}

#[test]
fn values_that_could_not_work_are_refused_where_they_are_set() {
    for (text, expected) in [
        ("namespace = 'a:observed'", "semel.toml:3:1: namespace: ends in"),
        ("namespace = ''", "semel.toml:3:1: namespace: "),
        (
            "buffer = '1MiB'",
            "semel.toml:3:1: buffer: is 1MiB; the largest body needs at least 1028KiB",
        ),
        ("retention = '0s'", "semel.toml:3:1: retention: is 0s; it must be from 1ms to 3650d"),
        (
            "lease = '20m'",
            "semel.toml:3:1: lease: is 20m, longer than max_run, which is 10m; use at",
        ),
        ("lease = '2h'", "semel.toml:3:1: lease: is 2h; it must be from 20ms to 1h"),
        ("wait = '61m'", "semel.toml:3:1: wait: is 61m; it must be from 0s to 1h"),
        ("max_run = '1500ms'", "semel.toml:3:1: max_run: is 1500ms; it must be from 30s to 7d"),
        (
            "max_body = '1GiB'\nbuffer = '2GiB'",
            "semel.toml:3:1: max_body: is 1GiB; it must be from 1 to 32704KiB",
        ),
        ("[timeouts]\nconnect = '0s'", "semel.toml:4:1: timeouts.connect: is zero"),
        ("[timeouts]\nheader = '0s'", "semel.toml:4:1: timeouts.header: is zero"),
        ("[client]\nheader = '0s'", "semel.toml:4:1: client.header: is zero"),
        ("[client]\nidle = '0s'", "semel.toml:4:1: client.idle: is zero"),
        ("[client]\nconnections = 0", "semel.toml:4:15: client.connections: not a count"),
    ] {
        let problem = problem(text, &[]);
        assert!(problem.starts_with(expected), "{text}: {problem}");
    }
    assert_eq!(good("[timeouts]\nidle = '0s'").timeouts.idle, Duration::ZERO);
    let long = format!("namespace = '{}'", "a".repeat(5000));
    assert!(problem(&long, &[]).contains("use at most"));
    assert!(problem("", &["--lease=1ms"]).starts_with("--lease: is 1ms; it must"));
}

#[test]
fn a_named_file_must_exist() {
    let bad = super::load(&matches(&["--config", "/no/such/semel.toml"])).unwrap_err();
    assert!(
        bad.to_string().starts_with("error: /no/such/semel.toml does not exist; create it"),
        "{bad}"
    );
    let folder = TempDir::new().unwrap();
    let bad = super::load(&matches(&["--config", folder.path().to_str().unwrap()])).unwrap_err();
    assert!(bad.to_string().contains("is a folder"), "{bad}");
    // Without valid TOML, nothing else is checked.
    assert_eq!(load("listen = ", &[]).unwrap_err().len(), 1);
}

#[test]
fn a_summary_says_what_is_in_force_and_where_from() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(FILE);
    let routes = "[[routes]]\nmatch = 'POST /a'\nrequire_key = true";
    fs::write(&file, format!("{LEAST}lease = '5s'\n[admin]\nlisten = '127.0.0.1:1'\n{routes}"))
        .unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["--config", file, "--admin-token=0123456789abcdef", "--wait=1s"];
    let summary = summary(&matches(&arguments), |_| Vec::new()).unwrap();
    let words: Vec<Vec<_>> =
        summary.lines().map(|line| line.split_whitespace().collect()).collect();
    let lease = format!("{file}:3:1");
    for row in [
        vec!["ok:", file],
        vec!["listen", "127.0.0.1:8080", "default"],
        vec!["lease", "5s", &lease],
        vec!["wait", "1s", "--wait"],
        vec!["admin.token", "set", "--admin-token"],
        vec!["timeouts.connect", "5s", "default"],
    ] {
        assert!(words.contains(&row), "{row:?}\n{summary}");
    }
    assert!(summary.contains("route POST /a to default, require_key = true"), "{summary}");
    assert!(!summary.contains("0123456789abcdef"));
}
