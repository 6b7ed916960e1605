//! The layer as the target of the HTTP conformance suite, over any store. Tests of stores include this file.

use std::{any::Any, time::Duration};

use async_trait::async_trait;
use http::{StatusCode, Uri, request::Parts};
use semel_conformance::http::{
    Ability, Breakable, HttpTarget, Switch, TestServer, TestUpstream,
    routes::{
        BRIEF, BRIEF_RETENTION, CANONICAL, CAPPED, FINAL, HOLD, IMPATIENT, LARGE, OBSERVE, OFF,
        POINTER, REQUIRED, SMALL, UNPROCESSABLE,
    },
    serve,
};
use semel_core::{Engine, OnLostOwner, Principal, Scope, Store};
use semel_http::{
    Authorization, IdempotencyLayer, KeyFrom, Mode, RoutePolicy, RouteTemplate, ServerErrors,
};
use tower_layer::Layer;

const NAMESPACE: &str = "conformance";

pub(crate) struct Layered {
    served: TestServer,
    upstream: TestUpstream,
    engine: Engine,
    broken: Switch,
    /// A resource that must live as long as the store.
    _held: Box<dyn Any + Send + Sync>,
}

impl Layered {
    pub(crate) async fn over(store: impl Store, held: impl Any + Send + Sync) -> Self {
        let (upstream, broken) = (TestUpstream::new(), Switch::default());
        let store = Breakable::new(store, broken.clone());
        let engine = Engine::builder().store(store).build().unwrap();
        let served = serve(layer(engine.clone()).layer(upstream.clone())).await;
        Self { served, upstream, engine, broken, _held: Box::new(held) }
    }
}

fn layer(engine: Engine) -> IdempotencyLayer {
    let builder = IdempotencyLayer::builder(engine)
        .namespace(NAMESPACE)
        .principal(Authorization)
        .route_template(RouteTemplate::closure(template))
        .policy(policy());
    let routes = routes().into_iter();
    routes
        .fold(builder, |builder, (path, policy)| builder.route(format!("POST {path}"), policy))
        .build()
        .unwrap()
}

fn policy() -> RoutePolicy {
    RoutePolicy::api().with(|policy| policy.backoff(Duration::from_millis(50)))
}

fn routes() -> [(&'static str, RoutePolicy); 14] {
    let brief = policy().retention(BRIEF_RETENTION).failure_retention(BRIEF_RETENTION);
    [
        (IMPATIENT, policy().wait(Duration::ZERO)),
        (REQUIRED, policy().require_key()),
        (HOLD, policy().on_lost_owner(OnLostOwner::Hold)),
        (CAPPED, policy().max_attempts(2)),
        (BRIEF, brief),
        (OBSERVE, policy().mode(Mode::Observe)),
        (OFF, policy().mode(Mode::Off)),
        (UNPROCESSABLE, policy().mismatch_status(StatusCode::UNPROCESSABLE_ENTITY)),
        (SMALL, policy().max_request_bytes(1 << 10).max_response_bytes(1 << 10)),
        (LARGE, policy().max_request_bytes(4 << 20)),
        (CANONICAL, policy().leave_out(["/sent_at"])),
        (POINTER, policy().key_from(KeyFrom::json_pointer("/request_id"))),
        (FINAL, policy().server_errors(ServerErrors::Final)),
        ("/test/items/{id}", policy()),
    ]
}

fn template(parts: &Parts) -> Option<String> {
    let path = parts.uri.path();
    Some(if path.starts_with("/test/items/") { "/test/items/{id}" } else { path }.to_owned())
}

#[async_trait]
impl HttpTarget for Layered {
    fn base_url(&self) -> Uri {
        self.served.base_url()
    }
    fn upstream(&self) -> &TestUpstream {
        &self.upstream
    }
    fn unsupported(&self) -> &[Ability] {
        &[]
    }
    async fn erase(&self, operation: &str, authorization: &str, id: &str) {
        let scope = Scope::new(NAMESPACE, Principal::credential(authorization), operation);
        let key = self.engine.key_hash(&scope.key(id).unwrap());
        self.engine.erase(&key, "the suite erases it").await.unwrap();
    }
    async fn break_store(&self) {
        self.broken.set(true);
    }
    async fn repair_store(&self) {
        self.broken.set(false);
    }
}
