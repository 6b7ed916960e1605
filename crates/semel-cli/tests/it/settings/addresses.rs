//! Addresses that cannot be what they are set to.

use tempfile::TempDir;

use crate::harness::run;

#[tokio::test]
async fn one_address_for_clients_and_operators_is_refused() {
    let folder = TempDir::new().unwrap();
    let flags = "config check --upstream http://a:1 --principal anonymous \
                 --listen 127.0.0.1:8080 --admin 127.0.0.1:8080";
    let flags: Vec<_> = flags.split_whitespace().collect();
    run(folder.path(), &flags).await.assert_stderr(&[2], &["--admin", "--listen"]);
}

#[tokio::test]
async fn an_upstream_that_is_the_gateway_itself_is_refused() {
    let flags = "config check --upstream http://127.0.0.1:8080 --principal anonymous";
    let flags: Vec<_> = flags.split_whitespace().collect();
    run(TempDir::new().unwrap().path(), &flags).await.assert_stderr(&[2], &["--upstream"]);
}
