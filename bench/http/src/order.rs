//! The request that all sides get.

use semel_bench::http::{BLANK, LoadRequest};

/// The cookie that names a session of axum-idempotent.
pub(crate) const SESSION_COOKIE: &str = "session";

const ORDER: &str = concat!(
    r#"{"order":"0f8fad5b-d9cb-469f-a165-70867728950e","customer":{"id":7,"mail":"a@example.org"},"#,
    r#""lines":[{"article":"A-1","pieces":2,"cents":1250},{"article":"B-7","pieces":1,"cents":4900}],"#,
    r#""currency":"EUR","ship_to":{"street":"Long Lane 1","town":"Riverside","code":"9000"},"#,
    r#""remark":"ring twice"}"#,
);

/// A request without key and session. The server echoes the order.
pub(crate) fn without_key() -> LoadRequest {
    LoadRequest::post("/orders", "", ORDER, ORDER)
}

/// A request with a key, and a session of the same name: ruts takes 22 letters of base64url for a session. All sides
/// get both, so that all parse the same.
pub(crate) fn with_key() -> LoadRequest {
    let headers = format!("cookie: {SESSION_COOKIE}={BLANK}\r\nidempotency-key: {BLANK}\r\n");
    LoadRequest::post("/orders", &headers, ORDER, ORDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_some_300_bytes() {
        assert!((290..=310).contains(&ORDER.len()), "{}", ORDER.len());
    }
}
