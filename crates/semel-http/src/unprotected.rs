//! Keys on methods that are not protected. Their clients may rely on a key that does nothing: it is counted,
//! and logged once for each route.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
};

use http::{Method, request::Parts};
use parking_lot::Mutex;

use crate::{Idempotency, telemetry};

/// Routes that are remembered. Where no template is known the path stands for the route, and clients choose
/// paths: beyond this many nothing more is logged.
const MAX_ROUTES: usize = 256;

/// The routes that were logged, by hash: a path may be long.
#[derive(Debug, Default)]
pub(crate) struct Unprotected {
    hasher: RandomState,
    logged: Mutex<HashSet<u64>>,
}

impl Unprotected {
    /// Counts a request with a key whose method is not protected.
    pub(crate) fn passed(&self, parts: &Parts, operation: &str) {
        // A layer outside protects it.
        if parts.extensions.get::<Idempotency>().is_some() {
            return;
        }
        telemetry::unprotected(label(&parts.method));
        if self.is_new(operation) {
            tracing::warn!(
                route = operation,
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

/// Clients may make methods up.
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
    fn a_route_is_new_once_and_so_many_are_remembered() {
        let unprotected = Unprotected::default();
        let routes: Vec<_> = (0..2 * MAX_ROUTES).map(|path| format!("GET /{path}")).collect();
        let orders = ["GET /orders"; 3].map(|route| unprotected.is_new(route));
        assert_eq!(orders, [true, false, false]);
        let new = routes.iter().chain(&routes).filter(|route| unprotected.is_new(route)).count();
        assert_eq!(new, MAX_ROUTES - 1);
        assert_eq!(unprotected.logged.lock().len(), MAX_ROUTES);
    }
}
