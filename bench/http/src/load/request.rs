//! A request as bytes, made once; only its key changes.

/// The cookie that axum-idempotent's sessions are found by.
pub(crate) const SESSION_COOKIE: &str = "session";

const ORDER: &str = concat!(
    r#"{"order":"0f8fad5b-d9cb-469f-a165-70867728950e","customer":{"id":7,"mail":"a@example.org"},"#,
    r#""lines":[{"article":"A-1","pieces":2,"cents":1250},{"article":"B-7","pieces":1,"cents":4900}],"#,
    r#""currency":"EUR","ship_to":{"street":"Long Lane 1","town":"Riverside","code":"9000"},"#,
    r#""remark":"ring twice"}"#,
);

/// Where keys are written into.
const BLANK: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The bytes of a request.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    keys: Vec<usize>,
}

impl Request {
    /// With neither key nor session.
    pub(crate) fn without_key() -> Self {
        Self::new("")
    }

    /// With a key, and a session of the same name: 22 letters of base64url are what ruts takes for
    /// a session. All sides get both, so that all parse the same.
    pub(crate) fn with_key() -> Self {
        Self::new(&format!("cookie: {SESSION_COOKIE}={BLANK}\r\nidempotency-key: {BLANK}\r\n"))
    }

    fn new(headers: &str) -> Self {
        let length = ORDER.len();
        let bytes = format!(
            "POST /orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{headers}\r\n{ORDER}"
        );
        let keys = bytes.match_indices(BLANK).map(|(at, _)| at).collect();
        Self { bytes: bytes.into_bytes(), keys }
    }

    /// The request with key number `n`. Numbers count up, keys are spread out.
    pub(crate) fn numbered(&mut self, n: u64) -> &[u8] {
        let key = letters(spread_out(n));
        for &at in &self.keys {
            self.bytes[at..at + key.len()].copy_from_slice(&key);
        }
        &self.bytes
    }

    /// What the server has to echo.
    pub(crate) fn body(&self) -> &[u8] {
        ORDER.as_bytes()
    }
}

/// Sixteen letters, four bits each.
fn letters(key: u64) -> [u8; 16] {
    let mut shift = u64::BITS;
    std::array::from_fn(|_| {
        shift -= 4;
        b"0123456789abcdef"[(key >> shift & 0xf) as usize]
    })
}

/// One to one, so that no two numbers share a key.
fn spread_out(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ (n >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_do_not_share_a_key() {
        let keys: HashSet<_> = (0..10_000).map(|n| letters(spread_out(n))).collect();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn a_key_goes_into_the_cookie_and_the_header() {
        let mut request = Request::with_key();
        let text = String::from_utf8(request.numbered(7).to_vec()).unwrap();
        let key = text.split("idempotency-key: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert_eq!(key.len(), BLANK.len());
        assert_ne!(key, BLANK);
        assert!(text.contains(&format!("cookie: session={key}\r\n")));
    }

    #[test]
    fn an_order_has_some_300_bytes() {
        assert!((290..=310).contains(&ORDER.len()), "{}", ORDER.len());
    }
}
