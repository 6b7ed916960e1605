//! The command line.

use super::{FLAGS, gateway};
use crate::harness::run;

const USAGE: &[i32] = &[2];

#[tokio::test]
async fn a_principal_has_to_be_chosen_from_four() {
    let folder = tempfile::tempdir().unwrap();
    let args: Vec<_> = ["gateway"].iter().chain(&FLAGS[..6]).copied().collect();
    let ended = run(folder.path(), &args).await;
    ended.assert_says(USAGE, &["--principal", "anonymous", "authorization", "header:", "jwt:"]);
}

#[tokio::test]
async fn an_unknown_principal_is_told_which_there_are() {
    for who in ["everybody", "header", "header:", "jwt:", "header:x y", ""] {
        let ended = gateway(&["--principal", who]).await;
        ended.assert_says(USAGE, &["--principal"]);
    }
    let ended = gateway(&["--principal", "everybody"]).await;
    ended.assert_says(USAGE, &["anonymous", "authorization", "header:", "jwt:"]);
}

#[tokio::test]
async fn an_upstream_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["gateway", "--principal", "anonymous", "--store", "memory:"];
    run(folder.path(), &args).await.assert_says(USAGE, &["--upstream"]);
}

#[tokio::test]
async fn a_bad_duration_is_told_what_one_looks_like() {
    for flag in ["--lease", "--retention", "--failure-retention", "--wait"] {
        for value in ["soon", "5", "-5s", "5 parsecs", ""] {
            gateway(&[&format!("{flag}={value}")]).await.assert_says(USAGE, &[flag, "30s"]);
        }
    }
}

/// It can be read, but not meant.
#[tokio::test]
async fn a_duration_out_of_bounds_is_refused() {
    for (flag, value) in [("--lease", "0s"), ("--lease", "9999d"), ("--retention", "0s")] {
        gateway(&[flag, value]).await.assert_says(USAGE, &[&flag[2..]]);
    }
}

#[tokio::test]
async fn a_bad_size_is_told_what_one_looks_like() {
    for value in ["large", "-1", "1MB2", "1 furlong", ""] {
        let ended = gateway(&[&format!("--max-body={value}")]).await;
        ended.assert_says(USAGE, &["--max-body", "1MiB"]);
    }
}

#[tokio::test]
async fn a_bad_choice_is_told_the_others() {
    for (flag, words) in [
        ("--mode", &["enforce", "observe", "off"][..]),
        ("--on-lost-owner", &["rerun", "hold"]),
        ("--mismatch-status", &["409", "422"]),
        ("--log", &["error", "warn", "info", "debug", "trace"]),
        ("--log-format", &["text", "json"]),
    ] {
        let ended = gateway(&[flag, "200"]).await;
        ended.assert_says(USAGE, &[&[flag], words].concat());
    }
}

#[tokio::test]
async fn a_bad_address_is_named() {
    for flag in ["--listen", "--admin"] {
        for value in ["nowhere", "127.0.0.1", ":::", "127.0.0.1:99999"] {
            gateway(&[flag, value]).await.assert_says(USAGE, &[flag, value]);
        }
    }
}

#[tokio::test]
async fn an_upstream_on_https_is_told_what_to_do() {
    let ended = gateway(&["--upstream", "https://shop.example"]).await;
    ended.assert_says(USAGE, &["--upstream", "http", "not in this release"]);
}

#[tokio::test]
async fn a_bad_upstream_is_named() {
    for url in ["shop.example:80", "ftp://shop.example", "http://", "http://a b", "/path"] {
        gateway(&["--upstream", url]).await.assert_says(USAGE, &["--upstream"]);
    }
}

#[tokio::test]
async fn a_store_that_is_not_built_in_says_so() {
    let ended = gateway(&["--store", "mssql://u:secret@h/x"]).await;
    ended.assert_says(USAGE, &["--store", "not in this release"]);
    assert!(!ended.stderr.contains("secret"), "{ended:#?}");
    gateway(&["--store", "sqlite:x"]).await.assert_says(USAGE, &["--store", "memory:", "file:"]);
}

/// Before anything is connected to.
#[tokio::test]
async fn a_nats_store_needs_a_bucket() {
    for url in ["nats://127.0.0.1:1", "nats://u:secret@127.0.0.1:1/", "nats+tls://h?prefix=p"] {
        let ended = gateway(&["--store", url, "--namespace", "n"]).await;
        ended.assert_says(USAGE, &["--store", "bucket", "nats://HOST:PORT/BUCKET"]);
        assert!(!ended.stderr.contains("secret"), "{ended:#?}");
    }
}

#[tokio::test]
async fn a_password_that_breaks_the_url_is_told_how_to_write_it() {
    for url in ["postgres://u:sec/ret@db/x", "redis://:sec#ret@h"] {
        let ended = gateway(&["--store", url]).await;
        ended.assert_says(USAGE, &["--store", "%2F for /"]);
        assert!(!ended.stderr.contains("ret@"), "{ended:#?}");
    }
}

/// A pipeline that lost its variable must not pass.
#[tokio::test]
async fn nothing_is_migrated_unless_a_store_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["migrate"][..], &["migrate", "--json"]] {
        run(folder.path(), args).await.assert_says(USAGE, &["--store", "SEMEL_STORE"]);
    }
}

/// What connecting would refuse is refused before.
#[tokio::test]
async fn a_server_is_told_what_it_takes_without_being_asked() {
    for (url, words) in [
        ("postgres://a@127.0.0.1:1/d?sslmod=require", &["--store", "sslmod"][..]),
        ("postgres://a@127.0.0.1:1/d?table=a-b", &["--store", "a-z, 0-9 and _"]),
        ("postgres://a@127.0.0.1:1/d?sslmode=prefer&sslrootcert=x", &["--store", "sslrootcert"]),
        ("redis://127.0.0.1:1/x", &["--store", "database"]),
        ("redis://hunter2@127.0.0.1:1", &["--store", ":PASSWORD@"]),
        ("nats://127.0.0.1:1/ids?replicas=9", &["--store", "replicas"]),
    ] {
        let ended = gateway(&["--namespace", "a", "--store", url]).await;
        ended.assert_says(USAGE, words);
    }
}

/// Two services would answer each other's keys.
#[tokio::test]
async fn a_shared_store_needs_a_namespace() {
    for url in ["postgres://u:secret@127.0.0.1:1/x", "redis://:secret@127.0.0.1:1"] {
        let ended = gateway(&["--store", url]).await;
        ended.assert_says(USAGE, &["no namespace", "--namespace", "SEMEL_NAMESPACE"]);
        assert!(!ended.stderr.contains("secret"), "{ended:#?}");
    }
}

#[tokio::test]
async fn an_admin_listener_for_everybody_needs_a_token() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        gateway(&["--admin", address]).await.assert_says(USAGE, &["--admin", "SEMEL_ADMIN_TOKEN"]);
    }
}

#[tokio::test]
async fn a_misspelt_flag_is_told_the_right_one() {
    let ended = gateway(&["--upstraem", "http://127.0.0.1:9"]).await;
    ended.assert_says(USAGE, &["--upstraem", "--upstream"]);
}

#[tokio::test]
async fn a_bad_variable_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_semel"));
    let command = command.current_dir(folder.path()).arg("gateway").args(FLAGS);
    let output = command.env("SEMEL_LEASE", "soon").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("SEMEL_LEASE"), "{text}");
}

#[tokio::test]
async fn the_help_has_every_flag() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(folder.path(), &["gateway", "--help"]).await;
    assert_eq!(ended.code, Some(0));
    for flag in [
        "--listen",
        "--upstream",
        "--store",
        "--namespace",
        "--cache",
        "--migrate",
        "--principal",
        "--lease",
        "--retention",
        "--failure-retention",
        "--wait",
        "--require-key",
        "--mismatch-status",
        "--on-lost-owner",
        "--mode",
        "--max-body",
        "--config",
        "--admin",
        "--admin-token",
        "--hash-secret-file",
        "--log",
        "--log-format",
        "--demo",
    ] {
        let mut words = ended.stdout.split([' ', '\n', ',', '=', '[']);
        assert!(words.any(|word| word == flag), "{flag}: {}", ended.stdout);
    }
    for taught in
        ["anonymous", "authorization", "header:NAME", "jwt:FILE", "127.0.0.1:8080", "SEMEL_"]
    {
        assert!(ended.stdout.contains(taught), "{taught}: {}", ended.stdout);
    }
}
