//! Errors at the start: addresses and stores that cannot be used.

use super::{gateway, gateway_in};
use crate::harness::{Setup, TestRequest, TestUpstream};

const FAILED: &[i32] = &[1];

#[tokio::test]
async fn a_port_in_use_is_named_with_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    gateway(&["--listen", &address]).await.assert_stderr(FAILED, &["--listen", &address]);
    gateway(&["--admin", &address]).await.assert_stderr(FAILED, &["--admin", &address]);
}

#[tokio::test]
async fn a_store_of_another_gateway_is_named_with_the_fix() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let first = setup.start().await;
    let ended = gateway_in(setup.folder(), &["--store", "file:data"]).await;
    ended.assert_stderr(FAILED, &["data", "in use by another process", "another folder"]);
    // The first gateway still works.
    first.request(TestRequest::charge("k")).await.assert_ran("run 1");
}

/// The cause is printed once.
#[tokio::test]
async fn a_store_that_is_a_file_is_named_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "a file").unwrap();
    let ended = gateway_in(folder.path(), &["--store", "file:data"]).await;
    ended.assert_stderr(FAILED, &["data", "not a file", "--store"]);
    assert_eq!(ended.stderr.matches("os error 20").count(), 1, "{}", ended.stderr);
}

#[tokio::test]
async fn a_store_without_its_parent_folder_names_the_fix() {
    let ended = gateway(&["--store", "file:no/such/folder"]).await;
    ended.assert_stderr(FAILED, &["no/such/folder", "make the folder above it"]);
    assert_eq!(ended.stderr.matches("os error 2").count(), 1, "{}", ended.stderr);
}

/// Errors go to stderr only, so that they never mix with the output.
#[tokio::test]
async fn a_gateway_that_fails_writes_nothing_to_stdout() {
    for ended in [gateway(&["--principal", "x"]).await, gateway(&["--config", "nowhere"]).await] {
        assert_eq!(ended.stdout, "");
        assert!(!ended.stderr.is_empty());
    }
}
