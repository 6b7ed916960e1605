//! Keys that JWTs are verified with.

use std::{fs, io::Write};

use tempfile::TempDir;

use super::folder_with;
use crate::harness::{KillOnDrop, command, run, until};

const SECRET: &str = "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2gtZm9yLUhTMjU2";

#[tokio::test]
async fn a_check_refuses_what_the_gateway_would_refuse() {
    let file = |more: &str| {
        format!(
            "listen = '127.0.0.1:0'\nstore = 'memory:'\nupstream = 'http://a:1'\n\
             principal = 'jwt-secret:keys'\n{more}"
        )
    };
    for (keys, more, line) in [
        (SECRET, "[jwt]\nleeway = '2h'\n", "semel.toml:6:"),
        ("short", "", "semel.toml:4:"),
        ("{\"keys\": []}", "", "semel.toml:4:"),
    ] {
        let folder = folder_with(&[("semel.toml", &file(more)), ("keys", keys)]);
        run(folder.path(), &["config", "check"]).await.assert_stderr(&[2], &[line]);
    }
}

/// It may be a pipe, such as the shell makes of `<(pass show jwt)`.
#[tokio::test]
async fn a_key_file_is_read_once() {
    let (key, mut writer) = std::io::pipe().unwrap();
    writer.write_all(SECRET.as_bytes()).unwrap();
    drop(writer);
    let folder = TempDir::new().unwrap();
    let log = fs::File::create(folder.path().join("err")).unwrap();
    let mut command = command(folder.path());
    command.args(["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]);
    command
        .args(["--store", "memory:", "--principal", "jwt-secret:/dev/stdin"])
        .stdin(key)
        .stderr(log);
    let mut process = KillOnDrop(command.spawn().unwrap());
    let log = || fs::read_to_string(folder.path().join("err")).unwrap();
    until("it listens or ends", async || {
        log().contains(" listening on ") || process.0.try_wait().unwrap().is_some()
    })
    .await;
    assert!(log().contains(" listening on "), "{}", log());
}
