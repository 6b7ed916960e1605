//! Per-route modes, changeable while the service runs.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http::Method;
use parking_lot::RwLock;
use semel_core::{Error, Result};

use crate::normal_path;

/// What the layer does on a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Keys are claimed, outcomes recorded and replayed.
    #[default]
    Enforce,
    /// Every request passes unchanged. The layer counts what enforcing would have done.
    Observe,
    /// The layer does nothing.
    Off,
}

/// Overrides of modes at run time. Clones share one set of overrides.
///
/// ```
/// use semel_http::{Mode, Modes};
/// let modes = Modes::new();
/// modes.set("POST /refunds/{id}", Mode::Off)?;
/// modes.set_all(Mode::Observe); // every other route, whatever its policy says
/// modes.clear_all();
/// assert!(modes.set("refunds", Mode::Off).is_err());
/// # Ok::<(), semel_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Modes(Arc<ModesState>);

#[derive(Debug, Default)]
struct ModesState {
    /// False while there are no overrides, so that requests need no lock.
    any: AtomicBool,
    overrides: RwLock<Overrides>,
}

#[derive(Debug, Default)]
struct Overrides {
    all: Option<Mode>,
    routes: HashMap<String, Mode>,
}

impl Modes {
    /// No overrides: every route does what its policy says.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Overrides the mode of one route, given as in
    /// [`IdempotencyLayerBuilder::route`](crate::IdempotencyLayerBuilder::route).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when `route` is no method and template.
    pub fn set(&self, route: &str, mode: Mode) -> Result<()> {
        let route = normal_route(route)?;
        self.change(|overrides| {
            overrides.routes.insert(route, mode);
        });
        Ok(())
    }

    /// Removes an override.
    pub fn clear(&self, route: &str) {
        self.change(|overrides| {
            overrides.routes.remove(&*normal_path(route));
        });
    }

    /// Overrides the mode of all routes without an override of their own.
    pub fn set_all(&self, mode: Mode) {
        self.change(|overrides| overrides.all = Some(mode));
    }

    /// Undoes [`Modes::set_all`].
    pub fn clear_all(&self) {
        self.change(|overrides| overrides.all = None);
    }

    /// The overrides of single routes, sorted.
    #[must_use]
    pub fn overrides(&self) -> Vec<(String, Mode)> {
        let overrides = self.0.overrides.read();
        let mut list: Vec<_> = overrides.routes.iter().map(|(k, v)| (k.clone(), *v)).collect();
        list.sort_by(|one, other| one.0.cmp(&other.0));
        list
    }

    pub(crate) fn of(&self, operation: &str, policy: Mode) -> Mode {
        if !self.0.any.load(Relaxed) {
            return policy;
        }
        let overrides = self.0.overrides.read();
        overrides.routes.get(operation).copied().or(overrides.all).unwrap_or(policy)
    }

    fn change(&self, change: impl FnOnce(&mut Overrides)) {
        let mut overrides = self.0.overrides.write();
        change(&mut overrides);
        let any = overrides.all.is_some() || !overrides.routes.is_empty();
        self.0.any.store(any, Relaxed);
    }
}

/// A route `METHOD /template` with a normal path, as requests are compared with it.
pub(crate) fn normal_route(route: &str) -> Result<String> {
    let bad = || {
        Error::invalid(format!(
            "route {route:?}: write a method and a path template, such as \"POST /refunds/{{id}}\""
        ))
    };
    let (method, template) = route.split_once(' ').ok_or_else(bad)?;
    // Methods are case-sensitive: one in lower case would never match.
    let known = method.parse::<Method>().is_ok() && !method.bytes().any(|b| b.is_ascii_lowercase());
    if !known || !template.starts_with('/') || template.contains(char::is_whitespace) {
        return Err(bad());
    }
    Ok(normal_path(route).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_of_one_route_precedes_all_and_all_precedes_the_policy() {
        let modes = Modes::new();
        assert_eq!(modes.of("POST /a", Mode::Enforce), Mode::Enforce);
        modes.set_all(Mode::Off);
        modes.set("POST /a", Mode::Observe).unwrap();
        assert_eq!(modes.of("POST /a", Mode::Enforce), Mode::Observe);
        assert_eq!(modes.of("POST /b", Mode::Enforce), Mode::Off);
        modes.clear("POST /a");
        modes.clear_all();
        assert_eq!(modes.of("POST /a", Mode::Enforce), Mode::Enforce);
        assert!(modes.overrides().is_empty());
    }

    #[test]
    fn a_route_is_the_same_in_every_spelling() {
        let modes = Modes::new();
        modes.set("POST /caf%c3%a9/{id}", Mode::Off).unwrap();
        assert_eq!(modes.of("POST /caf%C3%A9/{id}", Mode::Enforce), Mode::Off);
        modes.clear("POST /café/{id}");
        assert_eq!(modes.of("POST /caf%C3%A9/{id}", Mode::Enforce), Mode::Enforce);
    }

    #[test]
    fn a_route_that_no_request_can_have_is_refused() {
        for bad in ["", "POST", "/a", "POST a", "post /a", "POST  /a", "POST /a b", "P@ST /a"] {
            let error = Modes::new().set(bad, Mode::Off).unwrap_err().to_string();
            assert!(error.contains("POST /refunds/{id}"), "{error}");
        }
    }
}
