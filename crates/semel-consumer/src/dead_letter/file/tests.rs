//! What a folder of dead letters promises.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use semel_core::ErrorKind;
use tempfile::TempDir;

use super::*;
use crate::dead_letter::{
    format::tests::{content, letter},
    rfc3339,
};

async fn folder() -> (TempDir, FileDeadLetters) {
    let home = tempfile::tempdir().unwrap();
    let letters = FileDeadLetters::open(home.path().join("dead")).await.unwrap();
    (home, letters)
}

/// A letter with this id that became one this many seconds after 1970.
fn letter_of(id: &str, second: u64) -> DeadLetter {
    DeadLetter { id: id.to_owned(), last_at: rfc3339::from_micros(second * 1_000_000), ..letter() }
}

async fn ids(letters: &FileDeadLetters, after: Option<&str>, limit: usize) -> Vec<String> {
    letters.list(after, limit).await.unwrap().into_iter().map(|letter| letter.id).collect()
}

#[tokio::test]
async fn a_letter_outlives_the_process() {
    let (home, letters) = folder().await;
    let letter = letter();
    letters.publish(&letter).await.unwrap();
    drop(letters);
    let letters = FileDeadLetters::open(home.path().join("dead")).await.unwrap();
    let kept = letters.get(&letter.id).await.unwrap().unwrap();
    assert_eq!(content(&kept), content(&letter));
}

#[tokio::test]
async fn letters_are_listed_oldest_first_and_page_by_page() {
    let (_home, letters) = folder().await;
    for (id, second) in [("d", 4), ("b", 2), ("c", 2), ("a", 3)] {
        letters.publish(&letter_of(id, second)).await.unwrap();
    }
    assert_eq!(ids(&letters, None, 10).await, ["b", "c", "a", "d"]);
    assert_eq!(ids(&letters, None, 2).await, ["b", "c"]);
    assert_eq!(ids(&letters, Some("c"), 2).await, ["a", "d"]);
    assert_eq!(ids(&letters, Some("d"), 2).await, Vec::<String>::new());
    let error = letters.list(Some("e"), 2).await.unwrap_err();
    assert!(error.to_string().contains("list again"), "{error}");
}

#[tokio::test]
async fn a_letter_replaces_an_earlier_one_with_the_same_id() {
    let (_home, letters) = folder().await;
    let (first, second) = (letter_of("a", 1), letter_of("a", 2));
    letters.publish(&first).await.unwrap();
    letters.publish(&second).await.unwrap();
    assert_eq!(ids(&letters, None, 10).await, ["a"]);
    assert!(letters.get("a").await.unwrap().unwrap().is_copy_of(&second));
}

#[tokio::test]
async fn a_removal_spares_a_later_letter_with_the_same_id() {
    let (_home, letters) = folder().await;
    let (first, second) = (letter_of("a", 1), letter_of("a", 2));
    letters.publish(&first).await.unwrap();
    letters.publish(&second).await.unwrap();
    assert!(!letters.remove(&first).await.unwrap());
    assert!(letters.get("a").await.unwrap().is_some());
    assert!(letters.remove(&second).await.unwrap());
    assert!(!letters.remove(&second).await.unwrap());
    assert!(letters.get("a").await.unwrap().is_none());
}

/// Each letter is published by one task while another removes the letter before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_never_takes_a_letter_that_comes_meanwhile() {
    let (_home, letters) = folder().await;
    letters.publish(&letter_of("a", 0)).await.unwrap();
    for second in 0..100 {
        let (remover, old) = (letters.clone(), letter_of("a", second));
        let removal = tokio::spawn(async move { remover.remove(&old).await.unwrap() });
        letters.publish(&letter_of("a", second + 1)).await.unwrap();
        removal.await.unwrap();
        let kept = letters.get("a").await.unwrap().expect("the later letter is there");
        assert!(kept.is_copy_of(&letter_of("a", second + 1)));
    }
}

#[tokio::test]
async fn an_id_never_leads_out_of_the_folder() {
    let (home, letters) = folder().await;
    let long = "a".repeat(129);
    for id in ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\\b", "a\0b", ".lock", "ä", &long] {
        let letter = letter_of(id, 1);
        for error in [
            letters.publish(&letter).await.unwrap_err(),
            letters.get(id).await.map(|_| ()).unwrap_err(),
            letters.remove(&letter).await.map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{id:?}: {error}");
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn an_unreadable_file_is_named() {
    let (home, letters) = folder().await;
    letters.publish(&letter_of("a", 1)).await.unwrap();
    let damaged = home.path().join("dead/b.json");
    fs::write(&damaged, "{\"version\":1,\"canary\":").unwrap();
    for error in [letters.list(None, 10).await.unwrap_err(), letters.get("b").await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(
            text.contains("b.json") && text.contains("move it") && !text.contains("canary"),
            "{text}"
        );
    }
    fs::copy(home.path().join("dead/a.json"), &damaged).unwrap();
    let error = letters.list(None, 10).await.unwrap_err().to_string();
    assert!(error.contains("b.json") && error.contains("rename"), "{error}");
}

#[tokio::test]
async fn files_of_interrupted_writes_are_no_letters_and_are_removed_later() {
    let (home, letters) = folder().await;
    letters.publish(&letter_of("a", 1)).await.unwrap();
    let (old, young) = (home.path().join("dead/.b.1.tmp"), home.path().join("dead/.c.2.tmp"));
    for path in [&old, &young] {
        fs::write(path, "{").unwrap();
    }
    let hours_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    fs::File::options().write(true).open(&old).unwrap().set_modified(hours_ago).unwrap();
    assert_eq!(ids(&letters, None, 10).await, ["a"]);
    FileDeadLetters::open(home.path().join("dead")).await.unwrap();
    assert!(!old.exists() && young.exists(), "another process may still write the young one");
}

#[tokio::test]
async fn a_check_finds_a_folder_that_cannot_be_written_and_leaves_nothing() {
    let (home, letters) = folder().await;
    letters.check().await.unwrap();
    let left = fs::read_dir(home.path().join("dead")).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".lock"]);
    fs::remove_dir_all(home.path().join("dead")).unwrap();
    let error = letters.check().await.unwrap_err().to_string();
    assert!(error.contains("choose another folder"), "{error}");
    letters.publish(&letter()).await.unwrap_err();
}

#[tokio::test]
async fn letters_are_for_their_owner_alone() {
    use std::os::unix::fs::MetadataExt;

    let (home, letters) = folder().await;
    letters.publish(&letter_of("a", 1)).await.unwrap();
    let mode = |path: &str| fs::metadata(home.path().join(path)).unwrap().mode() & 0o777;
    assert_eq!((mode("dead"), mode("dead/a.json")), (0o700, 0o600));
}
