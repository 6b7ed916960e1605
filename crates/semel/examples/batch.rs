//! A redelivered batch of events: duplicates in the batch and repeats of it run once.

use semel::{
    Context, Engine, Fingerprint, KeySource, MemoryStore, Policy, Principal, Scope, WorkError,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().store(MemoryStore::new()).policy(Policy::events()).build()?;
    let scope = Scope::new("mail", Principal::Anonymous, "welcome-mail");
    let send = |id: &'static str, _: Context| async move {
        println!("  sending mail for {id}");
        Ok::<_, WorkError>(format!("sent {id}"))
    };
    for delivery in [["m-1", "m-2", "m-1"], ["m-2", "m-3", "m-3"]] {
        let mut items = Vec::new();
        for id in delivery {
            let message = KeySource { message_id: Some(id), ..KeySource::default() };
            items.push((engine.key(&scope, &message)?, Fingerprint::of_bytes(b""), id));
        }
        println!("delivery of {delivery:?}");
        for answer in engine.run_many(items, send).await {
            let answer = answer?;
            println!("  {}, replayed: {}", answer.value, answer.replayed);
        }
    }
    Ok(())
}
