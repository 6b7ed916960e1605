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
    authorize::AuthorizeReplay,
    body::ResponseBody,
    budget::Budget,
    header::{EXPOSED, IDEMPOTENCY_KEY},
    key::{self, SentKey},
    normal_path,
    observe::Observer,
    patience::Patience,
    problem::{self, Problem, ProblemBase},
    template::Operation,
    unprotected::Unprotected,
};

/// Everything that the clones of a layer share.
pub(crate) struct Shared {
    pub(crate) namespace: String,
    pub(crate) principal: Arc<dyn ExtractPrincipal>,
    pub(crate) template: RouteTemplate,
    pub(crate) routes: HashMap<String, Arc<Route>>,
    pub(crate) default: Arc<Route>,
    pub(crate) modes: Modes,
    pub(crate) authorize: Option<AuthorizeReplay>,
    pub(crate) budget: Budget,
    pub(crate) patience: Patience,
    pub(crate) problem_base: Arc<str>,
    pub(crate) observer: Observer,
    pub(crate) unprotected: Unprotected,
}

/// A route's policy, and the engine that runs under it.
pub(crate) struct Route {
    pub(crate) policy: RoutePolicy,
    pub(crate) engine: Engine,
}

/// What becomes of a request.
pub(crate) enum Plan {
    /// Untouched.
    Pass,
    /// Untouched, but a handler that asks for its context gets one.
    PassKeyed(Idempotency),
    /// Untouched, and counted.
    Observe(Ticket),
    /// Answered here.
    Refuse(Problem, Echo),
    /// Claimed first.
    Guard(Ticket),
}

/// A request on its way to a claim.
pub(crate) struct Ticket {
    pub(crate) route: Arc<Route>,
    pub(crate) scope: Scope,
    /// `None`: it is to be found in the body.
    pub(crate) key: Option<Key>,
    /// The scope that earlier builds gave this request, where it is another one.
    pub(crate) earlier_scope: Option<Scope>,
    pub(crate) echo: Echo,
}

/// What every answer to a request has on it.
#[derive(Clone, Default)]
pub(crate) struct Echo {
    key: Option<HeaderValue>,
    cors: bool,
}

impl Shared {
    pub(crate) fn plan(&self, parts: &Parts) -> Plan {
        let guarded = is_unsafe(&parts.method);
        let ignores_key = !guarded && parts.headers.contains_key(IDEMPOTENCY_KEY);
        if !guarded && !ignores_key && self.routes.is_empty() {
            return Plan::Pass;
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
                return Plan::Pass;
            }
        };
        match self.modes.of(&spelt, route.policy.mode) {
            Mode::Off => self.off(parts, route, operation),
            Mode::Enforce => self.guard(parts, route, operation),
            Mode::Observe => self.observe(parts, route, operation),
        }
    }

    fn guard(&self, parts: &Parts, route: &Arc<Route>, operation: Operation) -> Plan {
        let cors = parts.headers.contains_key(ORIGIN);
        let refuse = |problem, key| Plan::Refuse(problem, Echo { key, cors });
        match self.ticket(parts, route, operation) {
            // A layer outside has this very key already: to claim it again would be to wait for oneself.
            Ok(Some(ticket)) if ticket.is_ours_already(parts) => Plan::Pass,
            Ok(Some(ticket)) => Plan::Guard(ticket),
            Ok(None) if route.policy.require_key => refuse(Problem::key_missing(), None),
            Ok(None) => Plan::Pass,
            Err(problem) => refuse(problem, None),
        }
    }

    /// Switched off, a route must still work: its handler may need the context.
    fn off(&self, parts: &Parts, route: &Arc<Route>, operation: Operation) -> Plan {
        match self.ticket(parts, route, operation) {
            Ok(Some(ticket)) => Plan::PassKeyed(ticket.unprotected(Mode::Off)),
            Ok(None) | Err(_) => Plan::Pass,
        }
    }

    fn observe(&self, parts: &Parts, route: &Arc<Route>, operation: Operation) -> Plan {
        match self.ticket(parts, route, operation) {
            Ok(Some(ticket)) => return Plan::Observe(ticket),
            Ok(None) if route.policy.require_key => crate::telemetry::observed("key-missing"),
            Ok(None) => {}
            Err(problem) => crate::telemetry::observed(problem.name),
        }
        Plan::Pass
    }

    /// `None`: there is no key, and nowhere else to look for one.
    fn ticket(
        &self,
        parts: &Parts,
        route: &Arc<Route>,
        operation: Operation,
    ) -> Result<Option<Ticket>, Problem> {
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
        let echo = Echo { key: sent, cors: parts.headers.contains_key(ORIGIN) };
        Ok(Some(Ticket { route: route.clone(), scope, key, earlier_scope, echo }))
    }

    /// For answers that the extractor gives; the default needs no word of it.
    pub(crate) fn own_problem_base(&self) -> Option<ProblemBase> {
        let base = &self.problem_base;
        (&**base != problem::BASE).then(|| ProblemBase(base.clone()))
    }

    /// Our own answer.
    pub(crate) fn answer<B>(&self, problem: &Problem, echo: &Echo) -> Response<ResponseBody<B>> {
        let mut response = problem.response(&self.problem_base).map(ResponseBody::own);
        echo.mark(response.headers_mut());
        response
    }

    /// Our own answer to a request whose body nobody reads: the connection must not be used again, or
    /// the rest of the body would be taken for the next request.
    pub(crate) fn refuse<B>(
        &self,
        problem: &Problem,
        echo: &Echo,
        version: Version,
    ) -> Response<ResponseBody<B>> {
        let mut response = self.answer(problem, echo);
        if version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl Ticket {
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

impl Route {
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

impl Echo {
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
