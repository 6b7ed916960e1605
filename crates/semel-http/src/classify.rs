//! Decides from the head of a request whether it passes, is observed, is refused or is protected.

use std::sync::Arc;

use http::{Method, header::ORIGIN, request::Parts};

use crate::{
    Idempotency, Mode,
    header::IDEMPOTENCY_KEY,
    keyed_request::{EchoedHeaders, KeyedRequest},
    normal_path,
    problem::Problem,
    state::{LayerState, PreparedRoute},
    telemetry::count_observed,
    template::Operation,
};

/// What the layer does with a request.
pub(crate) enum RequestAction {
    /// Passes it on unchanged.
    Pass,
    /// Passes it on with a context for the handler, and without protection.
    PassWithContext(Idempotency),
    /// Passes it on unchanged, and counts what enforcing would have done.
    Observe(KeyedRequest),
    /// Answers with a problem.
    Refuse(Problem, EchoedHeaders),
    /// Claims its key first.
    Protect(KeyedRequest),
}

impl LayerState {
    pub(crate) fn classify(&self, parts: &Parts) -> RequestAction {
        let is_protected = is_unsafe(&parts.method);
        let ignores_key = !is_protected && parts.headers.contains_key(IDEMPOTENCY_KEY);
        if !is_protected && !ignores_key && self.routes.is_empty() {
            return RequestAction::Pass;
        }
        let operation = self.template.operation(parts);
        let normal_name = normal_path(&operation.name);
        let route = match self.routes.get(&*normal_name) {
            Some(route) => route,
            None if is_protected => &self.default,
            None => {
                if ignores_key {
                    self.unprotected.count(parts, &operation);
                }
                return RequestAction::Pass;
            }
        };
        match self.modes.of(&normal_name, route.policy.mode) {
            Mode::Off => self.off(parts, route, operation),
            Mode::Enforce => self.enforce(parts, route, operation),
            Mode::Observe => self.observe(parts, route, operation),
        }
    }

    fn enforce(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> RequestAction {
        let cors = parts.headers.contains_key(ORIGIN);
        let refuse = |problem| RequestAction::Refuse(problem, EchoedHeaders { key: None, cors });
        match self.keyed_request(parts, route, operation) {
            // A second claim of the same key would wait for the first one, which waits for this layer.
            Ok(Some(keyed)) if keyed.is_claimed_by_outer_layer(parts) => RequestAction::Pass,
            Ok(Some(keyed)) => RequestAction::Protect(keyed),
            Ok(None) if route.policy.require_key => refuse(Problem::key_missing()),
            Ok(None) => RequestAction::Pass,
            Err(problem) => refuse(problem),
        }
    }

    /// The handler of a route in mode `off` may still need the context.
    fn off(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> RequestAction {
        match self.keyed_request(parts, route, operation) {
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
        match self.keyed_request(parts, route, operation) {
            Ok(Some(keyed)) => return RequestAction::Observe(keyed),
            Ok(None) if route.policy.require_key => count_observed("key-missing"),
            Ok(None) => {}
            Err(problem) => count_observed(problem.name),
        }
        RequestAction::Pass
    }
}

fn is_unsafe(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}
