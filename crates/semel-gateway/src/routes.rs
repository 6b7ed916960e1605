//! Finds the route of a request: from its path to a template and an upstream.

use std::{collections::HashMap, sync::Arc};

use anyhow::{Context, Result};
use http::Method;
use matchit::Router;
use semel_service::settings::{RouteConfig, canonical_path};

/// Which upstream serves a request, and under which template.
#[derive(Debug)]
pub(super) struct Routes {
    /// A router for every method that has routes of its own: a route for reads must not hide one for writes.
    by_method: HashMap<Method, Router<MatchedRoute>>,
    /// The router for all other methods.
    other_methods: Router<MatchedRoute>,
    default: Option<MatchedRoute>,
}

/// The route that was found for a request.
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
            by_method: own.collect::<Result<_>>()?,
            other_methods: router(routes, None, default)?,
            default: default.map(|upstream| MatchedRoute { upstream, template: None }),
        })
    }

    /// `None`: no upstream serves this path.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<MatchedRoute> {
        // HEAD goes to the upstream that would answer GET.
        let head = || (*method == Method::HEAD).then(|| self.by_method.get(&Method::GET)).flatten();
        let router = self.by_method.get(method).or_else(head).unwrap_or(&self.other_methods);
        match router.at(&canonical_path(path)) {
            Ok(matched) => Some(matched.value.clone()),
            Err(_) => self.default.clone(),
        }
    }
}

/// The routes that apply to a method: its own, and those for all methods with a template that it has no route for.
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
    fn a_route_of_one_method_does_not_hide_one_of_another() {
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
