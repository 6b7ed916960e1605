//! A charge that is retried, and takes effect once.

use semel::{Context, Engine, Fingerprint, MemoryStore, Principal, Scope, WorkError};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Order {
    id: String,
    cents: u64,
}

#[derive(Serialize, Deserialize, Debug)]
struct Receipt {
    number: String,
    cents: u64,
}

async fn charge(order: &Order, context: Context) -> Result<Receipt, WorkError> {
    if order.cents == 0 {
        return Err(WorkError::failure("nothing_to_pay", "an order of nothing is not charged"));
    }
    println!("  charging {} with downstream key {}", order.id, context.downstream_key());
    Ok(Receipt { number: format!("receipt for {}", order.id), cents: order.cents })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().store(MemoryStore::new()).build()?;
    let scope = Scope::new("payments", Principal::from("user-7"), "charge");
    for call in 1..=3 {
        let order = Order { id: "order-42".into(), cents: 500 };
        let (key, fingerprint) = (scope.key(&order.id)?, Fingerprint::of(&order)?);
        let work = move |context| async move { charge(&order, context).await };
        let answer = engine.run(key, fingerprint, work).await?;
        println!("call {call}: {:?}, replayed: {}", answer.value, answer.replayed);
        assert_eq!(answer.replayed, call > 1);
    }
    let other = Order { id: "order-42".into(), cents: 999 };
    let (key, fingerprint) = (scope.key(&other.id)?, Fingerprint::of(&other)?);
    let refused =
        engine.run(key, fingerprint, move |context| async move { charge(&other, context).await });
    println!("same key, other amount: {}", refused.await.expect_err("the key is taken"));
    Ok(())
}
