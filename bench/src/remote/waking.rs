//! How soon a waiter in another process gets the outcome after the work is done.

use std::time::{Duration, Instant};

use anyhow::Result;
use semel_bench::report::{latency, line, nanoseconds};
use semel_core::{Answer, Engine, Fingerprint, Principal, Scope, Store, WorkError};
use tokio::time::sleep;

/// The number of operations, one after the other, with one waiter each.
const ROUNDS: u64 = 300;

/// The owner uses one store, the waiter the other.
pub(crate) async fn run(one: impl Store, other: impl Store) -> Result<()> {
    let engines = [Engine::builder().store(one).build()?, Engine::builder().store(other).build()?];
    let scope = Scope::new("bench", Principal::from("user-7"), "waking");
    let salt: u64 = rand::random();
    let mut histogram = nanoseconds();
    for round in 0..ROUNDS {
        let key = scope.key(format!("{salt}-{round}"))?;
        let takes = Duration::from_millis(20 + round * 7 % 130);
        let ask = |engine: &Engine| {
            let (engine, key) = (engine.clone(), key.clone());
            async move {
                let work = async move |_| {
                    sleep(takes).await;
                    Ok::<_, WorkError>(1)
                };
                let answer: Answer<u8> = engine.run(key, Fingerprint::of_bytes(b"x"), work).await?;
                anyhow::Ok((answer.replayed, Instant::now()))
            }
        };
        let (first, second) = tokio::join!(ask(&engines[0]), ask(&engines[1]));
        let ((first_replayed, first), (_, second)) = (first?, second?);
        let (owner, waiter) = if first_replayed { (second, first) } else { (first, second) };
        let nanos = waiter.saturating_duration_since(owner).as_nanos();
        histogram.saturating_record(u64::try_from(nanos)?);
    }
    let p99 = Duration::from_nanos(histogram.value_at_quantile(0.99));
    let goal = Some(p99 < Duration::from_millis(20));
    line("waiter of another process, after", &latency(&histogram), "p99 < 20 ms", goal);
    Ok(())
}
