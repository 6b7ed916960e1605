//! Operator commands on a store that a gateway has filled.

mod doctor;
mod erase;
mod forget;
mod get;
mod list;
mod purge;
pub(crate) mod resolve;
pub(crate) mod seals;

use serde_json::Value;

use crate::harness::{
    CommandOutput, PATIENCE, ScriptedReply, Setup, TestRequest, TestUpstream, run,
};

/// A store that a gateway has filled before it stopped.
struct StoppedStore(Setup);

impl StoppedStore {
    /// A store with one outcome for each of these keys; the content of the outcomes is secret.
    async fn with(keys: &[&str]) -> Self {
        let upstream = TestUpstream::start(|_| ScriptedReply::ok("card 4242")).await;
        Self::by(Setup::to(&upstream).embedded(), keys).await
    }

    async fn by(setup: Setup, keys: &[&str]) -> Self {
        let mut gateway = setup.start().await;
        for key in keys {
            let response = gateway.request(TestRequest::charge(key)).await;
            assert_eq!(response.status, 200, "{response:?}");
        }
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
        Self(setup)
    }

    /// Runs `semel` with these arguments on the store.
    async fn semel(&self, words: &[&str]) -> CommandOutput {
        run(self.0.folder(), &[words, &["--store", "file:data"]].concat()).await
    }

    /// What a successful command prints.
    async fn stdout(&self, words: &[&str]) -> String {
        let ended = self.semel(words).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
        ended.stdout
    }

    /// The same as JSON, one value for each line.
    async fn json(&self, words: &[&str]) -> Vec<Value> {
        let text = self.stdout(&[words, &["--json"]].concat()).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The hash of the only key.
    async fn only(&self) -> String {
        let mut keys = self.json(&["keys", "list"]).await;
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys.remove(0)["key"].as_str().unwrap().to_owned()
    }
}

/// A command that reads a store must not create it.
#[tokio::test]
async fn operator_commands_create_no_store() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["keys", "list"][..], &["purge"], &["doctor"], &["keys", "get", "00000000"]] {
        let ended = run(folder.path(), words).await;
        ended.assert_stderr(&[1], &["no store in semel-data", "--store file:PATH"]);
        let ended = run(folder.path(), &[words, &["--store", "memory:"]].concat()).await;
        ended.assert_stderr(&[2], &["forgotten with its process", "--store"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_store_that_a_gateway_holds_is_reported_as_in_use() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let _gateway = setup.start().await;
    let store = StoppedStore(setup.clone());
    store.semel(&["keys", "list"]).await.assert_stderr(&[1], &["in use by another process"]);
    let doctor = store.semel(&["doctor"]).await;
    assert_eq!(doctor.code, Some(0), "{doctor:#?}");
    assert!(doctor.stdout.contains("in use by another process"), "{doctor:#?}");
}

/// Operator commands read the gateway's semel.toml, and report its errors.
#[tokio::test]
async fn the_store_is_the_one_in_the_settings() {
    let store = StoppedStore::with(&["k"]).await;
    let file = store.0.folder().join("semel.toml");
    std::fs::write(&file, "store = 'file:data'\nnamespace = 'default'\n").unwrap();
    let ended = run(store.0.folder(), &["keys", "list"]).await;
    assert!(ended.code == Some(0) && ended.stdout.contains("completed"), "{ended:#?}");
    std::fs::write(&file, "store = 'postgres://u:hun/ter2@h/d'\n").unwrap();
    let ended = run(store.0.folder(), &["keys", "list"]).await;
    ended.assert_stderr(&[2], &["semel.toml:1:1: store:", "%2F for /"]);
    assert!(!ended.stderr.contains("ter2"), "{ended:#?}");
}

#[tokio::test]
async fn another_hash_secret_is_refused() {
    let store = StoppedStore::with(&["k"]).await;
    std::fs::write(store.0.folder().join("secret"), "0123456789abcdef").unwrap();
    let ended = store.semel(&["keys", "list", "--hash-secret-file", "secret"]).await;
    ended.assert_stderr(&[1], &["hash secret", "none if it began without", "--hash-secret-file"]);
}
