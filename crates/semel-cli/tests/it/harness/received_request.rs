//! A request, as the upstream received it.

use super::http1::MessageHead;

/// The part of a request that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Its number, from 1, in the order in which heads arrived.
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// False while its body is not complete.
    pub(crate) whole: bool,
}

impl ReceivedRequest {
    pub(super) fn new(number: usize, head: &MessageHead) -> Self {
        let mut words = head.line.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (method, target) = (word(), word());
        let headers = head.headers.clone();
        let (body, trailers) = Default::default();
        Self { number, method, target, headers, body, trailers, whole: false }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.header("idempotency-key")
    }

    pub(crate) fn attempt(&self) -> Option<&str> {
        self.header("semel-attempt")
    }
}
