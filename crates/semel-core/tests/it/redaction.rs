//! No key, body or credential appears in a log, span, error or debug output.

use semel_core::{
    ClaimRequest, Engine, Fingerprint, HashSecret, KeySource, KeyStrategy, MemoryStore, Nonce,
    Outcome, Principal, Redacted, Scope, Verdict, WorkError,
};
use tracing_subscriber::fmt::format::FmtSpan;

use super::{LogBuffer, in_own_process};

const CANARIES: [&str; 5] =
    ["canary-key", "canary-body", "canary-credential", "canary-user", "canary-panic"];

fn assert_no_canary(text: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "{canary} in: {text}");
    }
}

#[test]
fn no_canary_reaches_a_log_or_span() {
    in_own_process("redaction::no_canary_reaches_a_log_or_span", async {
        let log = LogBuffer::default();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_writer(log.clone())
            .init();
        let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
        let scopes = [
            Scope::new("test", Principal::credential("canary-credential"), "work"),
            Scope::new("test", Principal::from("canary-user"), "work"),
        ];
        for scope in &scopes {
            let key = || scope.key("canary-key").unwrap();
            let fingerprint = |content: &str| Fingerprint::of_bytes(content.as_bytes());
            let ok = |_| async { Verdict::Final(Outcome::success("canary-body")) };
            let first = engine.run_raw(key(), fingerprint("canary-body"), ok).await.unwrap();
            engine.run_raw(key(), fingerprint("canary-body"), ok).await.unwrap();
            let mismatch = engine.run_raw(key(), fingerprint("other"), ok).await.unwrap_err();
            assert_no_canary(&format!("{first:?} {mismatch:?} {mismatch}"));
            let hash = engine.key_hash(&key());
            let sighting = engine.store().get(&hash).await.unwrap();
            assert_no_canary(&format!("{sighting:?} {:?} {hash} {hash:?}", key()));
            engine.erase(&hash, "test").await.unwrap();
        }
        let panicking = |_| async { panic!("canary-panic") };
        let key = scopes[0].key("other").unwrap();
        // The default hook prints the panic's message, which the engine cannot prevent.
        std::panic::set_hook(Box::new(|_| {}));
        let error =
            engine.run::<u32, WorkError, _, _>(key, Fingerprint::of_bytes(b""), panicking).await;
        assert_no_canary(&format!("{error:?}"));
        let text = log.text();
        assert!(
            text.contains("returned from cache") && text.contains("idempotency.process"),
            "{text}"
        );
        assert_no_canary(&text);
    });
}

#[test]
fn every_type_that_carries_a_secret_hides_it_in_debug() {
    let scope = Scope::new("test", Principal::credential("canary-credential"), "work");
    let key = scope.key("canary-key").unwrap();
    let request = ClaimRequest {
        key: key.hash(None),
        fingerprint: Fingerprint::of_bytes(b"canary-body"),
        nonce: Nonce::random(),
        terms: semel_core::Terms {
            lease: std::time::Duration::from_secs(1).into(),
            on_lost_owner: semel_core::OnLostOwner::Rerun,
            max_attempts: None,
            retention: std::time::Duration::from_secs(1).into(),
            failure_retention: std::time::Duration::from_secs(1).into(),
        },
        labels: Some(key.labels(None)),
    };
    let source =
        KeySource { message_id: Some("canary-key"), body: b"canary-body", ..KeySource::default() };
    let strategy_error = KeyStrategy::json_pointer("/id").render(&source).unwrap_err();
    let error = WorkError::retry("canary-body");
    let secret = HashSecret::from_bytes(b"canary-credential").unwrap();
    assert_no_canary(&format!(
        "{scope:?} {key:?} {request:?} {source:?} {strategy_error:?} {strategy_error} {error:?} {secret:?}"
    ));
    assert_no_canary(&format!("{:?} {0}", Redacted::new("canary-key")));
    assert_no_canary(&format!("{:?}", Outcome::success("canary-body")));
    // Only a keyed hash of a credential is kept.
    assert!(!key.labels(None).principal().contains("canary"));
    let keyed = key.labels(Some(&secret));
    assert_ne!(keyed.principal(), key.labels(None).principal());
}
