//! The policy of a route: the engine's policy and what HTTP adds.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use semel_core::{Error, OnLostOwner, Policy, Result, StoreDown};

use crate::{KeyFrom, Mode, canonical::Pointer, header};

/// What a 5xx answer of the handler means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerErrors {
    /// The attempt failed: nothing is recorded, and a retry runs again. On a hold route, where a retry cannot
    /// run again, every answer is final.
    #[default]
    Retry,
    /// The answer is recorded and replayed like any other.
    Final,
}

/// How one route is protected. Start from a preset and change what differs.
///
/// ```
/// use semel_core::OnLostOwner;
/// use semel_http::RoutePolicy;
/// let refunds = RoutePolicy::financial().require_key().on_lost_owner(OnLostOwner::Hold);
/// # let _ = refunds;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RoutePolicy {
    pub(crate) policy: Policy,
    pub(crate) mode: Mode,
    pub(crate) require_key: bool,
    pub(crate) mismatch_status: StatusCode,
    pub(crate) key_from: Option<KeyFrom>,
    pub(crate) body: BodyFingerprint,
    pub(crate) server_errors: ServerErrors,
    pub(crate) stream: bool,
    pub(crate) keep_headers: Vec<HeaderName>,
    pub(crate) compare_headers: Vec<HeaderName>,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_response_bytes: usize,
    pub(crate) read_timeout: Duration,
    left_out: Vec<String>,
}

/// How a body enters the fingerprint.
#[derive(Clone, Debug)]
pub(crate) enum BodyFingerprint {
    Raw,
    Json(Vec<Pointer>),
}

impl RoutePolicy {
    /// The largest request body that is read.
    pub const MAX_REQUEST_BYTES: usize = 1024 * 1024;
    /// The largest answer whose body is kept for replays; larger ones pass through.
    pub const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
    /// How long a request body may take to arrive.
    pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

    /// [`Policy::api`]: kept 24 h, failures 1 h. The default.
    pub fn api() -> Self {
        Policy::api().into()
    }

    /// [`Policy::financial`]: kept 30 days, failures 7 days.
    pub fn financial() -> Self {
        Policy::financial().into()
    }

    /// [`Policy::saga`]: kept 7 days, failures 24 h.
    pub fn saga() -> Self {
        Policy::saga().into()
    }

    /// Refuses a request without a key with 400. By default such a request passes through unprotected.
    pub fn require_key(self) -> Self {
        Self { require_key: true, ..self }
    }

    /// What the layer does here, unless [`Modes`](crate::Modes) says otherwise.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The status if a key was used for another request: 409, or 422 as in the draft standard.
    pub fn mismatch_status(self, mismatch_status: StatusCode) -> Self {
        Self { mismatch_status, ..self }
    }

    /// Where the key is if the client sends no header. The body is then read before the layer knows whether
    /// there is a key.
    pub fn key_from(self, key_from: KeyFrom) -> Self {
        Self { key_from: Some(key_from), ..self }
    }

    /// Compares bodies as JSON: order of fields and white space do not matter, numbers are compared as text. A
    /// body that is not JSON is compared byte by byte.
    pub fn canonical_json(mut self) -> Self {
        if let BodyFingerprint::Raw = self.body {
            self.body = BodyFingerprint::Json(Vec::new());
        }
        self
    }

    /// Leaves the fields that these JSON pointers name out of the comparison, such as `/sent_at`.
    pub fn leave_out<P: Into<String>>(self, pointers: impl IntoIterator<Item = P>) -> Self {
        let mut policy = self.canonical_json();
        policy.left_out.extend(pointers.into_iter().map(Into::into));
        policy
    }

    /// Makes one more header part of the fingerprint: the same key with another value of it is a mismatch. For
    /// headers that the handler acts on, such as a tenant.
    pub fn compare_header(mut self, name: HeaderName) -> Self {
        self.compare_headers.push(name);
        self
    }

    /// What a 5xx answer means.
    pub fn server_errors(self, server_errors: ServerErrors) -> Self {
        Self { server_errors, ..self }
    }

    /// Relays answers as they come, and records them without their body. Answers whose media type is a stream,
    /// such as server-sent events, are always relayed.
    pub fn stream(self) -> Self {
        Self { stream: true, ..self }
    }

    /// Keeps one more header for replays.
    pub fn keep_header(mut self, name: HeaderName) -> Self {
        self.keep_headers.push(name);
        self
    }

    /// A larger request body is refused with 413.
    pub fn max_request_bytes(self, max_request_bytes: usize) -> Self {
        Self { max_request_bytes, ..self }
    }

    /// A larger answer passes through and is recorded without its body.
    pub fn max_response_bytes(self, max_response_bytes: usize) -> Self {
        Self { max_response_bytes, ..self }
    }

    /// How long a request body may take to arrive.
    pub fn read_timeout(self, read_timeout: Duration) -> Self {
        Self { read_timeout, ..self }
    }

    /// See [`Policy::on_lost_owner`].
    pub fn on_lost_owner(self, on_lost_owner: OnLostOwner) -> Self {
        self.with(|policy| policy.on_lost_owner(on_lost_owner))
    }

    /// See [`Policy::store_down`]: refuse with 503, or run unprotected.
    pub fn store_down(self, store_down: StoreDown) -> Self {
        self.with(|policy| policy.store_down(store_down))
    }

    /// See [`Policy::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|policy| policy.wait(wait))
    }

    /// See [`Policy::retention`].
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|policy| policy.retention(retention))
    }

    /// See [`Policy::failure_retention`].
    pub fn failure_retention(self, failure_retention: Duration) -> Self {
        self.with(|policy| policy.failure_retention(failure_retention))
    }

    /// See [`Policy::max_attempts`].
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with(|policy| policy.max_attempts(max_attempts))
    }

    /// Changes the engine's policy in any other way. Its `max_outcome_bytes` follows from
    /// [`max_response_bytes`](RoutePolicy::max_response_bytes).
    pub fn with(self, change: impl FnOnce(Policy) -> Policy) -> Self {
        Self { policy: change(self.policy), ..self }
    }

    /// Checks that every setting is within its bounds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) with the setting and what it may be.
    ///
    /// ```
    /// use semel_http::RoutePolicy;
    /// assert!(RoutePolicy::api().check().is_ok());
    /// assert!(RoutePolicy::api().max_request_bytes(0).check().is_err());
    /// ```
    pub fn check(&self) -> Result<()> {
        self.clone().checked().map(drop)
    }

    /// True when a 5xx answer is recorded.
    pub(crate) fn keeps_server_errors(&self) -> bool {
        self.server_errors == ServerErrors::Final || self.holds()
    }

    /// True if an attempt whose effect cannot be known leaves its key Unknown.
    pub(crate) fn holds(&self) -> bool {
        self.policy.terms().on_lost_owner == OnLostOwner::Hold
    }

    /// The policy ready for use, or an error that names the setting that is out of bounds.
    pub(crate) fn checked(mut self) -> Result<Self> {
        /// Capacity for status and headers beside the body.
        const HEAD: usize = 64 * 1024;
        let bounds = 1..=Policy::MAX_OUTCOME_LIMIT - HEAD;
        for (name, bytes) in [
            ("max_request_bytes", self.max_request_bytes),
            ("max_response_bytes", self.max_response_bytes),
        ] {
            if !bounds.contains(&bytes) {
                let (min, max) = (bounds.start(), bounds.end());
                return Err(Error::invalid(format!(
                    "route policy: {name} is {bytes}; it must be from {min} to {max}"
                )));
            }
        }
        if self.read_timeout.is_zero() {
            return Err(Error::invalid("route policy: read_timeout is zero; no body could arrive"));
        }
        if !self.mismatch_status.is_client_error() {
            return Err(Error::invalid(format!(
                "route policy: mismatch_status is {}; it must be a 4xx, such as 409 or 422",
                self.mismatch_status.as_u16()
            )));
        }
        if let Some(name) = self.keep_headers.iter().find(|name| header::is_forbidden(name)) {
            return Err(Error::invalid(format!(
                "route policy: keep_header {name}: only the first answer may have this header"
            )));
        }
        if let Some(key_from) = &self.key_from {
            key_from.check()?;
        }
        if let BodyFingerprint::Json(pointers) = &mut self.body {
            *pointers = self.left_out.iter().map(|it| Pointer::parse(it)).collect::<Result<_>>()?;
        }
        self.policy = self.policy.max_outcome_bytes(self.max_response_bytes + HEAD);
        self.policy.check()?;
        Ok(self)
    }
}

impl From<Policy> for RoutePolicy {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            mode: Mode::Enforce,
            require_key: false,
            mismatch_status: StatusCode::CONFLICT,
            key_from: None,
            body: BodyFingerprint::Raw,
            server_errors: ServerErrors::Retry,
            stream: false,
            keep_headers: Vec::new(),
            compare_headers: Vec::new(),
            max_request_bytes: Self::MAX_REQUEST_BYTES,
            max_response_bytes: Self::MAX_RESPONSE_BYTES,
            read_timeout: Self::READ_TIMEOUT,
            left_out: Vec::new(),
        }
    }
}

impl Default for RoutePolicy {
    fn default() -> Self {
        Self::api()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_setting_is_named() {
        let api = RoutePolicy::api;
        for (word, policy) in [
            ("max_request_bytes", api().max_request_bytes(0)),
            ("max_response_bytes", api().max_response_bytes(usize::MAX)),
            ("read_timeout", api().read_timeout(Duration::ZERO)),
            ("mismatch_status", api().mismatch_status(StatusCode::OK)),
            ("set-cookie", api().keep_header(http::header::SET_COOKIE)),
            ("sent_at", api().leave_out(["sent_at"])),
            ("retention", api().retention(Duration::ZERO)),
        ] {
            let error = policy.checked().unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
        assert!(api().checked().is_ok());
    }

    #[test]
    fn defaults_are_the_published_ones() {
        let policy = RoutePolicy::default();
        assert_eq!(policy.max_request_bytes, 1 << 20);
        assert_eq!(policy.max_response_bytes, 1 << 20);
        assert_eq!(policy.read_timeout, Duration::from_secs(30));
        assert_eq!(policy.mismatch_status, StatusCode::CONFLICT);
        assert!(!policy.require_key && policy.mode == Mode::Enforce);
    }
}
