//! A request with a key, or with a place to find one, before its claim.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN},
    request::Parts,
};
use semel_core::{Key, Scope};

use crate::{
    Idempotency, Mode,
    header::{EXPOSED, IDEMPOTENCY_KEY},
    key::{self, SentKey},
    problem::Problem,
    state::{LayerState, PreparedRoute},
    template::Operation,
};

/// A request that has a key, or whose key may be in its body.
pub(crate) struct KeyedRequest {
    pub(crate) route: Arc<PreparedRoute>,
    pub(crate) scope: Scope,
    /// `None` if the key has to be found in the body.
    pub(crate) key: Option<Key>,
    /// The scope that earlier versions of semel gave this request, if it is a different one.
    pub(crate) earlier_scope: Option<Scope>,
    pub(crate) echo: EchoedHeaders,
}

/// The headers that every answer to a request carries: the key it came with, and what a browser may read.
#[derive(Clone, Default)]
pub(crate) struct EchoedHeaders {
    pub(crate) key: Option<HeaderValue>,
    pub(crate) cors: bool,
}

impl LayerState {
    /// `None` if there is no key in the head and the policy names no other place for one.
    pub(crate) fn keyed_request(
        &self,
        parts: &Parts,
        route: &Arc<PreparedRoute>,
        operation: Operation,
    ) -> Result<Option<KeyedRequest>, Problem> {
        let sent = key::read(&parts.headers, &IDEMPOTENCY_KEY)
            .map_err(|bad| Problem::key_invalid().detail(bad.to_string()))?;
        if sent.is_none() && route.policy.key_from.is_none() {
            return Ok(None);
        }
        let principal = self.principal.extract(parts).ok_or_else(Problem::principal_missing)?;
        let earlier = operation.as_sent.map(|as_sent| (principal.clone(), as_sent));
        let earlier_scope =
            earlier.map(|(principal, as_sent)| Scope::new(&*self.namespace, principal, as_sent));
        let scope = Scope::new(self.namespace.as_str(), principal, operation.name);
        let (key, value) = match sent {
            None => (None, None),
            Some(SentKey { id, value }) => (Some(key_in(&scope, &id)?), Some(value.clone())),
        };
        let echo = EchoedHeaders { key: value, cors: parts.headers.contains_key(ORIGIN) };
        Ok(Some(KeyedRequest { route: route.clone(), scope, key, earlier_scope, echo }))
    }
}

impl KeyedRequest {
    /// True if a layer further out runs this request under the same key.
    pub(crate) fn is_claimed_by_outer_layer(&self, parts: &Parts) -> bool {
        let Some(outer) = parts.extensions.get::<Idempotency>() else { return false };
        let is_outer_key = |key: &Key| outer.key_hash() == self.route.engine.key_hash(key);
        let earlier = self.earlier_scope.as_ref().zip(self.key.as_ref());
        let earlier = earlier.and_then(|(scope, key)| key.in_scope(scope).ok());
        self.key.as_ref().is_some_and(is_outer_key) || earlier.as_ref().is_some_and(is_outer_key)
    }

    /// The context for a handler that runs without protection.
    pub(crate) fn unprotected(&self, mode: Mode) -> Idempotency {
        // A key in the body is not looked for here. The engine makes up a random key in its place.
        Idempotency::new(self.route.engine.unprotected(self.key.as_ref()), mode)
    }
}

impl PreparedRoute {
    /// Finds the key of a request without the header, in its head or body.
    pub(crate) fn find_key(
        &self,
        scope: &Scope,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Option<Key>, Problem> {
        let Some(key_from) = &self.policy.key_from else { return Ok(None) };
        key_from.find(parts, body)?.map(|id| key_in(scope, &id)).transpose()
    }
}

/// The key for an id, which may come from the body and be invalid.
fn key_in(scope: &Scope, id: &str) -> Result<Key, Problem> {
    scope.key(id).map_err(|error| {
        // Namespace and operation are always valid. If a valid id fails too, the principal is invalid.
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
