//! A response, as the client received it.

/// A response, and whether all of it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ClientResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// False when the connection ended before the body did.
    pub(crate) whole: bool,
}

impl ClientResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The name of the problem, for a response of semel itself.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.header("semel-status")
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Asserts that this is the upstream's whole response to a run, and no replay.
    #[track_caller]
    pub(crate) fn assert_ran(&self, text: &str) {
        assert_eq!((self.status, self.text().as_str()), (200, text), "{self:?}");
        assert!(self.whole && !self.is_replay(), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn assert_replay(&self, text: &str) {
        assert_eq!((self.status, self.text().as_str()), (200, text), "{self:?}");
        assert!(self.whole && self.is_replay(), "{self:?}");
    }

    /// Asserts that this is a problem of semel, and that its body has the same status and name.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, name: &str) {
        assert_eq!((self.status, self.problem()), (status, Some(name)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], status, "{problem}");
        let kind = problem["type"].as_str().unwrap_or_default();
        assert!(kind.ends_with(name), "{problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    }
}
