//! From a path to its template, and from there to an upstream.

use std::{collections::HashMap, sync::Arc};

use anyhow::{Context, Result};
use http::Method;
use matchit::Router;
use semel_service::settings::{RouteConfig, canonical_path};

/// Which upstream serves a request, and under which template.
#[derive(Debug)]
pub(super) struct Routes {
    /// Of every method that has a route of its own: what applies to it. A route for reads must not be
    /// in the way of one for writes.
    own: HashMap<Method, Router<MatchedRoute>>,
    /// Of all other methods.
    rest: Router<MatchedRoute>,
    default: Option<MatchedRoute>,
}

/// What a path came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatchedRoute {
    pub(super) upstream: usize,
    pub(super) template: Option<Arc<str>>,
}

impl Routes {
    pub(super) fn new(routes: &[RouteConfig], default: Option<usize>) -> Result<Self> {
        let methods = routes.iter().filter_map(|route| route.method.clone());
        let own =
            methods.map(|method| Ok((method.clone(), router(routes, Some(&method), default)?)));
        Ok(Self {
            own: own.collect::<Result<_>>()?,
            rest: router(routes, None, default)?,
            default: default.map(|upstream| MatchedRoute { upstream, template: None }),
        })
    }

    /// `None`: nobody serves this.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<MatchedRoute> {
        // Who asks for the head of an answer asks whoever would give the answer.
        let head = || (*method == Method::HEAD).then(|| self.own.get(&Method::GET)).flatten();
        let router = self.own.get(method).or_else(head).unwrap_or(&self.rest);
        match router.at(&canonical_path(path)) {
            Ok(matched) => Some(matched.value.clone()),
            Err(_) => self.default.clone(),
        }
    }
}

/// The routes of a method: its own, and of the others those that have none of its own in their place.
fn router(
    routes: &[RouteConfig],
    method: Option<&Method>,
    default: Option<usize>,
) -> Result<Router<MatchedRoute>> {
    let mut router = Router::new();
    let has_own = |template: &str| {
        let mut same = routes.iter().filter(|route| route.template == template);
        same.any(|route| route.method.is_some() && route.method.as_ref() == method)
    };
    for route in routes {
        let applies = match &route.method {
            Some(own) => Some(own) == method,
            None => !has_own(&route.template),
        };
        if let (true, Some(upstream)) = (applies, route.upstream.or(default)) {
            let found = MatchedRoute { upstream, template: Some(route.template.as_str().into()) };
            let inserted = router.insert(canonical_path(&route.template), found);
            inserted.with_context(|| format!("route {:?}", route.template))?;
        }
    }
    Ok(router)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Option<Method>, template: &str, upstream: Option<usize>) -> RouteConfig {
        RouteConfig { method, template: template.to_owned(), upstream, policy: None }
    }

    fn find(routes: &Routes, method: Method, path: &str) -> Option<(usize, Option<String>)> {
        let found = routes.find(&method, path)?;
        Some((found.upstream, found.template.map(|text| text.to_string())))
    }

    #[test]
    fn the_most_specific_template_and_method_wins() {
        let routes = Routes::new(
            &[
                route(None, "/{*rest}", Some(1)),
                route(None, "/refunds/{id}", Some(2)),
                route(Some(Method::POST), "/refunds/{id}", Some(3)),
                route(Some(Method::POST), "/refunds/all", None),
            ],
            Some(0),
        )
        .unwrap();
        let refunds = Some("/refunds/{id}".to_owned());
        assert_eq!(find(&routes, Method::POST, "/refunds/7"), Some((3, refunds.clone())));
        assert_eq!(find(&routes, Method::GET, "/refunds/7"), Some((2, refunds.clone())));
        assert_eq!(find(&routes, Method::POST, "/%72efunds/%37"), Some((3, refunds)));
        let all = Some("/refunds/all".to_owned());
        assert_eq!(find(&routes, Method::POST, "/refunds/all"), Some((0, all)));
        assert_eq!(find(&routes, Method::GET, "/x/y"), Some((1, Some("/{*rest}".to_owned()))));
        assert_eq!(find(&routes, Method::GET, "/"), Some((0, None)));
    }

    #[test]
    fn a_route_of_one_method_is_not_in_the_way_of_another() {
        let routes = Routes::new(
            &[
                route(Some(Method::POST), "/{*rest}", Some(1)),
                route(Some(Method::GET), "/orders", Some(2)),
            ],
            Some(0),
        )
        .unwrap();
        let rest = Some("/{*rest}".to_owned());
        assert_eq!(find(&routes, Method::POST, "/orders"), Some((1, rest)));
        assert_eq!(find(&routes, Method::GET, "/orders"), Some((2, Some("/orders".to_owned()))));
        assert_eq!(find(&routes, Method::PUT, "/orders"), Some((0, None)));
    }

    #[test]
    fn a_template_is_found_in_every_spelling() {
        for (template, path) in [
            ("/%7Euser", "/~user"),
            ("/~user", "/%7euser"),
            ("/a%2fb", "/a%2Fb"),
            ("/café/{id}", "/caf%c3%a9/7"),
        ] {
            let routes = Routes::new(&[route(None, template, Some(1))], Some(0)).unwrap();
            let found = Some((1, Some(template.to_owned())));
            assert_eq!(find(&routes, Method::POST, path), found, "{template}");
        }
    }

    #[test]
    fn without_a_default_upstream_other_paths_have_no_route() {
        let routes = Routes::new(&[route(Some(Method::POST), "/a", Some(0))], None).unwrap();
        assert_eq!(find(&routes, Method::POST, "/a"), Some((0, Some("/a".to_owned()))));
        assert_eq!(find(&routes, Method::GET, "/a"), None);
        assert_eq!(find(&routes, Method::POST, "/b"), None);
    }
}
