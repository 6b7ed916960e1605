//! The help text.

use crate::harness::run;

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
        "--store-timeout",
        "--compare-host",
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
