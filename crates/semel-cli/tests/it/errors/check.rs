//! `semel config check` reports the same errors without starting anything.

use super::folder;
use crate::harness::run;

const GOOD: &str = "
upstream = \"http://127.0.0.1:3000\"
principal = \"authorization\"
store = \"file:here\"
retention = \"48h\"
[upstreams.billing]
url = \"http://127.0.0.1:4000\"
[[routes]]
match = \"POST /refunds/{id}\"
upstream = \"billing\"
preset = \"financial\"
on_lost_owner = \"hold\"
";

#[tokio::test]
async fn good_settings_are_summed_up() {
    let folder = folder(GOOD);
    let ended = run(folder.path(), &["config", "check"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    for word in ["ok", "127.0.0.1:3000", "authorization", "here", "/refunds/{id}", "billing"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:#?}");
    }
    assert!(!folder.path().join("here").exists(), "a check opens no store");
}

#[tokio::test]
async fn flags_take_precedence_over_the_file() {
    let folder = folder(GOOD);
    let args = ["config", "check", "--principal", "anonymous", "--listen", "127.0.0.1:7777"];
    let ended = run(folder.path(), &args).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    for word in ["anonymous", "127.0.0.1:7777"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:#?}");
    }
}

#[tokio::test]
async fn another_file_can_be_checked() {
    let folder = folder("nonsense = 1\n");
    std::fs::write(folder.path().join("other.toml"), GOOD).unwrap();
    let ended = run(folder.path(), &["config", "check", "--config", "other.toml"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let ended = run(folder.path(), &["config", "check", "--config", "nowhere.toml"]).await;
    ended.assert_stderr(&[1, 2], &["nowhere.toml"]);
}

#[tokio::test]
async fn bad_settings_are_reported_with_their_place() {
    let folder = folder(&GOOD.replace("retention", "retenshun"));
    let ended = run(folder.path(), &["config", "check"]).await;
    ended.assert_stderr(&[2], &["semel.toml:5", "retenshun", "retention"]);
    let missing = folder.path().join("semel.toml");
    std::fs::write(&missing, "upstream = \"http://127.0.0.1:3000\"\n").unwrap();
    let ended = run(folder.path(), &["config", "check"]).await;
    ended.assert_stderr(&[2], &["principal", "anonymous", "authorization"]);
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let secret = "a-secret-that-is-never-shown";
    let folder = folder(GOOD);
    let args = ["config", "check", "--admin", "127.0.0.1:0", "--admin-token", secret];
    let ended = run(folder.path(), &args).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{ended:#?}");
}
