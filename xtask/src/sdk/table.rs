//! What `cargo xtask sdk` prints.

use std::fmt::Write;

use crate::sdk::case::{Case, Way};
use crate::sdk::client::Report;
use crate::sdk::ledger::Entry;

pub(crate) struct Row {
    pub(crate) client: &'static str,
    pub(crate) way: Way,
    pub(crate) case: Case,
    pub(crate) report: Report,
    pub(crate) entry: Entry,
    /// The broken promise, if any.
    pub(crate) wrong: Option<String>,
}

const NOTES: &str = "\
sent: requests of the SDK, retries included; calls: those that reached the upstream.
drop-first: the upstream is called again and finds by the key, which the gateway keeps over attempts,
that the effect is there. In every other case it knows no keys: each call is an effect.
straight: the same without the gateway, which has to show the harm.
";

pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = line(["client", "way", "case", "sent", "calls", "effects", "got", "verdict"]);
    rows.iter().for_each(|row| text.push_str(&row.line()));
    text + NOTES
}

impl Row {
    fn line(&self) -> String {
        let numbers = [
            self.report.sent.to_string(),
            self.entry.calls.to_string(),
            self.entry.ids.len().to_string(),
        ];
        let [sent, calls, effects] = &numbers;
        let verdict = match (&self.wrong, self.way) {
            (Some(wrong), _) => &format!("WRONG: {wrong}"),
            (None, Way::Gateway) => "right",
            (None, Way::Straight) => "harm, as expected",
        };
        let (way, case, got) = (self.way.name(), self.case.name(), self.report.answer());
        line([self.client, way, case, sent, calls, effects, &got, verdict])
    }
}

fn line([client, way, case, sent, calls, effects, got, verdict]: [&str; 8]) -> String {
    let mut line = format!("{client:<7} {way:<9} {case:<11} {sent:>4} {calls:>6} {effects:>8}");
    let _ = writeln!(line, "  {got:<27} {verdict}");
    line
}
