//! The table that `cargo xtask sdk` prints.

use std::fmt::Write;

use crate::sdk::case::{Destination, SdkCase};
use crate::sdk::client::CaseReport;
use crate::sdk::orders::OrderRecord;

pub(crate) struct CaseRow {
    pub(crate) client: &'static str,
    pub(crate) destination: Destination,
    pub(crate) case: SdkCase,
    pub(crate) report: CaseReport,
    pub(crate) record: OrderRecord,
    /// The broken promise, if any.
    pub(crate) violation: Option<String>,
}

const NOTES: &str = "\
sent: requests of the SDK, retries included. calls: requests that reached the upstream.
drop-first: the gateway calls the upstream again with the same key, and the upstream finds the effect by it.
In all other cases the upstream ignores keys: each call is an effect.
direct: the same calls without the gateway. These must show more than one effect.
";

pub(crate) fn text(rows: &[CaseRow]) -> String {
    let mut text =
        line(["client", "destination", "case", "sent", "calls", "effects", "got", "verdict"]);
    rows.iter().for_each(|row| text.push_str(&row.line()));
    text + NOTES
}

impl CaseRow {
    fn line(&self) -> String {
        let numbers = [
            self.report.sent.to_string(),
            self.record.calls.to_string(),
            self.record.ids.len().to_string(),
        ];
        let [sent, calls, effects] = &numbers;
        let verdict = match (&self.violation, self.destination) {
            (Some(violation), _) => &format!("WRONG: {violation}"),
            (None, Destination::Gateway) => "right",
            (None, Destination::Upstream) => "harm, as expected",
        };
        let (destination, case, got) =
            (self.destination.name(), self.case.name(), self.report.answer());
        line([self.client, destination, case, sent, calls, effects, &got, verdict])
    }
}

fn line([client, destination, case, sent, calls, effects, got, verdict]: [&str; 8]) -> String {
    let mut line =
        format!("{client:<7} {destination:<11} {case:<11} {sent:>4} {calls:>6} {effects:>8}");
    let _ = writeln!(line, "  {got:<27} {verdict}");
    line
}
