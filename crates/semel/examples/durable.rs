//! Outcomes in a folder: the second engine stands for the process after a restart.
//!
//! `cargo run -p semel --features embedded --example durable`

use semel::{EmbeddedStore, Engine, Fingerprint, Policy, Principal, Scope, WorkError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    for process in ["first", "second"] {
        let store = EmbeddedStore::open(folder.path().join("semel-data"))?;
        let engine = Engine::builder().store(store).policy(Policy::financial()).build()?;
        let key = Scope::new("payments", Principal::from("user-7"), "charge").key("order-42")?;
        let charge =
            move |_| async move { Ok::<_, WorkError>(format!("receipt of the {process} process")) };
        let answer = engine.run(key, Fingerprint::of(&"5 EUR")?, charge).await?;
        println!("{process} process: {} (replayed: {})", answer.value, answer.replayed);
        assert_eq!(answer.value, "receipt of the first process");
        // The folder is free when engine and store are gone.
        engine.shutdown(std::time::Duration::from_secs(5)).await;
    }
    Ok(())
}
