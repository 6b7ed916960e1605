//! Input that is no text, or there twice.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use tempfile::TempDir;

use super::{folder_with, stderr};
use crate::harness::{command, run};

/// No text in any language.
const NO_TEXT: &[u8] = b"\xff";

#[test]
fn a_bad_value_is_reported_beside_an_argument_that_is_not_utf8() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    command.args(["gateway".as_ref(), "--config".as_ref(), OsStr::from_bytes(NO_TEXT)]);
    let output = command.env("SEMEL_LEASE", "1x").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("SEMEL_LEASE"));
}

#[test]
fn a_variable_that_is_not_utf8_is_named() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    command.args(["gateway", "--demo"]).env("SEMEL_LEASE", OsStr::from_bytes(NO_TEXT));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("SEMEL_LEASE"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_named_with_the_fix() {
    let folder = folder_with(&[("semel.toml", "lease = '1s'\nlease = '2s'\n")]);
    let ended = run(folder.path(), &["config", "check"]).await;
    ended.assert_stderr(&[2], &["semel.toml:2:1", "lease", "remove"]);
}
