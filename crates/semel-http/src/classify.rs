//! What becomes of a request, decided from its head alone.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, Version,
    header::{ACCESS_CONTROL_EXPOSE_HEADERS, CONNECTION, ORIGIN},
    request::Parts,
};
use semel_core::{Engine, Key, Scope};

use crate::{
    ExtractPrincipal, Idempotency, Mode, Modes, RoutePolicy, RouteTemplate,
    authorize_replay::AuthorizeReplay,
    body::ResponseBody,
    budget::BufferBudget,
    coarse_timeout::CoarseTimeout,
    header::{EXPOSED, IDEMPOTENCY_KEY},
    key::{self, SentKey},
    normal_path,
    observe::Observer,
    problem::{self, Problem, ProblemBase},
    template::Operation,
    unprotected::UnprotectedKeys,
};

/// Everything that the clones of a layer share.
pub(crate) struct LayerState {
    pub(crate) namespace: String,
    pub(crate) principal: Arc<dyn ExtractPrincipal>,
    pub(crate) template: RouteTemplate,
    pub(crate) routes: HashMap<String, Arc<PreparedRoute>>,
    pub(crate) default: Arc<PreparedRoute>,
    pub(crate) modes: Modes,
    pub(crate) authorize: Option<AuthorizeReplay>,
    pub(crate) budget: BufferBudget,
    pub(crate) timeout: CoarseTimeout,
    pub(crate) problem_base: Arc<str>,
    pub(crate) observer: Observer,
    pub(crate) unprotected: UnprotectedKeys,
}

/// A route's policy, and the engine that runs under it.
pub(crate) struct PreparedRoute {
    pub(crate) policy: RoutePolicy,
    pub(crate) engine: Engine,
}

/// What becomes of a request.
pub(crate) enum RequestAction {
    /// Untouched.
    Pass,
    /// Untouched, but a handler that asks for its context gets one.
    PassWithContext(Idempotency),
    /// Untouched, and counted.
    Observe(KeyedRequest),
    /// Answered here.
    Refuse(Problem, EchoedHeaders),
    /// Claimed first.
    Protect(KeyedRequest),
}

/// A request on its way to a claim.
pub(crate) struct KeyedRequest {
    pub(crate) route: Arc<PreparedRoute>,
    pub(crate) scope: Scope,
    /// `None`: it is to be found in the body.
    pub(crate) key: Option<Key>,
    /// The scope that earlier builds gave this request, where it is another one.
    pub(crate) earlier_scope: Option<Scope>,
    pub(crate) echo: EchoedHeaders,
}

/// What every answer to a request has on it.
#[derive(Clone, Default)]
pub(crate) struct EchoedHeaders {
    key: Option<HeaderValue>,
    cors: bool,
}

impl LayerState {
    pub(crate) fn classify(&self, parts: &Parts) -> RequestAction {
        let guarded = is_unsafe(&parts.method);
        let ignores_key = !guarded && parts.headers.contains_key(IDEMPOTENCY_KEY);
        if !guarded && !ignores_key && self.routes.is_empty() {
            return RequestAction::Pass;
        }
        let operation = self.template.operation(parts);
        let spelt = normal_path(&operation.name);
        let route = match self.routes.get(&*spelt) {
            Some(route) => route,
            None if guarded => &self.default,
            None => {
                if ignores_key {
                    self.unprotected.passed(parts, &operation);
                }
                return RequestAction::Pass;
            }
        };
        match self.modes.of(&spelt, route.policy.mode) {
            Mode::Off => self.off(parts, route, operation),
            Mode::Enforce => self.guard(parts, route, operation),
            Mode::Observe => self.observe(parts, route, operation),
        }
    }

    fn guard(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> RequestAction {
        let cors = parts.headers.contains_key(ORIGIN);
        let refuse = |problem, key| RequestAction::Refuse(problem, EchoedHeaders { key, cors });
        match self.keyed(parts, route, operation) {
            // A layer outside has this very key already: to claim it again would be to wait for oneself.
            Ok(Some(keyed)) if keyed.is_ours_already(parts) => RequestAction::Pass,
            Ok(Some(keyed)) => RequestAction::Protect(keyed),
            Ok(None) if route.policy.require_key => refuse(Problem::key_missing(), None),
            Ok(None) => RequestAction::Pass,
            Err(problem) => refuse(problem, None),
        }
    }

    /// Switched off, a route must still work: its handler may need the context.
    fn off(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> RequestAction {
        match self.keyed(parts, route, operation) {
            Ok(Some(keyed)) => RequestAction::PassWithContext(keyed.unprotected(Mode::Off)),
            Ok(None) | Err(_) => RequestAction::Pass,
        }
    }

    fn observe(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> RequestAction {
        match self.keyed(parts, route, operation) {
            Ok(Some(keyed)) => return RequestAction::Observe(keyed),
            Ok(None) if route.policy.require_key => crate::telemetry::count_observed("key-missing"),
            Ok(None) => {}
            Err(problem) => crate::telemetry::count_observed(problem.name),
        }
        RequestAction::Pass
    }

    /// `None`: there is no key, and nowhere else to look for one.
    fn keyed(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> Result<Option<KeyedRequest>, Problem> {
        let found = key::read(&parts.headers, &IDEMPOTENCY_KEY)
            .map_err(|bad| Problem::key_invalid().detail(bad.to_string()))?;
        if found.is_none() && route.policy.key_from.is_none() {
            return Ok(None);
        }
        let principal = self.principal.extract(parts).ok_or_else(Problem::principal_missing)?;
        let earlier = operation.as_sent.map(|as_sent| (principal.clone(), as_sent));
        let earlier_scope =
            earlier.map(|(principal, as_sent)| Scope::new(&*self.namespace, principal, as_sent));
        let scope = Scope::new(self.namespace.as_str(), principal, operation.name);
        let (key, sent) = match found {
            None => (None, None),
            Some(SentKey { id, value }) => (Some(key_in(&scope, &id)?), Some(value.clone())),
        };
        let echo = EchoedHeaders { key: sent, cors: parts.headers.contains_key(ORIGIN) };
        Ok(Some(KeyedRequest { route: route.clone(), scope, key, earlier_scope, echo }))
    }

    /// For answers that the extractor gives; the default needs no word of it.
    pub(crate) fn own_problem_base(&self) -> Option<ProblemBase> {
        let base = &self.problem_base;
        (&**base != problem::BASE).then(|| ProblemBase(base.clone()))
    }

    /// Our own answer.
    pub(crate) fn answer<B>(
        &self,
        problem: &Problem,
        echo: &EchoedHeaders,
    ) -> Response<ResponseBody<B>> {
        let mut response = problem.response(&self.problem_base).map(ResponseBody::own);
        echo.mark(response.headers_mut());
        response
    }

    /// Our own answer to a request whose body nobody reads: the connection must not be used again, or
    /// the rest of the body would be taken for the next request.
    pub(crate) fn refuse<B>(
        &self,
        problem: &Problem,
        echo: &EchoedHeaders,
        version: Version,
    ) -> Response<ResponseBody<B>> {
        let mut response = self.answer(problem, echo);
        if version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl KeyedRequest {
    fn is_ours_already(&self, parts: &Parts) -> bool {
        let Some(outer) = parts.extensions.get::<Idempotency>() else { return false };
        let is_it = |key: &Key| outer.key_hash() == self.route.engine.key_hash(key);
        let earlier = self.earlier_scope.as_ref().zip(self.key.as_ref());
        let earlier = earlier.and_then(|(scope, key)| key.in_scope(scope).ok());
        self.key.as_ref().is_some_and(is_it) || earlier.as_ref().is_some_and(is_it)
    }

    /// The context for a handler that runs without protection.
    pub(crate) fn unprotected(&self, mode: Mode) -> Idempotency {
        // A key in the body is not looked for here: one that nobody has takes its place.
        Idempotency::new(self.route.engine.unprotected(self.key.as_ref()), mode)
    }
}

impl PreparedRoute {
    /// The key in head and body of a request that came without the header.
    pub(crate) fn find_key(
        &self,
        scope: &Scope,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Option<Key>, Problem> {
        let Some(find) = &self.policy.key_from else { return Ok(None) };
        find.find(parts, body)?.map(|id| key_in(scope, &id)).transpose()
    }
}

/// The key of an id, which may come from the body and break the rules.
fn key_in(scope: &Scope, id: &str) -> Result<Key, Problem> {
    scope.key(id).map_err(|error| {
        // Namespace and operation are always valid: with any other id it could only be the principal.
        let problem = match scope.key("any") {
            Ok(_) => Problem::key_invalid(),
            Err(_) => Problem::principal_missing(),
        };
        problem.detail(error.to_string())
    })
}

impl EchoedHeaders {
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Some(key) = &self.key {
            headers.insert(IDEMPOTENCY_KEY, key.clone());
        }
        if self.cors {
            let exposed = HeaderValue::from_static(EXPOSED);
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

fn is_unsafe(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}
