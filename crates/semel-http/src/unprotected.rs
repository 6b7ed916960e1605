//! Counts keys on methods that are not protected, and logs them once for each route: a client may rely on a key
//! that has no effect.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
};

use http::{Method, request::Parts};
use parking_lot::Mutex;

use crate::{Idempotency, Mode, telemetry, template::Operation};

/// Routes that are remembered. Routes beyond this number are not logged.
const MAX_ROUTES: usize = 256;

/// The hashes of the routes that were logged. Routes without a known template are logged once per method.
#[derive(Debug, Default)]
pub(crate) struct IgnoredKeys {
    hasher: RandomState,
    logged: Mutex<HashSet<u64>>,
}

impl IgnoredKeys {
    /// Counts a request with a key whose method is not protected.
    pub(crate) fn count(&self, parts: &Parts, operation: &Operation) {
        let outer = parts.extensions.get::<Idempotency>();
        if outer.is_some_and(|outer| outer.mode() == Mode::Enforce) {
            // An outer layer protects this request.
            return;
        }
        let method = label(&parts.method);
        telemetry::count_unprotected(method);
        // A path without a template may hold a secret, and clients can send any number of paths.
        let route = if operation.is_path { method } else { &operation.name };
        if self.is_new(route) {
            tracing::warn!(
                route,
                "Idempotency-Key on a method that is not protected: the key has no effect. Give the route a \
                 policy of its own to protect it"
            );
        }
    }

    fn is_new(&self, operation: &str) -> bool {
        let mut logged = self.logged.lock();
        logged.len() < MAX_ROUTES && logged.insert(self.hasher.hash_one(operation))
    }
}

/// A bounded set of labels, since clients can send any method.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_logged_once_and_the_number_of_routes_is_bounded() {
        let unprotected = IgnoredKeys::default();
        let routes: Vec<_> = (0..2 * MAX_ROUTES).map(|path| format!("GET /{path}")).collect();
        let orders = ["GET /orders"; 3].map(|route| unprotected.is_new(route));
        assert_eq!(orders, [true, false, false]);
        let new = routes.iter().chain(&routes).filter(|route| unprotected.is_new(route)).count();
        assert_eq!(new, MAX_ROUTES - 1);
        assert_eq!(unprotected.logged.lock().len(), MAX_ROUTES);
    }
}
