//! A folder, or a part of it, that is removed or replaced while a process has it open: nothing more is
//! acknowledged, and the error names what is gone.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, Error, ErrorKind, Fingerprint, KeyHash, Nonce, OnLostOwner, Span, Store,
    Terms,
};
use semel_store_embedded::EmbeddedStore;
use tempfile::TempDir;

/// Many times what the store takes to notice.
const PATIENCE: Duration = Duration::from_secs(30);

fn claim(key: [u8; 32]) -> ClaimRequest {
    ClaimRequest {
        key: KeyHash::from_bytes(key),
        fingerprint: Fingerprint::of_bytes(b"order"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: Span::from_millis(30_000),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: Span::from_millis(86_400_000),
            failure_retention: Span::from_millis(3_600_000),
        },
        labels: None,
    }
}

async fn opened() -> (TempDir, EmbeddedStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path().join("store")).unwrap();
    assert!(matches!(store.claim(&claim([1; 32])).await, Ok(Claim::Granted(_))));
    (folder, store)
}

/// Claims new keys until that is refused.
async fn refusal(store: &EmbeddedStore) -> Error {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.claim(&claim(rand::random())).await {
            Ok(Claim::Granted(_)) => assert!(Instant::now() < deadline, "it goes on granting"),
            Ok(answer) => panic!("{answer:?}"),
            Err(error) => return error,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A health check reads a record that does not exist. Waits until it fails and names `what`: while a folder is being
/// removed, single files of it are missing first.
async fn assert_ill(store: &EmbeddedStore, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = store.get(&KeyHash::from_bytes([0; 32])).await;
        match &seen {
            Err(error) if error.to_string().contains(what) => return assert_names(error, what),
            _ => assert!(Instant::now() < deadline, "{what} is not named: {seen:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn assert_names(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

fn numbers(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

#[tokio::test]
async fn a_claim_after_the_folder_was_removed_is_refused_at_once() {
    let (folder, store) = opened().await;
    // The store may be making its next segment, and the folder is not empty then.
    while folder.path().join("store").exists() {
        let _ = fs::remove_dir_all(folder.path().join("store"));
    }
    let error = store.claim(&claim([2; 32])).await.unwrap_err();
    assert_names(&error, "removed");
    assert_ill(&store, "was removed or replaced").await;
    assert_names(&refusal(&store).await, "was removed or replaced");
}

#[tokio::test]
async fn a_folder_that_was_moved_away_is_noticed_and_used_again_when_it_is_back() {
    let (folder, store) = opened().await;
    let (path, away) = (folder.path().join("store"), folder.path().join("away"));
    fs::rename(&path, &away).unwrap();
    assert_names(&refusal(&store).await, "was removed or replaced");
    fs::rename(&away, &path).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while store.claim(&claim(rand::random())).await.is_err() {
        assert!(Instant::now() < deadline, "it goes on refusing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_folder_that_replaced_the_opened_one_is_left_unchanged() {
    let (folder, store) = opened().await;
    let path = folder.path().join("store");
    fs::rename(&path, folder.path().join("away")).unwrap();
    let other = EmbeddedStore::open(&path).unwrap();
    assert!(matches!(other.claim(&claim([3; 32])).await, Ok(Claim::Granted(_))));
    // The other store makes its next segment in the background.
    let deadline = Instant::now() + PATIENCE;
    while numbers(&path).len() < 2 {
        assert!(Instant::now() < deadline, "it makes no segment");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = numbers(&path);
    assert_names(&refusal(&store).await, "was removed or replaced");
    drop(store);
    assert_eq!(numbers(&path), before);
    drop(other);
    let other = EmbeddedStore::open(&path).unwrap();
    assert!(other.get(&KeyHash::from_bytes([3; 32])).await.unwrap().is_some());
}

#[tokio::test]
async fn segments_and_identity_that_are_removed_are_noticed_by_name() {
    for name in ["00000001.log", "identity", "lock"] {
        let (folder, store) = opened().await;
        fs::remove_file(folder.path().join("store").join(name)).unwrap();
        assert_ill(&store, name).await;
    }
}

/// Another process asks, such as `semel doctor`. It cannot open the folder, but it can see what is missing.
#[tokio::test]
async fn a_missing_segment_of_a_folder_in_use_is_named() {
    let (folder, store) = opened().await;
    let path = folder.path().join("store");
    let said = || EmbeddedStore::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(said().contains("in use by another process"), "{}", said());
    fs::remove_file(path.join("00000001.log")).unwrap();
    assert!(said().contains("00000001.log is missing"), "{}", said());
    drop(store);
    assert!(said().contains("00000001.log is missing"), "{}", said());
}
