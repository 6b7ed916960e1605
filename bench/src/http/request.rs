//! A request as bytes. It is built once, and only its key changes.

/// The placeholder for keys.
pub const BLANK: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The bytes of a request, and of the expected answer.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    bytes: Vec<u8>,
    keys: Vec<usize>,
    answer: Vec<u8>,
}

impl LoadRequest {
    /// `GET path`.
    pub fn get(path: &str, answer: &str) -> Self {
        Self::new(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"), answer)
    }

    /// `POST path` with JSON and further header lines. Each [`BLANK`] in these is filled with a key.
    pub fn post(path: &str, headers: &str, body: &str, answer: &str) -> Self {
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{headers}\r\n{body}"
        );
        Self::new(&text, answer)
    }

    fn new(text: &str, answer: &str) -> Self {
        let keys = text.match_indices(BLANK).map(|(at, _)| at).collect();
        Self { bytes: text.into(), keys, answer: answer.into() }
    }

    /// The request with key number `n`. Consecutive numbers give very different keys.
    pub fn numbered(&mut self, n: u64) -> &[u8] {
        let key = letters(spread_out(n));
        for &at in &self.keys {
            self.bytes[at..at + key.len()].copy_from_slice(&key);
        }
        &self.bytes
    }

    /// The expected body.
    pub fn answer(&self) -> &[u8] {
        &self.answer
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

/// A bijection, so that no two numbers share a key.
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
    fn a_key_goes_into_every_blank() {
        let headers = format!("cookie: session={BLANK}\r\nidempotency-key: {BLANK}\r\n");
        let mut request = LoadRequest::post("/orders", &headers, "{}", "{}");
        let text = String::from_utf8(request.numbered(7).to_vec()).unwrap();
        let key = text.split("idempotency-key: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert_eq!(key.len(), BLANK.len());
        assert_ne!(key, BLANK);
        assert!(text.contains(&format!("cookie: session={key}\r\n")));
    }
}
