//! No part of an outcome or of labels is readable in the data of the store.

use std::{fs, path::Path, sync::Arc};

use semel_core::{Claim, Decision, Head, Header, Outcome, ResolveRequest, State, Store};
use semel_sealed::Sealed;
use semel_servers::{REDIS, Running};
use semel_store_embedded::EmbeddedStore;
use semel_store_redis::RedisStore;

use crate::harness::{any_key, done, granted, request, ring, sealed};
use crate::postgres::Schema;

/// A word in every part of the outcomes and labels.
const CANARY: &str = "canary";

fn outcomes() -> [Arc<Outcome>; 2] {
    let header = Header { name: "x-canary".into(), value: "canary".into() };
    let head = Head {
        status: Some(201),
        content_type: Some("text/canary".into()),
        headers: vec![header.clone()],
        trailers: vec![header],
    };
    [
        Arc::new(Outcome::success("canary").with_head(head.clone())),
        Arc::new(Outcome::failure("canary", "a canary").with_head(head)),
    ]
}

/// Writes everything that a store ever gets: claims, outcomes, and an operator's decision.
async fn fill(store: &dyn Store) {
    granted(store, &request(any_key())).await;
    for outcome in outcomes() {
        done(store, any_key(), outcome.clone()).await;
        let key = any_key();
        let owner = granted(store, &request(key)).await.owner;
        let backoff = std::time::Duration::ZERO;
        store.abandon(&semel_core::AbandonRequest { owner, backoff }).await.unwrap();
        let decision = Decision::Complete(outcome.clone());
        let (seen_nonce, seen_token) = (Some(owner.nonce), owner.token);
        let resolve = ResolveRequest { key, seen_nonce, seen_token, decision };
        assert_eq!(store.resolve(&resolve).await.unwrap(), semel_core::Resolution::Done);
        let Claim::Replay(replay) = store.claim(&request(key)).await.unwrap() else {
            panic!("not replayed")
        };
        assert_eq!(replay.outcome, outcome);
    }
}

/// Whether the word is there, as text or as hex digits, which databases print for bytes.
fn shows(bytes: &[u8]) -> bool {
    let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|it| it.eq_ignore_ascii_case(word));
    has(CANARY.as_bytes()) || has(hex.as_bytes())
}

fn in_folder(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        bytes.extend(if path.is_dir() { in_folder(&path) } else { fs::read(&path).unwrap() });
    }
    bytes
}

/// The search finds unsealed data, and no sealed data.
#[tokio::test]
async fn nothing_is_readable_in_a_folder() {
    for is_sealed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path().join("store")).unwrap();
        match is_sealed {
            true => fill(&sealed(store)).await,
            false => fill(&store).await,
        }
        assert_eq!(shows(&in_folder(folder.path())), !is_sealed);
    }
}

#[tokio::test]
async fn nothing_is_readable_in_postgres() {
    for is_sealed in [false, true] {
        let schema = Schema::new();
        let store = schema.store().await;
        match is_sealed {
            true => fill(&sealed(store)).await,
            false => fill(&store).await,
        }
        let query = schema.named("SELECT string_agg(it::text, ' ') FROM {t} AS it");
        let rows = schema.client().await.query_one(&query, &[]).await.unwrap();
        let dump: String = rows.get(0);
        assert!(dump.len() > 1000);
        assert_eq!(shows(dump.as_bytes()), !is_sealed);
    }
}

#[tokio::test]
async fn nothing_is_readable_in_redis() {
    for is_sealed in [false, true] {
        let server = Running::start(&REDIS.durable()).unwrap();
        let store = RedisStore::connect(server.url()).await.unwrap();
        match is_sealed {
            true => fill(&sealed(store)).await,
            false => fill(&store).await,
        }
        // The append-only file has every command that the server got.
        assert_eq!(shows(&in_folder(server.data())), !is_sealed);
    }
}

/// The store and operators need these fields.
#[tokio::test]
async fn state_and_success_stay_readable() {
    let bare = Arc::new(semel_core::MemoryStore::new());
    let store = Sealed::new(bare.clone(), ring(&["a"]));
    for outcome in outcomes() {
        let key = any_key();
        done(&store, key, outcome.clone()).await;
        let record = bare.get(&key).await.unwrap().unwrap().record;
        assert_eq!(record.state, State::Completed);
        assert_eq!(record.outcome.unwrap().is_success(), outcome.is_success());
        assert!(record.completed_at.is_some() && record.expires_at.is_some());
    }
}
