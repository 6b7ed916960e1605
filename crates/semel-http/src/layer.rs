//! The layer and its builder.

use std::{collections::HashMap, fmt, sync::Arc};

use http::request::Parts;
use semel_core::{Engine, Error, Principal, Result, Scope};
use tower_layer::Layer;

use crate::{
    ExtractPrincipal, IdempotencyService, Modes, RoutePolicy, RouteTemplate,
    authorize_replay::AuthorizeReplay,
    budget::{BufferBudget, SMALL_BODY},
    coarse_timeout::CoarseTimeout,
    mode,
    observe::Observer,
    problem,
    state::{LayerState, PreparedRoute},
    unprotected::IgnoredKeys,
};

/// Makes retried writes take effect once. Put it behind authentication.
#[derive(Clone)]
pub struct IdempotencyLayer(Arc<LayerState>);

impl IdempotencyLayer {
    /// Sets up a layer over `engine`. Only the principal has no default.
    pub fn builder(engine: Engine) -> IdempotencyLayerBuilder {
        IdempotencyLayerBuilder {
            engine,
            principal: NoPrincipal,
            namespace: IdempotencyLayerBuilder::NAMESPACE.to_owned(),
            template: RouteTemplate::default(),
            policy: RoutePolicy::api(),
            routes: Vec::new(),
            modes: Modes::new(),
            authorize: None,
            buffer_bytes: IdempotencyLayerBuilder::BUFFER_BYTES,
            problem_base: problem::BASE.to_owned(),
        }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService::new(inner, self.0.clone())
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("namespace", &self.0.namespace)
            .field("routes", &self.0.routes.keys())
            .finish_non_exhaustive()
    }
}

/// The state of a builder without a principal. It has no `build`.
#[derive(Clone, Copy, Debug)]
pub struct NoPrincipal;

/// The state of a builder with a principal.
#[derive(Clone)]
pub struct WithPrincipal(Arc<dyn ExtractPrincipal>);

impl fmt::Debug for WithPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithPrincipal")
    }
}

/// Builds an [`IdempotencyLayer`]. There is no `build` before
/// [`principal`](IdempotencyLayerBuilder::principal):
///
/// ```compile_fail
/// # fn layer(engine: semel_core::Engine) {
/// semel_http::IdempotencyLayer::builder(engine).build();
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct IdempotencyLayerBuilder<P = NoPrincipal> {
    engine: Engine,
    principal: P,
    namespace: String,
    template: RouteTemplate,
    policy: RoutePolicy,
    routes: Vec<(String, RoutePolicy)>,
    modes: Modes,
    authorize: Option<AuthorizeReplay>,
    buffer_bytes: usize,
    problem_base: String,
}

impl IdempotencyLayerBuilder {
    /// The default namespace.
    pub const NAMESPACE: &'static str = "default";
    /// The default bound on the memory of all bodies that are held at the same time.
    pub const BUFFER_BYTES: usize = 256 * 1024 * 1024;
}

impl<P> IdempotencyLayerBuilder<P> {
    /// Where the principal comes from: [`Anonymous`](crate::Anonymous), [`Authorization`](crate::Authorization),
    /// [`TrustedHeader`](crate::TrustedHeader), or a closure over the request's head. The principal is part of
    /// every key, so that no caller gets the outcome of another caller.
    pub fn principal(
        self,
        principal: impl ExtractPrincipal,
    ) -> IdempotencyLayerBuilder<WithPrincipal> {
        IdempotencyLayerBuilder {
            engine: self.engine,
            principal: WithPrincipal(Arc::new(principal)),
            namespace: self.namespace,
            template: self.template,
            policy: self.policy,
            routes: self.routes,
            modes: self.modes,
            authorize: self.authorize,
            buffer_bytes: self.buffer_bytes,
            problem_base: self.problem_base,
        }
    }

    /// The name of this service among those that share the store.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// Where the route template comes from.
    pub fn route_template(self, template: RouteTemplate) -> Self {
        Self { template, ..self }
    }

    /// The policy of POST, PUT, PATCH and DELETE requests on routes without a policy of their own.
    pub fn policy(self, policy: RoutePolicy) -> Self {
        Self { policy, ..self }
    }

    /// The policy of one route, such as `POST /refunds/{id}`: method, a space, the template as the
    /// router has it. A route with a method other than POST, PUT, PATCH and DELETE is protected too.
    pub fn route(mut self, route: impl Into<String>, policy: RoutePolicy) -> Self {
        self.routes.push((route.into(), policy));
        self
    }

    /// A handle that changes modes while the service runs.
    pub fn modes(self, modes: Modes) -> Self {
        Self { modes, ..self }
    }

    /// Sets a hook that gets the head of a request before a recorded answer is sent. If it returns `false`, the
    /// answer is 403. For permissions that may be taken away while outcomes are kept.
    pub fn authorize_replay<F, Fut>(self, hook: F) -> Self
    where
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        Self { authorize: Some(AuthorizeReplay::new(hook)), ..self }
    }

    /// Bounds the memory of all bodies that are held at the same time. A request over the bound is answered with
    /// 503. An answer over the bound passes through and is recorded without its body.
    pub fn buffer_bytes(self, buffer_bytes: usize) -> Self {
        Self { buffer_bytes, ..self }
    }

    /// The prefix of the name in the `type` of problems, such as the address of your own pages.
    pub fn problem_base(self, problem_base: impl Into<String>) -> Self {
        Self { problem_base: problem_base.into(), ..self }
    }
}

impl IdempotencyLayerBuilder<WithPrincipal> {
    /// Makes the layer, or names the setting that is out of bounds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) with the setting and what it may be.
    pub fn build(self) -> Result<IdempotencyLayer> {
        check_namespace(&self.namespace)?;
        let mut routes = HashMap::new();
        for (route, policy) in self.routes {
            let operation = mode::normal_route(&route)?;
            self.template.check(&operation)?;
            let of_route = |error| Error::invalid(format!("route {route:?}: {error}"));
            let prepared = prepare(&self.engine, policy).map_err(of_route)?;
            if routes.insert(operation, prepared).is_some() {
                return Err(Error::invalid(format!("route {route:?} is given twice")));
            }
        }
        let default = prepare(&self.engine, self.policy)?;
        let bodies = |route: &Arc<PreparedRoute>| {
            route.policy.max_request_bytes.max(route.policy.max_response_bytes) + SMALL_BODY
        };
        let largest = routes.values().chain([&default]).map(bodies).max();
        let (bytes, least) = (self.buffer_bytes, largest.unwrap_or_default());
        if bytes < least {
            return Err(Error::invalid(format!(
                "layer: buffer_bytes is {bytes}; the largest body needs at least {least}"
            )));
        }
        Ok(IdempotencyLayer(Arc::new(LayerState {
            observer: Observer::new(&self.namespace, self.buffer_bytes),
            namespace: self.namespace,
            principal: self.principal.0,
            template: self.template,
            routes,
            default,
            modes: self.modes,
            authorize: self.authorize,
            budget: BufferBudget::new(self.buffer_bytes),
            timeout: CoarseTimeout::default(),
            problem_base: self.problem_base.into(),
            unprotected: IgnoredKeys::default(),
        })))
    }
}

fn check_namespace(namespace: &str) -> Result<()> {
    let (suffix, length) = (Observer::SUFFIX, namespace.len());
    let most = Scope::MAX_BYTES - suffix.len();
    if length > most {
        return Err(Error::invalid(format!("namespace: has {length} bytes, {most} are allowed")));
    }
    if namespace.ends_with(suffix) {
        return Err(Error::invalid(format!(
            "namespace: ends in {suffix:?}, which is reserved for observe mode; choose another"
        )));
    }
    Scope::new(namespace, Principal::Anonymous, "any").key("any").map(drop)
}

fn prepare(engine: &Engine, policy: RoutePolicy) -> Result<Arc<PreparedRoute>> {
    let policy = policy.checked()?;
    let engine = engine.with_policy(policy.policy)?;
    Ok(Arc::new(PreparedRoute { policy, engine }))
}
