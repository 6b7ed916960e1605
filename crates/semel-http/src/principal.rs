//! Extracts the principal of a request, the part of the scope that separates the outcomes of callers.

use http::{HeaderName, header::AUTHORIZATION, request::Parts};
use semel_core::{Error, Principal, Result};

/// Finds the principal of a request. Implemented by closures over [`Parts`], [`Anonymous`],
/// [`Authorization`] and [`TrustedHeader`].
pub trait ExtractPrincipal: Send + Sync + 'static {
    /// The principal, or `None` if no caller is authenticated. The request is then refused with 401.
    fn extract(&self, parts: &Parts) -> Option<Principal>;
}

impl<F: Fn(&Parts) -> Option<Principal> + Send + Sync + 'static> ExtractPrincipal for F {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        self(parts)
    }
}

/// All callers share one key space. Right for internal callers. On a public route, a caller could read the
/// outcomes of others.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

impl ExtractPrincipal for Anonymous {
    fn extract(&self, _: &Parts) -> Option<Principal> {
        Some(Principal::Anonymous)
    }
}

/// The `Authorization` header as a whole, kept as a keyed hash only. The same user with a new token is
/// a new principal: where tokens are short-lived, extract the user instead.
#[derive(Clone, Copy, Debug)]
pub struct Authorization;

impl ExtractPrincipal for Authorization {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        single(parts, &AUTHORIZATION).map(Principal::credential)
    }
}

/// A header that a proxy in front sets **and removes from requests of clients**. Without such a proxy, any
/// client can claim to be any principal.
#[derive(Clone, Debug)]
pub struct TrustedHeader(HeaderName);

impl TrustedHeader {
    /// Trusts this header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when it is no header name.
    pub fn new(name: &str) -> Result<Self> {
        let bad = |_| Error::invalid(format!("principal: {name:?} is no header name"));
        name.parse().map(Self).map_err(bad)
    }
}

impl ExtractPrincipal for TrustedHeader {
    fn extract(&self, parts: &Parts) -> Option<Principal> {
        single(parts, &self.0).map(Principal::from)
    }
}

/// The value of a header that is sent once. With two values, a client could choose which one is used.
fn single<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    let mut values = parts.headers.get_all(name).iter();
    let value = values.next()?.to_str().ok().filter(|value| !value.is_empty())?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_missing_empty_or_repeated_header_is_no_principal() {
        assert!(Authorization.extract(&parts(&[])).is_none());
        assert!(Authorization.extract(&parts(&[("authorization", "")])).is_none());
        let two = parts(&[("authorization", "a"), ("authorization", "b")]);
        assert!(Authorization.extract(&two).is_none());
        assert!(Authorization.extract(&parts(&[("authorization", "a")])).is_some());
        assert!(Anonymous.extract(&parts(&[])).is_some());
    }

    #[test]
    fn a_trusted_header_needs_a_valid_name() {
        assert!(TrustedHeader::new("x user").is_err());
        let header = TrustedHeader::new("X-User").unwrap();
        assert_eq!(header.extract(&parts(&[("x-user", "7")])), Some(Principal::from("7")));
    }
}
