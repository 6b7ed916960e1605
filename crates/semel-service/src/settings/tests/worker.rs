//! The settings of a worker.

use semel_consumer::{
    Mode, OnDeadLetter, Order, Retention,
    pipeline::{OnMismatch, UnknownType},
};

use super::*;
use crate::settings::{
    field_names::fields_of,
    worker::{DeadLetterTarget, WorkerFields},
};

/// The least that is needed.
const LEAST: &str =
    "[worker]\nsource = 'nats://a/S/c'\nhandler = 'http://a/b'\ndead_letter = 'file:d'\n";

fn load_text(text: &str, arguments: &[&str]) -> Result<WorkerConfig, Vec<String>> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(FILE);
    fs::write(&file, text).unwrap();
    let command = WorkerFlags::augment_args(Command::new("semel")).no_binary_name(true);
    let arguments = [&["--config", file.to_str().unwrap()], arguments].concat();
    let matches = command.try_get_matches_from(arguments).unwrap();
    load_worker(&matches).map_err(|bad| {
        let prefix = format!("{}/", folder.path().display());
        bad.0.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
    })
}

/// The one problem of `text` below the least.
fn problem(text: &str) -> String {
    let mut problems = load_text(&format!("{LEAST}{text}"), &[]).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[test]
fn defaults_are_the_published_ones() {
    let config = load_text(LEAST, &[]).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(config.source.as_ref().map(|url| url.expose().as_str()), Some("nats://a/S/c"));
    assert_eq!(config.handler.as_ref().map(ToString::to_string).as_deref(), Some("http://a/b"));
    assert!(matches!(&config.dead_letters, Some(DeadLetterTarget::Url(_))));
    assert_eq!(config.store, Some(StoreUrl::file("semel-data")));
    assert_eq!((config.namespace.as_str(), config.name.as_deref()), ("default", None));
    assert_eq!((config.order, config.mode), (Order::Strict, Mode::RecordOutcome));
    assert_eq!(
        (config.on_mismatch, config.unknown_type),
        (OnMismatch::DeadLetter, UnknownType::DeadLetter)
    );
    assert_eq!(
        (config.on_dead_letter, config.retention),
        (OnDeadLetter::Continue, Retention::Auto)
    );
    assert_eq!((config.concurrency, config.max_in_flight, config.max_attempts), (64, None, 5));
    assert_eq!((config.lease, config.max_run), (seconds(30), seconds(600)));
    assert_eq!((config.handler_timeout, config.shutdown_grace), (seconds(60), seconds(25)));
    assert_eq!(config.permanent_statuses, WorkerConfig::PERMANENT_STATUSES);
    assert_eq!((config.max_body, config.check_json), (1 << 20, true));
    assert!(config.types.is_empty() && config.admin.is_none() && config.warnings.is_empty());
    assert!(!config.allow_short_retention && !config.demo);
}

#[test]
fn urls_are_never_shown() {
    let text =
        LEAST.replace("nats://a", "nats://u:canary@a").replace("file:d", "postgres://u:canary@h/d");
    let config = load_text(&text, &[]).unwrap();
    assert!(!format!("{config:?}").contains("canary"));
}

#[test]
fn a_lease_is_renewed_for_longer_than_the_handler_may_take() {
    let with = |text: &str| load_text(&format!("{LEAST}{text}"), &[]).unwrap();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    assert_eq!(with("handler_timeout = '30m'").max_run, minutes(31));
    assert_eq!(with("lease = '20m'").max_run, minutes(20));
}

#[test]
fn settings_out_of_bounds_are_named_as_they_are_written() {
    for (text, words) in [
        ("lease = '1ms'", "semel.toml:5:1: worker.lease: is 1ms; it must be from 20ms"),
        ("retention = '0s'", "worker.retention: is 0s"),
        ("handler_timeout = '0s'", "worker.handler_timeout: is zero"),
        ("handler_timeout = '30d'", "worker.handler_timeout: is 30d; it must be from 1ms to 6d"),
        ("concurrency = 65537", "worker.concurrency: is 65537; it must be from 1 to 65536"),
        ("max_in_flight = 131073", "worker.max_in_flight: is 131073; it must be from 1 to 131072"),
        ("max_body = 0", "worker.max_body: is 0; every message"),
        ("types = ['a', ' ']", "worker.types: has an empty type; remove it"),
        ("permanent_status = ['']", "worker.permanent_status: is empty; write a status"),
        ("max_in_flight = 2", "worker.max_in_flight: is 2, less than concurrency, which is 64"),
        ("permanent_status = [200]", "worker.permanent_status: not a status from 400 to 599"),
        ("order = 'stric'", "did you mean `strict`?"),
    ] {
        let problem = problem(text);
        assert!(problem.contains(words), "{words:?}: {problem}");
    }
}

#[test]
fn a_flag_overrides_the_file() {
    let flags = ["--lease", "5s", "--type", "a", "--type", "b,c", "--permanent-status", "404,422"];
    let config = load_text(&format!("{LEAST}lease = '9s'\ntypes = ['z']"), &flags).unwrap();
    assert_eq!(
        (config.lease, &*config.types),
        (Duration::from_secs(5), &["a", "b", "c"].map(str::to_owned)[..])
    );
    assert_eq!(
        config.permanent_statuses.iter().map(|it| it.as_u16()).collect::<Vec<_>>(),
        [404, 422]
    );
}

#[test]
fn parts_of_a_list_are_trimmed_and_not_empty() {
    let flags = ["--type", " a, b ", "--permanent-status", "404, 422"];
    let config = load_text(LEAST, &flags).unwrap();
    assert_eq!(
        (&*config.types, config.permanent_statuses.len()),
        (&["a", "b"].map(str::to_owned)[..], 2)
    );
    for bad in ["", "a,", "a,,b"] {
        let problems = load_text(LEAST, &["--type", bad]).unwrap_err();
        assert!(problems[0].starts_with("--type: has an empty type"), "{bad:?}: {problems:?}");
    }
}

#[test]
fn dead_letters_are_not_in_the_folder_of_the_store_or_around_it() {
    let with = |letters: &str, flags: &[&str]| {
        load_text(&LEAST.replace("file:d'", &format!("{letters}'")), flags)
    };
    for (letters, how) in [
        ("file:semel-data", "semel-data is the folder of the store, semel-data; name a folder"),
        ("file:./x/../semel-data/", "is the folder"),
        ("file:semel-data/dead", "is inside of the folder"),
        ("file:.", "is around the folder"),
    ] {
        let problems = with(letters, &[]).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(how), "{letters}: {problems:?}");
    }
    let store = format!("file://{}/data", std::env::current_dir().unwrap().display());
    assert!(with("file:data", &["--store", &store]).is_err());
    for (letters, store) in
        [("file:data", "memory:"), ("file:data", "file:data2"), ("drop", "file:d")]
    {
        with(letters, &["--store", store]).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_link_to_the_folder_of_the_store_is_that_folder() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("data")).unwrap();
    std::os::unix::fs::symlink(at("data"), at("link")).unwrap();
    let url = |name: &str| format!("file:{}", at(name).display());
    let flags = ["--store", &url("data"), "--dead-letter", &url("link/dead")];
    assert!(load_text(LEAST, &flags).unwrap_err()[0].starts_with("--dead-letter: its folder"));
}

#[test]
fn the_demo_takes_no_setting_that_changes_its_story() {
    let load = |flags: &[&str]| {
        let command = WorkerFlags::augment_args(Command::new("semel")).no_binary_name(true);
        load_worker(&command.try_get_matches_from([&["--demo"], flags].concat()).unwrap())
    };
    for flag in
        ["--max-attempts=1", "--on-lost-owner=hold", "--type=a", "--max-body=1", "--retention=1s"]
    {
        let bad = load(&[flag]).unwrap_err().to_string();
        assert!(bad.contains("the demo brings its own"), "{flag}: {bad}");
    }
    load(&["--name", "billing", "--concurrency", "1"]).unwrap();
}

#[test]
fn a_policy_for_other_types_without_a_list_is_warned_about() {
    let config = load_text(&format!("{LEAST}unknown_type = 'skip'"), &[]).unwrap();
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
}

#[test]
fn the_example_has_the_defaults_of_a_worker_and_all_of_its_settings() {
    let example = include_str!("../../../../../docs/semel.toml");
    let (before, rest) = example.split_once("\n[worker]\n").unwrap();
    let section = rest.split("\n#[").next().unwrap();
    assert!(!before.contains("[worker]\n"));
    let chosen = "source = 'nats://a/S/c'\nhandler = 'http://a/b'\ndead_letter = 'file:d'\n";
    let config = load_text(&format!("[worker]\n{chosen}{section}"), &[]).unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", load_text(LEAST, &[]).unwrap()));
    for field in fields_of::<WorkerFields>() {
        let written = |line: &str| line.trim_start_matches('#').starts_with(&format!("{field} = "));
        assert!(section.lines().any(written), "{field}");
    }
}
