//! Settings that the builder refuses, and those that it warns about.

use std::time::Duration;

use semel_consumer::{
    Consumer, ConsumerBuilder, Event, EventContext, Retention, memory::MemorySource,
};
use semel_core::{Level, MemoryStore, WorkError};
use serde_json::Value;

fn builder() -> ConsumerBuilder {
    Consumer::builder(MemorySource::new()).store(MemoryStore::new()).unwrap().drop_dead_letters()
}

fn handled(builder: ConsumerBuilder) -> ConsumerBuilder {
    builder.handler(|_: Event<Value>, _: EventContext| async { Ok::<_, WorkError>(()) })
}

#[test]
fn a_setting_that_is_missing_or_wrong_is_named_with_its_fix() {
    let without_sink = Consumer::builder(MemorySource::new()).store(MemoryStore::new()).unwrap();
    let without_store = Consumer::builder(MemorySource::new()).drop_dead_letters();
    let cases = [
        (builder(), "handler()"),
        (handled(without_sink), "drop_dead_letters()"),
        (handled(without_store), "store()"),
        (handled(builder().concurrency(0)), "concurrency"),
        (handled(builder().max_attempts(0)), "max_attempts"),
        (handled(builder().max_bytes(0)), "max_bytes"),
        (handled(builder().lease(Duration::ZERO)), "lease"),
        (handled(builder().retention(Retention::Fixed(Duration::from_secs(60)))), "retention"),
    ];
    for (builder, word) in cases {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn a_short_retention_is_a_warning_if_it_is_allowed() {
    let short =
        builder().retention(Retention::Fixed(Duration::from_secs(60))).allow_short_retention();
    let findings = handled(short).build().unwrap().check().await.unwrap();
    assert!(findings.iter().any(|it| it.level == Level::Warning && it.what.contains("retention")));
}
