//! Settings through the real binary: variables, exit codes, what goes to stdout and what to stderr.

mod addresses;
mod jwt;
mod output;
mod policies;
mod principals;
mod secrets;
mod text;

use std::{
    fs,
    process::{Command, Output},
};

use tempfile::TempDir;

/// A folder to start semel in, where nothing of this machine is set.
struct SettingsFolder(TempDir);

impl SettingsFolder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn with_file(text: &str) -> Self {
        let folder = Self::new();
        fs::write(folder.0.path().join("semel.toml"), text).unwrap();
        folder
    }

    fn semel(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command.env_clear().current_dir(self.0.path()).args(arguments);
        command.envs(variables.iter().copied()).output().unwrap()
    }

    /// What `semel config check` prints for valid settings.
    fn good(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.semel(&[&["config", "check"], arguments].concat(), variables);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `semel config check` prints for bad settings.
    fn bad(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.semel(&[&["config", "check"], arguments].concat(), variables);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        stderr(&output)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Value and origin of a setting.
fn row<'a>(summary: &'a str, name: &str) -> (&'a str, &'a str) {
    let rows = summary.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row.first() == Some(&name)).unwrap();
    (row[1], row[row.len() - 1])
}

const LEAST: &str = "upstream = 'http://127.0.0.1:3000'\nprincipal = 'authorization'\n";

#[test]
fn flags_take_precedence_over_variables_and_variables_over_the_file() {
    let folder =
        SettingsFolder::with_file(&format!("{LEAST}lease = '1s'\nwait = '1s'\nbackoff = '2s'"));
    let variables = [("SEMEL_LEASE", "2s"), ("SEMEL_WAIT", "2s"), ("SEMEL_LOG", "warn")];
    let summary = folder.good(&["--wait", "3s"], &variables);
    assert!(summary.starts_with("ok: semel.toml\n"), "{summary}");
    assert_eq!(row(&summary, "backoff"), ("2s", "semel.toml:5:1"));
    assert_eq!(row(&summary, "lease"), ("2s", "SEMEL_LEASE"));
    assert_eq!(row(&summary, "wait"), ("3s", "--wait"));
    assert_eq!(row(&summary, "log.level"), ("warn", "SEMEL_LOG"));
    assert_eq!(row(&summary, "retention"), ("24h", "default"));
}

#[test]
fn variables_alone_are_enough() {
    let variables = [
        ("SEMEL_UPSTREAM", "http://a:1"),
        ("SEMEL_PRINCIPAL", "header:X-User"),
        ("SEMEL_REQUIRE_KEY", "true"),
        ("SEMEL_ADMIN", "0.0.0.0:9090"),
        ("SEMEL_ADMIN_TOKEN", "0123456789abcdef"),
        ("SEMEL_HASH_SECRET", "fedcba9876543210"),
    ];
    let summary = SettingsFolder::new().good(&[], &variables);
    assert_eq!(row(&summary, "upstream"), ("http://a:1", "SEMEL_UPSTREAM"));
    assert_eq!(row(&summary, "principal"), ("header:x-user", "SEMEL_PRINCIPAL"));
    assert_eq!(row(&summary, "require_key"), ("true", "SEMEL_REQUIRE_KEY"));
    assert_eq!(row(&summary, "admin.token"), ("set", "SEMEL_ADMIN_TOKEN"));
    assert_eq!(row(&summary, "hash_secret").1, "SEMEL_HASH_SECRET");
    assert!(!summary.contains("0123456789abcdef") && !summary.contains("fedcba9876543210"));
    let summary = SettingsFolder::new().good(&[], &[("SEMEL_DEMO", "1")]);
    assert_eq!(row(&summary, "principal").0, "anonymous");
}

#[test]
fn another_file_can_be_named() {
    let folder = SettingsFolder::with_file("nonsense = 1");
    fs::write(folder.0.path().join("other.toml"), LEAST).unwrap();
    assert!(folder.good(&["--config", "other.toml"], &[]).starts_with("ok: other.toml\n"));
    assert!(folder.good(&[], &[("SEMEL_CONFIG", "other.toml")]).starts_with("ok: other.toml\n"));
    assert!(folder.bad(&["--config", "none.toml"], &[]).contains("none.toml does not exist"));
}

#[test]
fn a_bad_variable_is_named() {
    let folder = SettingsFolder::with_file(LEAST);
    for (name, value) in [
        ("SEMEL_LEASE", "30"),
        ("SEMEL_LISTEN", "8080"),
        ("SEMEL_MODE", "on"),
        ("SEMEL_ADMIN", ""),
        ("SEMEL_STORE", "mssql://h"),
        ("SEMEL_CACHE", "0"),
        ("SEMEL_MIGRATE", "maybe"),
        ("SEMEL_UPSTREAM", ""),
        ("SEMEL_REQUIRE_KEY", "maybe"),
        ("SEMEL_HASH_SECRET", "short"),
        ("SEMEL_ADMIN_TOKEN", ""),
    ] {
        let error = folder.bad(&[], &[(name, value)]);
        assert!(error.starts_with("error: ") && error.contains(name), "{name}: {error}");
    }
    let both = [("SEMEL_HASH_SECRET", "0123456789abcdef"), ("SEMEL_HASH_SECRET_FILE", "x")];
    assert!(
        folder.bad(&[], &both).contains("SEMEL_HASH_SECRET_FILE: is set beside SEMEL_HASH_SECRET")
    );
}

#[test]
fn an_unknown_variable_is_a_warning_unless_kubernetes_set_it() {
    let folder = SettingsFolder::with_file(LEAST);
    let summary = folder.good(&[], &[("SEMEL_LEESE", "30s")]);
    assert!(summary.contains("warning: unknown variable SEMEL_LEESE; did you mean SEMEL_LEASE?"));
    let kubernetes = [("SEMEL_PORT", "tcp://10.0.0.1:80"), ("SEMEL_SERVICE_HOST", "10.0.0.1")];
    assert!(!folder.good(&[], &kubernetes).contains("warning"));
}

/// The settings may name the wrong store.
#[test]
fn a_migration_of_a_store_without_tables_is_a_warning() {
    let folder = SettingsFolder::with_file(LEAST);
    for store in ["file:data", "memory:"] {
        let summary = folder.good(&["--migrate", "--store", store], &[]);
        let warning = format!("warning: --migrate: {store} has no tables; it needs no migration");
        assert!(summary.contains(&warning), "{summary}");
    }
    let tables = ["--migrate", "--store", "postgres://a@h/d", "--namespace", "n"];
    assert!(!folder.good(&tables, &[]).contains("warning"));
}

#[test]
fn bad_settings_and_bad_usage_end_with_2_and_an_error() {
    let output = SettingsFolder::new().semel(&["gateway", "--upstream", "http://a"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: no principal"), "{}", stderr(&output));
    let output = SettingsFolder::with_file("\nleese = '1s'")
        .semel(&["gateway", "--demo", "--config", "semel.toml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = "error: semel.toml:2:1: leese: unknown field; did you mean lease?\n";
    assert_eq!(stderr(&output), error);
    for usage in [&["gateway", "--leese", "1s"][..], &["gatewya"], &["config"], &[]] {
        assert_eq!(SettingsFolder::new().semel(usage, &[]).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn help_shows_examples_and_no_secret() {
    let variables = [("SEMEL_ADMIN_TOKEN", "hunter2"), ("SEMEL_STORE", "redis://:hunter2@h")];
    let output = SettingsFolder::new().semel(&["gateway", "--help"], &variables);
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        help.contains("semel gateway --demo") && help.contains("--principal header:X-User"),
        "{help}"
    );
    assert!(!help.contains("hunter2"), "{help}");
}

/// Names of keys are shown; the keys are not, and which of two is meant is not guessed.
#[test]
fn seal_keys_may_be_set_in_a_variable() {
    let folder = SettingsFolder::with_file(LEAST);
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let keys = format!("new = {key}, old = {key}");
    let variable = [("SEMEL_SEAL_KEYS", keys.as_str())];
    let summary = folder.good(&["--accept-unsealed"], &variable);
    let shown = "the keys in SEMEL_SEAL_KEYS: new seals, 2 open; unsealed accepted";
    assert!(summary.contains(shown) && !summary.contains(&key[..8]), "{summary}");
    assert!(!summary.contains("unknown variable"), "{summary}");
    let both = folder.bad(&["--seal-keys", "keys"], &variable);
    assert!(both.contains("beside SEMEL_SEAL_KEYS; keep one"), "{both}");
    let bad = folder.bad(&[], &[("SEMEL_SEAL_KEYS", "a = c2VjcmV0")]);
    assert!(bad.contains("SEMEL_SEAL_KEYS: seal keys, line 1") && !bad.contains("c2Vj"), "{bad}");
}

#[test]
fn the_file_of_a_worker_alone_needs_no_setting_of_a_gateway() {
    let worker = "[worker]\nhandler = 'http://a/b'\ndead_letter = 'file:d'\n";
    let folder = SettingsFolder::with_file(worker);
    let source = [("SEMEL_SOURCE", "nats://a/S/c")];
    let text = folder.good(&[], &source);
    assert!(text.starts_with("ok: semel.toml\nworker: ok; events go to http://a/b"), "{text}");
    assert!(!text.contains("warning"), "{text}");
    let text = folder.bad(&[], &[]);
    assert!(text.contains("no source") && !text.contains("principal"), "{text}");
    let text = folder.bad(&[], &[("SEMEL_SOURCE", "nats://a/only-a-stream")]);
    assert!(text.contains("--source") && text.contains("/STREAM/CONSUMER"), "{text}");
    let text = folder.bad(&["--listen", "127.0.0.1:1"], &source);
    assert!(text.contains("no principal"), "{text}");
    let both = [("SEMEL_UPSTREAM", "http://u:1"), ("SEMEL_PRINCIPAL", "anonymous"), source[0]];
    let text = folder.good(&[], &both);
    assert!(text.contains("listen") && text.contains("worker: ok"), "{text}");
}
