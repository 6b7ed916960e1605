//! Reads the bearer token of a request (RFC 6750).

use http::{HeaderMap, header::AUTHORIZATION};

/// The token of the one `Authorization` header, or why there is none. Two headers would let a client choose
/// which of them counts.
///
/// # Errors
///
/// Why the request carries no bearer token. The text has nothing of the header in it.
pub fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or("no authorization header")?;
    if values.next().is_some() {
        return Err("two authorization headers");
    }
    let value = value.to_str().map_err(|_| "the authorization header is no text")?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    match token.trim_matches(' ') {
        token if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Ok(token),
        _ => Err("no bearer token"),
    }
}
