//! What a route matches.

use std::{fmt, str::FromStr};

use http::Method;

use super::text::from_text;

/// A method and a path template, or a template alone for all methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteMatch {
    pub(crate) method: Option<Method>,
    pub(crate) template: String,
}

const FORM: &str = "write a method and a template, such as POST /refunds/{id}, or a template alone";

impl FromStr for RouteMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, template) = match text.split_once(' ') {
            Some((method, template)) => (Some(self::method(method)?), template),
            None => (None, text),
        };
        check(template)?;
        Ok(Self { method, template: template.to_owned() })
    }
}

from_text!(RouteMatch, "a route such as \"POST /refunds/{id}\"");

/// Methods are case-sensitive: one in small letters would never match.
fn method(text: &str) -> Result<Method, String> {
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(format!("methods are in capitals; write {}", text.to_ascii_uppercase()));
    }
    match text.parse() {
        Ok(Method::CONNECT | Method::TRACE) => {
            Err(format!("the gateway refuses every {text}; remove the route"))
        }
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{text:?} is no method; {FORM}")),
    }
}

fn check(template: &str) -> Result<(), String> {
    if !template.starts_with('/') {
        return Err(format!("the template does not start with a slash; {FORM}"));
    }
    if template.contains(|c: char| c.is_whitespace() || matches!(c, '?' | '#')) {
        return Err(format!("the template has a space, a query or a fragment; {FORM}"));
    }
    for segment in template.split('/') {
        let (rest, name) = match segment.split_at_checked(1) {
            Some((":", name)) => ("", name),
            Some(("*", name)) => ("*", name),
            _ => continue,
        };
        let name = if name.is_empty() { "rest" } else { name };
        return Err(format!(
            "parameters are in braces; write {{{rest}{name}}} instead of {segment}"
        ));
    }
    if template.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("the template has dots as a segment; no request that gets here has them".into());
    }
    Ok(())
}

impl fmt::Display for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Some(method) => write!(f, "{method} {}", self.template),
            None => f.write_str(&self.template),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_method_and_a_template() {
        for good in ["POST /refunds/{id}", "/refunds", "GET /files/{*path}", "PURGE /a", "/"] {
            assert_eq!(good.parse::<RouteMatch>().unwrap().to_string(), good);
        }
    }

    #[test]
    fn a_route_that_no_request_can_have_is_refused_with_the_fix() {
        for (bad, word) in [
            ("", "such as POST /refunds/{id}"),
            ("POST", "such as POST /refunds/{id}"),
            ("POST refunds", "such as POST /refunds/{id}"),
            ("POST  /a", "such as POST /refunds/{id}"),
            ("P@ST /a", "is no method"),
            (" /a", "is no method"),
            ("post /a", "write POST"),
            ("CONNECT /a", "remove the route"),
            ("TRACE /a", "remove the route"),
            ("POST /a b", "space"),
            ("POST /a?b=1", "query"),
            ("POST /a/:id", "write {id}"),
            ("POST /a/*path", "write {*path}"),
            ("POST /a/*", "write {*rest}"),
            ("POST /a/../b", "dots"),
        ] {
            let error = bad.parse::<RouteMatch>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
