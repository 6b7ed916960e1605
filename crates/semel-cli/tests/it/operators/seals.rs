//! Operator commands on sealed records, with the seal keys and without.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::StoppedStore;
use crate::harness::{CommandOutput, ScriptedReply, Setup, TestRequest, TestUpstream, run};

/// Writes a key file atomically, readable for its owner only.
pub(crate) fn write_keys(path: &Path, lines: &[&str]) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, lines.join("\n")).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(fresh, path).unwrap();
}

/// A new key of this name, as the command prints it.
pub(crate) async fn fresh(folder: &Path, name: &str) -> String {
    let ended = run(folder, &["seal-key", name]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    ended.stdout.trim().to_owned()
}

/// A store that a gateway with the key `a` has filled, and the key.
async fn store() -> (StoppedStore, String) {
    let upstream = TestUpstream::start(|_| ScriptedReply::ok("card 4242")).await;
    let setup = Setup::to(&upstream).embedded().flag("--seal-keys", "keys");
    let key = fresh(setup.folder(), "a").await;
    write_keys(&setup.folder().join("keys"), &[&key]);
    (StoppedStore::by(setup, &["order-42"]).await, key)
}

async fn with_keys(store: &StoppedStore, words: &[&str]) -> CommandOutput {
    store.semel(&[words, &["--seal-keys", "keys"]].concat()).await
}

#[tokio::test]
async fn with_the_seal_keys_sealed_records_are_shown() {
    let (store, _) = store().await;
    let list = with_keys(&store, &["keys", "list", "--namespace", "default"]).await;
    assert!(list.stdout.contains("order-42") && !list.stdout.contains("sealed"), "{list:#?}");
    let hash = store.only().await;
    let get = with_keys(&store, &["keys", "get", &hash, "--show-outcome"]).await;
    for word in ["order-42", "POST /orders/7", "success, 200", "card 4242"] {
        assert!(get.stdout.contains(word), "{word}: {get:#?}");
    }
}

#[tokio::test]
async fn without_the_seal_keys_a_record_is_shown_as_sealed() {
    let (store, key) = store().await;
    let hash = store.only().await;
    let get = store.stdout(&["keys", "get", &hash, "--show-outcome"]).await;
    for word in ["completed", "sealed with", " a\n", "success, sealed", "--seal-keys FILE"] {
        assert!(get.contains(word), "{word}: {get}");
    }
    let json = store.json(&["keys", "get", &hash, "--show-outcome"]).await.remove(0);
    assert_eq!((&json["sealed_with"], &json["id"]), (&"a".into(), &serde_json::Value::Null));
    for shown in [get, json.to_string(), store.stdout(&["keys", "list"]).await] {
        let secrets = ["4242", "order-42", &key[4..]];
        assert!(!secrets.iter().any(|it| shown.contains(it)), "{shown}");
    }
    let blind = store.semel(&["keys", "list", "--namespace", "default"]).await;
    assert!(blind.stderr.contains("--all-namespaces"), "{blind:#?}");
    let mut other = fresh(store.0.folder(), "b").await;
    write_keys(&store.0.folder().join("keys"), &[&other]);
    let ended = with_keys(&store, &["keys", "get", &hash]).await;
    ended.assert_stderr(&[1], &["sealed with key a", "(b)", "put a back"]);
    // Another key of the same name.
    other.replace_range(..1, "a");
    write_keys(&store.0.folder().join("keys"), &[&other]);
    let ended = with_keys(&store, &["keys", "get", &hash]).await;
    ended.assert_stderr(&[1], &["does not open with key a"]);
}

#[tokio::test]
async fn the_doctor_says_whether_the_keys_open_what_is_stored() {
    let (store, key) = store().await;
    let ended = with_keys(&store, &["doctor"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stdout.contains("key a seals, and all of 1 records looked at open (a: 1 records)"),
        "{ended:#?}"
    );
    let without = store.semel(&["doctor"]).await;
    assert_eq!(without.code, Some(1), "{without:#?}");
    assert!(without.stdout.contains("there are no seal keys here"), "{without:#?}");
    let other = fresh(store.0.folder(), "b").await;
    write_keys(&store.0.folder().join("keys"), &[&other]);
    let missing = with_keys(&store, &["doctor"]).await;
    assert_eq!(missing.code, Some(1), "{missing:#?}");
    for word in
        ["BAD", "1 of 1 records looked at do not open", "sealed with key a", "put the missing"]
    {
        assert!(missing.stdout.contains(word), "{word}: {missing:#?}");
    }
    write_keys(&store.0.folder().join("keys"), &[&other, &key]);
    assert_eq!(with_keys(&store, &["doctor"]).await.code, Some(0));
}

/// A gateway without the right keys refuses the request, and the upstream gets nothing.
#[tokio::test]
async fn a_gateway_without_the_keys_neither_answers_nor_runs() {
    let (store, _) = store().await;
    let upstream = TestUpstream::counting().await;
    let setup = store.0.clone().flag("--upstream", &format!("http://{}", upstream.address));
    for setup in [setup.clone().without("--seal-keys"), {
        write_keys(&setup.folder().join("keys"), &[&fresh(setup.folder(), "b").await]);
        setup
    }] {
        let mut gateway = setup.start().await;
        let response = gateway.request(TestRequest::charge("order-42")).await;
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(gateway.request(TestRequest::charge("order-42")).await.status, 503);
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(crate::harness::PATIENCE).await, Some(0));
    }
    assert!(upstream.received().is_empty());
}

#[tokio::test]
async fn unsealed_records_are_read_only_with_accept_unsealed() {
    let upstream = TestUpstream::start(|_| ScriptedReply::ok("clear")).await;
    let store = StoppedStore::by(Setup::to(&upstream).embedded(), &["k"]).await;
    write_keys(&store.0.folder().join("keys"), &[&fresh(store.0.folder(), "a").await]);
    let setup = store.0.clone().flag("--seal-keys", "keys");
    for (setup, status) in [(setup.clone(), 503), (setup.clone().switch("--accept-unsealed"), 200)]
    {
        let mut gateway = setup.start().await;
        assert_eq!(gateway.request(TestRequest::charge("k")).await.status, status);
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(crate::harness::PATIENCE).await, Some(0));
    }
    let ended = with_keys(&store, &["doctor"]).await;
    assert!(ended.stdout.contains("are not sealed, and are refused"), "{ended:#?}");
    let ended = store.semel(&["doctor", "--accept-unsealed", "--seal-keys", "keys"]).await;
    assert!(
        ended.code == Some(0) && ended.stdout.contains("wait until they have expired"),
        "{ended:#?}"
    );
}

#[tokio::test]
async fn a_bad_key_file_is_reported_with_the_fix_and_not_shown() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).flag("--seal-keys", "keys");
    let folder = setup.folder();
    let gateway = ["gateway", "--upstream", "http://127.0.0.1:1", "--principal", "anonymous"];
    let with = ["--seal-keys", "keys"];
    let start = async || run(folder, &[&gateway[..], &with].concat()).await;
    start().await.assert_stderr(&[2], &["--seal-keys", "keys: does not exist", "semel seal-key"]);
    let key = fresh(folder, "a").await;
    fs::write(folder.join("keys"), &key).unwrap();
    fs::set_permissions(folder.join("keys"), fs::Permissions::from_mode(0o644)).unwrap();
    start().await.assert_stderr(&[2], &["is readable by other users", "chmod 600"]);
    write_keys(&folder.join("keys"), &["# ours", "b = c2VjcmV0"]);
    let ended = start().await;
    ended.assert_stderr(&[2], &["line 2", "32 bytes in base64"]);
    assert!(!ended.stderr.contains("c2VjcmV0"), "{ended:#?}");
    let ended = run(folder, &[&gateway[..], &["--accept-unsealed"]].concat()).await;
    ended.assert_stderr(&[2], &["--accept-unsealed", "without seal keys"]);
    let ended = run(folder, &["seal-key", "a b"]).await;
    ended.assert_stderr(&[2], &["1 to 64 letters"]);
}
