//! From a path to its template, and from there to an upstream.

use std::{borrow::Cow, sync::Arc};

use anyhow::{Context, Result};
use http::Method;
use matchit::Router;

use crate::settings::Route;

/// Which upstream serves a request, and under which template.
#[derive(Debug, Default)]
pub(super) struct Routes {
    router: Router<usize>,
    templates: Vec<Template>,
    default: Option<usize>,
}

#[derive(Debug)]
struct Template {
    text: Arc<str>,
    /// For a method, or for all that have none of their own; `None` is the default upstream.
    entries: Vec<(Option<Method>, Option<usize>)>,
}

/// What a path came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) upstream: usize,
    pub(super) template: Option<Arc<str>>,
}

impl Routes {
    pub(super) fn new(routes: &[Route], default: Option<usize>) -> Result<Self> {
        let mut this = Self { default, ..Self::default() };
        for route in routes {
            this.insert(route).with_context(|| format!("route {:?}", route.template))?;
        }
        Ok(this)
    }

    fn insert(&mut self, route: &Route) -> Result<()> {
        let entry = (route.method.clone(), route.upstream);
        let known = self.templates.iter_mut().find(|it| *it.text == *route.template);
        if let Some(template) = known {
            template.entries.push(entry);
            return Ok(());
        }
        self.router.insert(route.template.clone(), self.templates.len())?;
        let text = route.template.as_str().into();
        self.templates.push(Template { text, entries: vec![entry] });
        Ok(())
    }

    /// `None`: nobody serves this.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<Found> {
        if self.templates.is_empty() {
            return Some(Found { upstream: self.default?, template: None });
        }
        let Ok(matched) = self.router.at(&unescaped(path)).map(|matched| *matched.value) else {
            return Some(Found { upstream: self.default?, template: None });
        };
        let template = &self.templates[matched];
        let upstream = template.upstream(method).or(self.default)?;
        Some(Found { upstream, template: Some(template.text.clone()) })
    }
}

impl Template {
    fn upstream(&self, method: &Method) -> Option<usize> {
        let of = |wanted: Option<&Method>| {
            self.entries.iter().find(|(method, _)| method.as_ref() == wanted)
        };
        of(Some(method)).or_else(|| of(None)).and_then(|(_, upstream)| *upstream)
    }
}

/// `%72` is the same as `r` (RFC 3986): spelled so, a path must not get around its route. What is sent
/// on is what came.
fn unescaped(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let escaped = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped.map(char::from) {
            Some(char) if char.is_ascii_alphanumeric() || "-._~".contains(char) => {
                text.push(char);
                rest = &rest[at + 3..];
            }
            _ => {
                text.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Option<Method>, template: &str, upstream: Option<usize>) -> Route {
        Route { method, template: template.to_owned(), upstream, policy: None }
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
    fn without_a_default_the_rest_is_nobodys() {
        let routes = Routes::new(&[route(Some(Method::POST), "/a", Some(0))], None).unwrap();
        assert_eq!(find(&routes, Method::POST, "/a"), Some((0, Some("/a".to_owned()))));
        assert_eq!(find(&routes, Method::GET, "/a"), None);
        assert_eq!(find(&routes, Method::POST, "/b"), None);
    }

    #[test]
    fn only_what_needs_no_escape_is_unescaped() {
        for (path, text) in [
            ("/a", "/a"),
            ("/%61%2F%7e", "/a%2F~"),
            ("/%", "/%"),
            ("/%6", "/%6"),
            ("/%zz%", "/%zz%"),
            ("/%C3%A4", "/%C3%A4"),
            ("/ä%61", "/äa"),
        ] {
            assert_eq!(unescaped(path), text, "{path}");
        }
    }
}
