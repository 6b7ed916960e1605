//! The cases that every SDK goes through, and the result that each must have.

use crate::sdk::client::CaseReport;
use crate::sdk::orders::OrderRecord;

/// Where a client sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Gateway,
    Upstream,
}

impl Destination {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Upstream => "direct",
        }
    }

    /// Sent directly are the cases in which only the gateway prevents a second effect.
    pub(crate) fn cases(self) -> &'static [SdkCase] {
        match self {
            Self::Gateway => &GATEWAY,
            Self::Upstream => &DIRECT,
        }
    }
}

/// One case. Scripts and upstream know it by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SdkCase {
    /// Nothing goes wrong.
    Plain,
    /// The first attempt is answered with 503, before any effect.
    FailFirst,
    /// The first attempt takes effect, then the connection closes without an answer.
    DropFirst,
    /// The effect is there at once, the answer after the client's timeout.
    Slow,
    /// One key for two different charges.
    Mismatch,
    /// One key for two equal calls at once.
    Concurrent,
}

use SdkCase::{Concurrent, DropFirst, FailFirst, Mismatch, Plain, Slow};

const GATEWAY: [SdkCase; 6] = [Plain, FailFirst, DropFirst, Slow, Mismatch, Concurrent];
const DIRECT: [SdkCase; 3] = [Slow, Mismatch, Concurrent];

impl SdkCase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Plain => "plain",
            FailFirst => "fail-first",
            DropFirst => "drop-first",
            Slow => "slow",
            Mismatch => "mismatch",
            Concurrent => "concurrent",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        GATEWAY.into_iter().find(|case| case.name() == name)
    }

    /// The first broken promise, if any.
    pub(crate) fn violation(
        self,
        destination: Destination,
        report: &CaseReport,
        record: &OrderRecord,
    ) -> Option<String> {
        let checks = match destination {
            Destination::Gateway => self.through_the_gateway(report, record),
            // The control group: without the gateway there must be harm.
            Destination::Upstream => vec![(record.ids.len() >= 2, "two effects or more")],
        };
        let broken = checks.into_iter().find(|(holds, _)| !holds);
        broken.map(|(_, promise)| format!("expected {promise}"))
    }

    fn through_the_gateway(
        self,
        report: &CaseReport,
        record: &OrderRecord,
    ) -> Vec<(bool, &'static str)> {
        let (calls, sent) = (record.calls, report.sent);
        let mut checks = vec![
            (record.ids.len() == 1, "one effect"),
            (record.keys.len() == 1, "one key at the upstream"),
        ];
        checks.extend(match self {
            Plain => [(calls == 1, "one call"), (sent == 1, "one request")],
            FailFirst | DropFirst => [(calls == 2, "two calls"), (sent == 2, "two requests")],
            // The number of retries depends on timing. A single request would mean that the client did not time out.
            Slow => [(calls == 1, "one call"), (sent >= 2, "a retry")],
            Mismatch | Concurrent => [(calls == 1, "one call"), (sent == 2, "two requests")],
        });
        checks.extend(match self {
            Plain | FailFirst | DropFirst => [
                (report.ids == record.ids, "the object that was made"),
                (report.replayed == 0, "no replay"),
            ],
            Slow => [
                (report.ids == record.ids, "the object that was made"),
                (report.replayed == 1, "a replay"),
            ],
            Mismatch => [
                (report.is_refused(409, "fingerprint_mismatch"), "409 fingerprint_mismatch"),
                (report.replayed == 0, "no replay"),
            ],
            Concurrent => [
                (report.all_are(&record.ids, 2), "the same object twice"),
                (report.replayed == 1, "one replay"),
            ],
        });
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> CaseReport {
        serde_json::from_str(json).unwrap()
    }

    fn record(calls: u32, ids: &[&str]) -> OrderRecord {
        let ids = ids.iter().map(|&id| id.to_owned()).collect();
        OrderRecord { calls, ids, keys: [("k".to_owned(), None)].into() }
    }

    #[test]
    fn a_second_effect_is_wrong_through_the_gateway_and_expected_without_it() {
        let report = report(r#"{"case":"slow","ids":["ch_1"],"replayed":1,"sent":2,"error":null}"#);
        let (one, two) = (record(1, &["ch_1"]), record(2, &["ch_1", "ch_2"]));
        assert_eq!(Slow.violation(Destination::Gateway, &report, &one), None);
        assert!(Slow.violation(Destination::Gateway, &report, &two).is_some());
        assert!(Slow.violation(Destination::Upstream, &report, &one).is_some());
        assert_eq!(Slow.violation(Destination::Upstream, &report, &two), None);
    }

    #[test]
    fn a_client_that_did_not_time_out_is_wrong() {
        let report = report(r#"{"case":"slow","ids":["ch_1"],"replayed":0,"sent":1,"error":null}"#);
        let violation = Slow.violation(Destination::Gateway, &report, &record(1, &["ch_1"]));
        assert_eq!(violation.as_deref(), Some("expected a retry"));
    }

    #[test]
    fn a_mismatch_has_to_be_refused_without_retries() {
        let refused = r#""error":{"name":"E","status":409,"code":"fingerprint_mismatch"}}"#;
        let violation = |sent| {
            let json =
                format!(r#"{{"case":"mismatch","ids":[],"replayed":0,"sent":{sent},{refused}"#);
            Mismatch.violation(Destination::Gateway, &report(&json), &record(1, &["ch_1"]))
        };
        assert_eq!(violation(2), None);
        assert_eq!(violation(4).as_deref(), Some("expected two requests"));
    }
}
