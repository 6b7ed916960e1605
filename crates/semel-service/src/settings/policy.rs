//! The fields of a policy: at the top of semel.toml for every route, in a `[[routes]]` entry for one.

use std::time::Duration;

use clap::{Args, builder::BoolishValueParser};
use semel::{
    Policy,
    http::{KeyFrom, RoutePolicy},
};
use serde::Deserialize;

use super::value::{
    CountValue, DurationValue, JsonPointer, KeptHeader, LostOwnerChoice, MismatchStatus,
    ModeChoice, Preset, ServerErrorsChoice, SizeValue, StoreDownChoice, named,
};

/// The fields of a policy. Those that are left out come from the preset.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "How requests are protected")]
pub(crate) struct PolicyFields {
    /// How long an outcome is kept [default: 24h]
    #[arg(long, env = "SEMEL_RETENTION", value_name = "TIME")]
    pub(super) retention: Option<DurationValue>,
    /// How long a final failure is kept [default: 1h]
    #[arg(long, env = "SEMEL_FAILURE_RETENTION", value_name = "TIME")]
    pub(super) failure_retention: Option<DurationValue>,
    /// How long a lease lasts: the key of an owner that stops renewing it is free after this time [default: 30s]
    #[arg(long, env = "SEMEL_LEASE", value_name = "TIME")]
    pub(super) lease: Option<DurationValue>,
    /// How long a retry waits for a run in progress before it gets 409 [default: 10s]
    #[arg(long, env = "SEMEL_WAIT", value_name = "TIME")]
    pub(super) wait: Option<DurationValue>,
    /// How long a request waits for a store that does not answer before it gets 503 [default: 1s]
    #[arg(long, env = "SEMEL_STORE_TIMEOUT", value_name = "TIME")]
    pub(super) store_timeout: Option<DurationValue>,
    /// Refuse POST, PUT, PATCH and DELETE without an Idempotency-Key [default: false]
    #[arg(
        long,
        env = "SEMEL_REQUIRE_KEY",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new()
    )]
    pub(super) require_key: Option<bool>,
    /// Status when a key was used for another request [default: 409]
    #[arg(long, env = "SEMEL_MISMATCH_STATUS", value_name = "STATUS")]
    pub(super) mismatch_status: Option<MismatchStatus>,
    /// What happens to a key whose owner was lost [default: rerun]
    #[arg(long, env = "SEMEL_ON_LOST_OWNER", value_name = "ACTION")]
    pub(super) on_lost_owner: Option<LostOwnerChoice>,
    /// What the gateway does with keys [default: enforce]
    #[arg(long, env = "SEMEL_MODE", value_name = "MODE")]
    pub(super) mode: Option<ModeChoice>,
    /// Largest body of a request with a key; a larger one gets 413 [default: 1MiB]
    #[arg(long, env = "SEMEL_MAX_BODY", value_name = "SIZE")]
    pub(super) max_body: Option<SizeValue>,
    #[arg(skip)]
    pub(super) preset: Option<Preset>,
    #[arg(skip)]
    pub(super) max_run: Option<DurationValue>,
    #[arg(skip)]
    pub(super) backoff: Option<DurationValue>,
    #[arg(skip)]
    pub(super) max_attempts: Option<CountValue>,
    #[arg(skip)]
    pub(super) store_down: Option<StoreDownChoice>,
    #[arg(skip)]
    pub(super) server_errors: Option<ServerErrorsChoice>,
    #[arg(skip)]
    pub(super) max_response: Option<SizeValue>,
    #[arg(skip)]
    pub(super) read_timeout: Option<DurationValue>,
    #[arg(skip)]
    pub(super) canonical_json: Option<bool>,
    #[arg(skip)]
    pub(super) leave_out: Option<Vec<JsonPointer>>,
    #[arg(skip)]
    pub(super) key_from: Option<JsonPointer>,
    #[arg(skip)]
    pub(super) stream: Option<bool>,
    #[arg(skip)]
    pub(super) keep_headers: Option<Vec<KeptHeader>>,
}

/// Written as a struct literal, so that a new field cannot be forgotten here.
macro_rules! either {
    ($own:expr, $base:expr; $($field:ident)*) => {
        PolicyFields { $($field: $own.$field.clone().or_else(|| $base.$field.clone())),* }
    };
}

impl PolicyFields {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These fields, and those of `base` where they are not set. A `preset` here ignores the retentions of `base`, and
    /// a choice of the comparison here ignores that of `base`.
    pub(super) fn over(&self, base: &Self) -> Self {
        let mut base = base.clone();
        if self.preset.is_some() {
            (base.retention, base.failure_retention) = (None, None);
        }
        if self.canonical_json == Some(false) {
            base.leave_out = None;
        }
        if self.leaves_out() {
            base.canonical_json = None;
        }
        self.or(&base)
    }

    fn or(&self, base: &Self) -> Self {
        either!(self, base; preset retention failure_retention lease max_run backoff wait store_timeout
            max_attempts require_key mode on_lost_owner store_down server_errors mismatch_status max_body
            max_response read_timeout canonical_json leave_out key_from stream keep_headers)
    }

    /// True when fields are left out of the comparison, which needs a comparison as JSON.
    fn leaves_out(&self) -> bool {
        some(&self.leave_out).is_some()
    }

    /// These fields, and those that they imply.
    pub(super) fn spelled_out(&self) -> Self {
        let canonical_json = self.canonical_json.or(self.leaves_out().then_some(true));
        Self { canonical_json, ..self.clone() }
    }

    /// These fields and the defaults: the values in force.
    pub(super) fn with_defaults(&self) -> Self {
        let preset = self.preset.unwrap_or(Preset::Api);
        let terms = preset.policy().terms();
        self.spelled_out().or(&Self {
            preset: Some(preset),
            retention: Some(DurationValue(terms.retention.to_duration())),
            failure_retention: Some(DurationValue(terms.failure_retention.to_duration())),
            lease: Some(DurationValue(Policy::LEASE)),
            max_run: Some(DurationValue(Policy::MAX_RUN)),
            backoff: Some(DurationValue(Policy::BACKOFF)),
            wait: Some(DurationValue(Policy::WAIT)),
            store_timeout: Some(DurationValue(Policy::STORE_TIMEOUT)),
            require_key: Some(false),
            mode: Some(ModeChoice::Enforce),
            on_lost_owner: Some(LostOwnerChoice::Rerun),
            store_down: Some(StoreDownChoice::Refuse),
            server_errors: Some(ServerErrorsChoice::Retry),
            mismatch_status: Some(MismatchStatus::Conflict),
            max_body: Some(SizeValue(RoutePolicy::MAX_REQUEST_BYTES)),
            max_response: Some(SizeValue(RoutePolicy::MAX_RESPONSE_BYTES)),
            read_timeout: Some(DurationValue(RoutePolicy::READ_TIMEOUT)),
            canonical_json: Some(false),
            stream: Some(false),
            ..Self::default()
        })
    }

    /// Each field as it is written, in the order of the docs; `None` where it is left out.
    pub(super) fn rows(&self) -> [(&'static str, Option<String>); 23] {
        fn show<T: ToString>(value: Option<&T>) -> Option<String> {
            value.map(ToString::to_string)
        }
        fn list<T: ToString>(values: Option<&Vec<T>>) -> Option<String> {
            values.map(|it| it.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        [
            ("preset", self.preset.map(named)),
            ("retention", show(self.retention.as_ref())),
            ("failure_retention", show(self.failure_retention.as_ref())),
            ("lease", show(self.lease.as_ref())),
            ("max_run", show(self.max_run.as_ref())),
            ("backoff", show(self.backoff.as_ref())),
            ("wait", show(self.wait.as_ref())),
            ("store_timeout", show(self.store_timeout.as_ref())),
            ("max_attempts", show(self.max_attempts.as_ref())),
            ("require_key", show(self.require_key.as_ref())),
            ("mode", self.mode.map(named)),
            ("on_lost_owner", self.on_lost_owner.map(named)),
            ("store_down", self.store_down.map(named)),
            ("server_errors", self.server_errors.map(named)),
            ("mismatch_status", show(self.mismatch_status.as_ref())),
            ("max_body", show(self.max_body.as_ref())),
            ("max_response", show(self.max_response.as_ref())),
            ("read_timeout", show(self.read_timeout.as_ref())),
            ("canonical_json", show(self.canonical_json.as_ref())),
            ("leave_out", list(self.leave_out.as_ref())),
            ("key_from", show(self.key_from.as_ref())),
            ("stream", show(self.stream.as_ref())),
            ("keep_headers", list(self.keep_headers.as_ref())),
        ]
    }

    /// The policy, or the field that is out of bounds.
    pub(super) fn build(&self) -> Result<RoutePolicy, OutOfBounds> {
        if self.canonical_json == Some(false) && self.leaves_out() {
            let what = "is false, but leave_out compares as JSON; remove one of them";
            return Err(OutOfBounds { field: "canonical_json".to_owned(), what: what.to_owned() });
        }
        let policy = self.http(self.engine().into());
        match policy.check() {
            Ok(()) => Ok(policy),
            Err(error) => Err(self.out_of_bounds(&error.to_string())),
        }
    }

    fn engine(&self) -> Policy {
        let policy = self.preset.unwrap_or(Preset::Api).policy();
        let policy = set(policy, self.retention, |policy, it| policy.retention(it.0));
        let policy =
            set(policy, self.failure_retention, |policy, it| policy.failure_retention(it.0));
        let policy = set(policy, self.lease, |policy, it| policy.lease(it.0));
        let policy = set(policy, self.max_run, |policy, it| policy.max_run(it.0));
        let policy = set(policy, self.backoff, |policy, it| policy.backoff(it.0));
        let policy = set(policy, self.wait, |policy, it| policy.wait(it.0));
        let policy = set(policy, self.store_timeout, |policy, it| policy.store_timeout(it.0));
        let policy = set(policy, self.max_attempts, |policy, it| policy.max_attempts(it.0.get()));
        let policy =
            set(policy, self.on_lost_owner, |policy, it| policy.on_lost_owner(it.on_lost_owner()));
        set(policy, self.store_down, |policy, it| policy.store_down(it.store_down()))
    }

    fn http(&self, policy: RoutePolicy) -> RoutePolicy {
        let policy = set(policy, yes(self.require_key), |policy, ()| policy.require_key());
        let policy = set(policy, self.mode, |policy, it| policy.mode(it.mode()));
        let policy =
            set(policy, self.server_errors, |policy, it| policy.server_errors(it.server_errors()));
        let policy =
            set(policy, self.mismatch_status, |policy, it| policy.mismatch_status(it.code()));
        let policy = set(policy, self.max_body, |policy, it| policy.max_request_bytes(it.0));
        let policy = set(policy, self.max_response, |policy, it| policy.max_response_bytes(it.0));
        let policy = set(policy, self.read_timeout, |policy, it| policy.read_timeout(it.0));
        let policy = set(policy, yes(self.canonical_json), |policy, ()| policy.canonical_json());
        let policy = set(policy, some(&self.leave_out), |policy, it| {
            policy.leave_out(it.iter().map(|pointer| pointer.0.clone()))
        });
        let policy = set(policy, self.key_from.as_ref(), |policy, it| {
            policy.key_from(KeyFrom::json_pointer(it.0.as_str()))
        });
        let policy = set(policy, yes(self.stream), |policy, ()| policy.stream());
        let kept = self.keep_headers.iter().flatten();
        kept.fold(policy, |policy, header| policy.keep_header(header.0.clone()))
    }

    /// Translates an error of the library into the words of semel.toml.
    fn out_of_bounds(&self, error: &str) -> OutOfBounds {
        let what = error.trim_start_matches("route ").trim_start_matches("policy: ");
        let what = what
            .replace("max_request_bytes", "max_body")
            .replace("max_response_bytes", "max_response");
        let (field, what) = what.split_once(' ').unwrap_or_default();
        // `max_run` may not be shorter than the lease. If only the lease is set, the problem belongs to the lease.
        if let ("max_run", None, Some(lease)) = (field, self.max_run, self.lease) {
            let most = DurationValue(Policy::MAX_RUN);
            let what = format!(
                "is {lease}, longer than max_run, which is {most}; use at most {most}, or set max_run in semel.toml"
            );
            return OutOfBounds { field: "lease".to_owned(), what };
        }
        let is_size = matches!(field, "max_body" | "max_response");
        let words = what.split(' ').map(|word| in_own_units(word, is_size));
        OutOfBounds { field: field.to_owned(), what: words.collect::<Vec<_>>().join(" ") }
    }
}

/// A duration or a size as settings write it; other words unchanged.
fn in_own_units(word: &str, is_size: bool) -> String {
    let (value, end) = word.strip_suffix(';').map_or((word, ""), |value| (value, ";"));
    if is_size {
        return value.parse().map_or(word.to_owned(), |bytes| format!("{}{end}", SizeValue(bytes)));
    }
    match as_duration(value) {
        Some(time) => format!("{}{end}", DurationValue(time)),
        None => word.to_owned(),
    }
}

/// A duration as `Debug` writes it.
fn as_duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    let seconds = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "ns" => number / 1e9,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    // Settings have whole milliseconds, so rounding restores the value.
    Some(Duration::from_millis(
        u64::try_from((time + Duration::from_micros(500)).as_millis()).ok()?,
    ))
}

/// A field that is out of bounds. `what` continues the sentence that the name begins.
#[derive(Debug)]
pub(super) struct OutOfBounds {
    pub(super) field: String,
    pub(super) what: String,
}

fn set<P, T>(policy: P, value: Option<T>, change: impl FnOnce(P, T) -> P) -> P {
    match value {
        Some(value) => change(policy, value),
        None => policy,
    }
}

fn yes(value: Option<bool>) -> Option<()> {
    value.unwrap_or_default().then_some(())
}

/// An empty list counts as not set: leaving nothing out does not make the comparison one of JSON.
fn some<T>(list: &Option<Vec<T>>) -> Option<&Vec<T>> {
    list.as_ref().filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fields(text: &str) -> PolicyFields {
        toml::from_str(text).unwrap()
    }

    fn shown(text: &str) -> String {
        format!("{:?}", fields(text).build().unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(shown(""), format!("{:?}", RoutePolicy::api()));
        for (preset, policy) in [
            ("api", RoutePolicy::api()),
            ("financial", RoutePolicy::financial()),
            ("saga", RoutePolicy::saga()),
        ] {
            let fields = fields(&format!("preset = {preset:?}"));
            assert_eq!(format!("{:?}", fields.build().unwrap()), format!("{policy:?}"));
            let full = fields.with_defaults().build().unwrap();
            assert_eq!(format!("{full:?}"), format!("{policy:?}"));
        }
    }

    #[test]
    fn every_field_reaches_the_policy() {
        let hour = Duration::from_secs(3600);
        for (text, policy) in [
            ("retention = '1h'", RoutePolicy::api().retention(hour)),
            ("failure_retention = '2h'", RoutePolicy::api().failure_retention(hour * 2)),
            ("lease = '1s'", RoutePolicy::api().with(|it| it.lease(Duration::from_secs(1)))),
            ("max_run = '1h'", RoutePolicy::api().with(|it| it.max_run(hour))),
            ("backoff = '0s'", RoutePolicy::api().with(|it| it.backoff(Duration::ZERO))),
            ("wait = '0s'", RoutePolicy::api().wait(Duration::ZERO)),
            ("store_timeout = '1h'", RoutePolicy::api().with(|it| it.store_timeout(hour))),
            ("max_attempts = 3", RoutePolicy::api().max_attempts(3)),
            ("require_key = true", RoutePolicy::api().require_key()),
            ("mode = 'observe'", RoutePolicy::api().mode(semel::http::Mode::Observe)),
            ("mode = 'off'", RoutePolicy::api().mode(semel::http::Mode::Off)),
            ("on_lost_owner = 'hold'", RoutePolicy::api().on_lost_owner(semel::OnLostOwner::Hold)),
            ("store_down = 'run'", RoutePolicy::api().store_down(semel::StoreDown::RunUnprotected)),
            (
                "server_errors = 'final'",
                RoutePolicy::api().server_errors(semel::http::ServerErrors::Final),
            ),
            (
                "mismatch_status = 422",
                RoutePolicy::api().mismatch_status(http::StatusCode::UNPROCESSABLE_ENTITY),
            ),
            ("max_body = '64KiB'", RoutePolicy::api().max_request_bytes(65_536)),
            ("max_response = 65536", RoutePolicy::api().max_response_bytes(65_536)),
            ("read_timeout = '1h'", RoutePolicy::api().read_timeout(hour)),
            ("canonical_json = true", RoutePolicy::api().canonical_json()),
            ("leave_out = ['/a']", RoutePolicy::api().leave_out(["/a"])),
            ("key_from = '/a'", RoutePolicy::api().key_from(KeyFrom::json_pointer("/a"))),
            ("stream = true", RoutePolicy::api().stream()),
            (
                "keep_headers = ['x-a']",
                RoutePolicy::api().keep_header(http::HeaderName::from_static("x-a")),
            ),
        ] {
            assert_eq!(shown(text), format!("{policy:?}"), "{text}");
            assert_ne!(shown(text), shown(""), "{text}");
        }
    }

    #[test]
    fn every_field_is_shown() {
        let names = PolicyFields::default().rows().map(|(name, _)| name);
        for field in crate::settings::field_names::fields_of::<PolicyFields>() {
            assert!(names.contains(field), "{field}");
        }
    }

    #[test]
    fn a_route_overrides_field_by_field() {
        let global =
            fields("lease = '5s'\nrequire_key = true\nleave_out = ['/a']\nretention = '2h'");
        let route = fields("require_key = false\nleave_out = ['/b']\nwait = '1s'").over(&global);
        let same = "lease = '5s'\nleave_out = ['/b']\nretention = '2h'\nwait = '1s'";
        assert_eq!(format!("{:?}", route.build().unwrap()), shown(same));
    }

    #[test]
    fn a_preset_of_its_own_restarts_what_is_kept_and_nothing_else() {
        let global = fields("lease = '5s'\nretention = '2h'\nfailure_retention = '1h'");
        let route = fields("preset = 'financial'").over(&global);
        let same = "preset = 'financial'\nlease = '5s'";
        assert_eq!(format!("{:?}", route.build().unwrap()), shown(same));
        let route = fields("preset = 'financial'\nretention = '3h'").over(&global);
        assert_eq!(route.retention, Some("3h".parse().unwrap()));
        assert_eq!(route.failure_retention, None);
    }

    #[test]
    fn a_comparison_of_its_own_restarts_the_comparison() {
        let json = fields("leave_out = ['/a']");
        assert_eq!(json.with_defaults().canonical_json, Some(true));
        let bytes = fields("canonical_json = false");
        assert_eq!(format!("{:?}", bytes.over(&json).build().unwrap()), shown(""));
        let same = shown("leave_out = ['/a']");
        assert_eq!(format!("{:?}", json.over(&bytes).build().unwrap()), same);
        let both = fields("leave_out = ['/a']\ncanonical_json = false").build().unwrap_err();
        assert_eq!(both.field, "canonical_json", "{}", both.what);
    }

    #[test]
    fn a_field_out_of_bounds_is_named_as_in_the_file() {
        for (text, field) in [
            ("retention = '0s'", "retention"),
            ("failure_retention = '9999d'", "failure_retention"),
            ("lease = '1ms'", "lease"),
            ("lease = '20m'", "lease"),
            ("lease = '20m'\nmax_run = '10m'", "max_run"),
            ("wait = '2h'", "wait"),
            ("store_timeout = '0s'", "store_timeout"),
            ("backoff = '2h'", "backoff"),
            ("max_body = 0", "max_body"),
            ("max_body = '1GiB'", "max_body"),
            ("max_response = '0'", "max_response"),
            ("read_timeout = '0s'", "read_timeout"),
        ] {
            let bad = fields(text).build().unwrap_err();
            assert_eq!(bad.field, field, "{text}: {}", bad.what);
            assert!(!bad.what.contains("policy"), "{}", bad.what);
        }
    }
}
