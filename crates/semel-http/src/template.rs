//! Finds the route template of a request, such as `/orders/{id}` for the path `/orders/7`.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{Uri, request::Parts};
use semel_core::{Error, Fingerprint, Result, Scope};

use crate::normal_path;

type TemplateFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Where the route template comes from. Keys are scoped by method and template; the concrete path and
/// query are part of the fingerprint either way.
#[derive(Clone, Default)]
pub struct RouteTemplate(TemplateSource);

#[derive(Clone, Default)]
enum TemplateSource {
    #[default]
    MatchedPath,
    ConcretePath,
    Closure(Arc<TemplateFn>),
}

impl RouteTemplate {
    /// The template that axum's router matched (needs feature `axum`), or the concrete path if there is none. The
    /// default.
    #[must_use]
    pub const fn matched_path() -> Self {
        Self(TemplateSource::MatchedPath)
    }

    /// The path in its [normal form](normal_path): every path is a scope of its own.
    #[must_use]
    pub const fn concrete_path() -> Self {
        Self(TemplateSource::ConcretePath)
    }

    /// The template that the closure returns, such as `/orders/{id}`. `None` means the concrete path.
    pub fn closure(find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(TemplateSource::Closure(Arc::new(find)))
    }

    /// Refuses a route in the syntax of another router: it would never match, and its policy would never apply.
    pub(crate) fn check(&self, route: &str) -> Result<()> {
        let TemplateSource::MatchedPath = self.0 else { return Ok(()) };
        match route.split('/').find(|segment| segment.starts_with([':', '*'])) {
            None => Ok(()),
            Some(segment) => {
                let name = &segment[1..];
                Err(Error::invalid(format!(
                    "route {route:?}: axum writes parameters in braces; {segment} is {{{name}}}, or \
                     {{*{name}}} for the rest of the path"
                )))
            }
        }
    }

    /// The operation of a request, as its scope has it.
    pub(crate) fn operation(&self, parts: &Parts) -> Operation {
        let template = match &self.0 {
            TemplateSource::MatchedPath => {
                matched_path(parts).map(|template| operation(parts, template))
            }
            TemplateSource::ConcretePath => None,
            TemplateSource::Closure(find) => {
                find(parts).map(|template| operation(parts, &template))
            }
        };
        match template {
            Some(name) => Operation { name, as_sent: None, is_path: false },
            None => concrete(parts),
        }
    }
}

/// `METHOD /template`.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) name: String,
    /// The name with the path as it was sent, if that is not in normal form. Earlier versions used this name.
    pub(crate) as_sent: Option<String>,
    /// True if no template is known, so that the client chose this name.
    pub(crate) is_path: bool,
}

/// The URI that the client sent. A nested router sees a path without the prefix of its mount point.
#[cfg(feature = "axum")]
pub(crate) fn uri(parts: &Parts) -> &Uri {
    let original = parts.extensions.get::<axum::extract::OriginalUri>();
    original.map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
pub(crate) const fn uri(parts: &Parts) -> &Uri {
    &parts.uri
}

#[cfg(feature = "axum")]
fn matched_path(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
const fn matched_path(_: &Parts) -> Option<&str> {
    None
}

fn joined(parts: &Parts, template: &str) -> String {
    let method = parts.method.as_str();
    let mut operation = String::with_capacity(method.len() + 1 + template.len());
    operation.push_str(method);
    operation.push(' ');
    operation.push_str(template);
    operation
}

fn concrete(parts: &Parts) -> Operation {
    let path = uri(parts).path();
    let normal = normal_path(path);
    let as_sent = matches!(normal, Cow::Owned(_)).then(|| operation(parts, path));
    Operation { name: operation(parts, &normal), as_sent, is_path: true }
}

/// The name of an operation. Clients choose paths, so a hash replaces a path that makes the name invalid.
fn operation(parts: &Parts, template: &str) -> String {
    let operation = joined(parts, template);
    if operation.len() <= Scope::MAX_BYTES && !operation.contains(char::is_control) {
        return operation;
    }
    let digest = Fingerprint::of_bytes(operation.as_bytes());
    let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    joined(parts, &format!("/{hex}"))
}

impl fmt::Debug for RouteTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            TemplateSource::MatchedPath => "MatchedPath",
            TemplateSource::ConcretePath => "ConcretePath",
            TemplateSource::Closure(_) => "Closure",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn operation(template: &RouteTemplate, uri: &str) -> String {
        template.operation(&Request::post(uri).body(()).unwrap().into_parts().0).name
    }

    #[test]
    fn a_path_without_a_template_is_its_own_template() {
        let template = RouteTemplate::closure(|parts| {
            parts.uri.path().starts_with("/orders/").then(|| "/orders/{id}".to_owned())
        });
        assert_eq!(operation(&template, "/orders/7?x"), "POST /orders/{id}");
        assert_eq!(operation(&template, "/other?x"), "POST /other");
        assert_eq!(operation(&RouteTemplate::default(), "/orders/7"), "POST /orders/7");
    }

    #[test]
    fn paths_with_one_normal_form_are_one_operation() {
        let template = RouteTemplate::concrete_path();
        let of = |uri: &str| {
            let (parts, ()) = Request::post(uri).body(()).unwrap().into_parts();
            let Operation { name, as_sent, .. } = template.operation(&parts);
            (name, as_sent)
        };
        assert_eq!(of("/abc"), ("POST /abc".to_owned(), None));
        let as_sent = Some("POST /%61bc".to_owned());
        assert_eq!(of("/%61bc"), ("POST /abc".to_owned(), as_sent));
        assert_ne!(of("/a%2Fb"), of("/a/b"));
        assert_ne!(of("/a/"), of("/a"));
    }

    #[test]
    fn an_overlong_path_still_makes_an_operation() {
        let long = |end: char| {
            operation(&RouteTemplate::concrete_path(), &format!("/{}{end}", "a".repeat(2000)))
        };
        assert!(long('a').len() < Scope::MAX_BYTES);
        assert_ne!(long('a'), long('b'));
    }
}
