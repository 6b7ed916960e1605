//! Hold mode: a lost connection leaves the key Unknown, and an operator resolves it.

use std::sync::Arc;

use semel::{
    Decision, Engine, Fingerprint, MemoryStore, OnLostOwner, Outcome, Policy, Principal,
    ResolveRequest, RunError, Scope, WorkError,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::financial().on_lost_owner(OnLostOwner::Hold);
    let engine = Engine::builder().store(MemoryStore::new()).policy(policy).build()?;
    let key = Scope::new("payouts", Principal::from("tenant-1"), "wire").key("wire-9")?;
    let fingerprint = Fingerprint::of(&("IBAN", 10_000))?;

    let cut_off = |_| async { Err::<String, _>(WorkError::indeterminate("connection reset")) };
    let first = engine.run(key.clone(), fingerprint, cut_off).await;
    println!("first call: {}", first.expect_err("the effect is not known"));

    let wire = |_| async { Ok::<_, WorkError>("sent again".to_owned()) };
    let retry = engine.run(key.clone(), fingerprint, wire).await;
    assert!(matches!(retry, Err(RunError::Unknown)), "under Hold a retry never runs");

    // The bank's statement shows the wire. The operator records what happened.
    let hash = engine.key_hash(&key);
    let record = engine.store().get(&hash).await?.ok_or("the record is kept")?.record;
    let decision = Decision::Complete(Arc::new(Outcome::json(&"sent, see statement")?));
    let (seen_nonce, seen_token) = (record.nonce, record.token);
    let request = ResolveRequest { key: hash, seen_nonce, seen_token, decision };
    engine.resolve(&request, "statement of 12 May").await?;

    let answer = engine.run(key, fingerprint, wire).await?;
    println!("after the operator: {:?}, replayed: {}", answer.value, answer.replayed);
    assert!(answer.replayed);
    Ok(())
}
