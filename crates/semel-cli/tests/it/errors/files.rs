//! Files that are not what they should be.

use super::{folder, gateway, gateway_in};

/// A file that cannot be read is a failure, a file that says something wrong is a bad setting.
const UNREADABLE: &[i32] = &[1, 2];
const USAGE: &[i32] = &[2];

#[tokio::test]
async fn a_configuration_that_is_not_there_is_named() {
    let ended = gateway(&["--config", "nowhere.toml"]).await;
    ended.assert_says(UNREADABLE, &["nowhere.toml"]);
}

#[tokio::test]
async fn a_configuration_that_is_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("inside.toml")).unwrap();
    let ended = gateway_in(folder.path(), &["--config", "inside.toml"]).await;
    ended.assert_says(UNREADABLE, &["inside.toml"]);
}

#[tokio::test]
async fn a_configuration_that_is_no_toml_is_named_with_its_line() {
    let folder = folder("listen = \"127.0.0.1:0\"\nlease = = 5\n");
    let ended = gateway_in(folder.path(), &[]).await;
    ended.assert_says(USAGE, &["semel.toml", "2"]);
}

#[tokio::test]
async fn an_unknown_field_is_told_where_it_is_and_what_was_meant() {
    let folder = folder("namespace = \"shop\"\n\nretenton = \"24h\"\n");
    let ended = gateway_in(folder.path(), &[]).await;
    ended.assert_says(USAGE, &["semel.toml:3", "retenton", "retention"]);
}

#[tokio::test]
async fn an_unknown_field_of_a_section_is_told_where_it_is_and_what_was_meant() {
    for (text, line, wrong, right) in [
        ("[timeouts]\nheadr = \"1s\"\n", 2, "headr", "header"),
        ("[client]\nheader = \"1s\"\nbdoy = \"1s\"\n", 3, "bdoy", "body"),
        ("[[routes]]\nmatch = \"/a\"\nleese = \"1s\"\n", 3, "leese", "lease"),
        (
            "[upstreams.a]\nurl = \"http://a\"\npreserve_hosts = true\n",
            3,
            "preserve_hosts",
            "preserve_host",
        ),
        ("[admin]\ntokn = \"x\"\n", 2, "tokn", "token"),
        ("\n\n[clinet]\n", 3, "clinet", "client"),
    ] {
        let ended = gateway_in(folder(text).path(), &[]).await;
        ended.assert_says(USAGE, &[&format!("semel.toml:{line}"), wrong, right]);
    }
}

#[tokio::test]
async fn a_bad_value_is_told_where_it_is() {
    for (text, line, words) in [
        ("\nlease = \"soon\"\n", 2, &["lease", "30s"][..]),
        ("max_body = \"much\"\n", 1, &["max_body", "1MiB"]),
        ("max_attempts = 0\n", 1, &["max_attempts"]),
        ("require_key = \"yes\"\n", 1, &["require_key"]),
        ("mode = \"on\"\n", 1, &["mode", "enforce"]),
        ("preset = \"cheap\"\n", 1, &["preset", "financial"]),
        ("key_from = \"request_id\"\n", 1, &["key_from"]),
        ("[[routes]]\nmatch = \"orders\"\n", 2, &["match"]),
        ("[[routes]]\nmatch = \"/a/{id\"\n", 2, &["{name}"]),
        ("[[routes]]\nmatch = \"/a\"\nupstream = \"nowhere\"\n", 3, &["nowhere"]),
        ("[upstreams.a]\nurl = \"https://a\"\n", 2, &["http", "not in this release"]),
    ] {
        let ended = gateway_in(folder(text).path(), &[]).await;
        ended.assert_says(USAGE, &[&[&*format!("semel.toml:{line}")], words].concat());
    }
}

#[tokio::test]
async fn two_routes_for_the_same_are_told_apart() {
    let text = "[[routes]]\nmatch = \"POST /a/{id}\"\nlease = \"1s\"\n\
                [[routes]]\nmatch = \"POST /a/{name}\"\nlease = \"2s\"\n";
    let ended = gateway_in(folder(text).path(), &[]).await;
    ended.assert_says(USAGE, &["semel.toml", "/a/"]);
}

#[tokio::test]
async fn a_key_file_that_is_not_there_is_named() {
    let ended = gateway(&["--principal", "jwt:nowhere.pem"]).await;
    ended.assert_says(UNREADABLE, &["nowhere.pem"]);
}

#[tokio::test]
async fn a_key_file_that_holds_no_key_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let broken = "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n";
    for text in ["", "short", broken, "{\"keys\": []}"] {
        std::fs::write(folder.path().join("keys"), text).unwrap();
        let ended = gateway_in(folder.path(), &["--principal", "jwt:keys"]).await;
        ended.assert_says(UNREADABLE, &["keys"]);
    }
}

#[tokio::test]
async fn a_hash_secret_that_is_not_there_is_named() {
    let ended = gateway(&["--hash-secret-file", "nowhere.secret"]).await;
    ended.assert_says(UNREADABLE, &["nowhere.secret"]);
}
