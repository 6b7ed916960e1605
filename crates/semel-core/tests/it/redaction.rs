//! Keys, bodies and credentials reach no log, span, error or debug output in the clear.

use std::{
    io,
    sync::{Arc, Mutex},
};

use semel_core::{
    ClaimRequest, Engine, Fingerprint, HashSecret, KeySource, KeyStrategy, MemoryStore, Nonce,
    Outcome, Principal, Redacted, Scope, Verdict, WorkError,
};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

use super::in_own_process;

const CANARIES: [&str; 5] =
    ["canary-key", "canary-body", "canary-credential", "canary-user", "canary-panic"];

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn clean(text: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "{canary} in: {text}");
    }
}

#[test]
fn no_canary_reaches_a_log_or_span() {
    in_own_process("redaction::no_canary_reaches_a_log_or_span", async {
        let log = Log::default();
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
            let asked = |what: &str| Fingerprint::of_bytes(what.as_bytes());
            let ok = |_| async { Verdict::Final(Outcome::success("canary-body")) };
            let first = engine.run_raw(key(), asked("canary-body"), ok).await.unwrap();
            engine.run_raw(key(), asked("canary-body"), ok).await.unwrap();
            let mismatch = engine.run_raw(key(), asked("other"), ok).await.unwrap_err();
            clean(&format!("{first:?} {mismatch:?} {mismatch}"));
            let hash = engine.key_hash(&key());
            let seen = engine.store().get(&hash).await.unwrap();
            clean(&format!("{seen:?} {:?} {hash} {hash:?}", key()));
            engine.erase(&hash, "test").await.unwrap();
        }
        let panicking = |_| async { panic!("canary-panic") };
        let key = scopes[0].key("other").unwrap();
        std::panic::set_hook(Box::new(|_| {})); // The hook prints panics; that output is not ours.
        let error =
            engine.run::<u32, WorkError, _, _>(key, Fingerprint::of_bytes(b""), panicking).await;
        clean(&format!("{error:?}"));
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(
            text.contains("returned from cache") && text.contains("idempotency.process"),
            "{text}"
        );
        clean(&text);
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
    let unfit = KeyStrategy::json_pointer("/id").render(&source).unwrap_err();
    let error = WorkError::retry("canary-body");
    let secret = HashSecret::from_bytes(b"canary-credential").unwrap();
    clean(&format!(
        "{scope:?} {key:?} {request:?} {source:?} {unfit:?} {unfit} {error:?} {secret:?}"
    ));
    clean(&format!("{:?} {0}", Redacted::new("canary-key")));
    clean(&format!("{:?}", Outcome::success("canary-body")));
    // A credential is kept as a keyed hash only.
    assert!(!key.labels(None).principal().contains("canary"));
    let keyed = key.labels(Some(&secret));
    assert_ne!(keyed.principal(), key.labels(None).principal());
}
