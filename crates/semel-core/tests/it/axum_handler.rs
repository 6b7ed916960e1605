//! The future of a run is `Send`: it can be awaited in an axum handler.

use axum::{Router, extract::State, http::StatusCode, routing::post};
use semel_core::{Engine, Fingerprint, MemoryStore, Principal, Scope, WorkError};

async fn charge(State(engine): State<Engine>, body: String) -> Result<String, StatusCode> {
    let scope = Scope::new("payments", Principal::from("user-7"), "POST /charges");
    let key = scope.key("order-42").map_err(|_| StatusCode::BAD_REQUEST)?;
    let fingerprint = Fingerprint::of_bytes(body.as_bytes());
    let work = |_| async move { Ok::<_, WorkError>(body) };
    let answer = engine.run(key, fingerprint, work).await.map_err(|_| StatusCode::CONFLICT)?;
    Ok(answer.value)
}

async fn charge_many(State(engine): State<Engine>) -> String {
    let work = |id: u32, _| async move { Ok::<_, WorkError>(id) };
    engine.run_many(vec![], work).await.len().to_string()
}

#[test]
fn a_run_can_be_awaited_in_an_axum_handler() {
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let routes = Router::new().route("/charges", post(charge)).route("/many", post(charge_many));
    let _: Router = routes.with_state(engine);
}
