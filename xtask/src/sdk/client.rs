//! Runs the script of one SDK, and compares its report with what the upstream did.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use semel_servers::command;
use serde::Deserialize;

use crate::sdk::case::{Destination, SdkCase};
use crate::sdk::table::CaseRow;
use crate::sdk::upstream::ChargeUpstream;

/// Long enough for every case; an SDK that runs longer retries for ever.
const BOUND: Duration = Duration::from_secs(60);

/// An installed SDK.
#[derive(Debug)]
pub(crate) struct SdkClient {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) script: PathBuf,
}

/// One run of a client against one destination.
#[derive(Debug)]
pub(crate) struct SdkRun<'a> {
    pub(crate) client: &'a SdkClient,
    pub(crate) destination: Destination,
    pub(crate) address: SocketAddr,
    /// The folder for its output.
    pub(crate) folder: &'a Path,
}

/// What the script printed about one case.
#[derive(Debug, Deserialize)]
pub(crate) struct CaseReport {
    case: String,
    /// The ids of the objects that the calls returned.
    pub(crate) ids: Vec<String>,
    /// How many of them were replayed.
    pub(crate) replayed: u32,
    /// Requests that the SDK sent, retries included.
    pub(crate) sent: u32,
    error: Option<SdkError>,
}

/// The exception that the SDK raised.
#[derive(Debug, Deserialize)]
struct SdkError {
    name: String,
    status: Option<u16>,
    code: Option<String>,
}

impl SdkRun<'_> {
    /// Runs the script, and returns a row for each case.
    pub(crate) fn run(&self, upstream: &ChargeUpstream) -> Result<Vec<CaseRow>> {
        let name = self.client.name;
        let output = self.folder.join(self.caller());
        let mut script = self.script();
        command::run_within(script.stdout(File::create(&output)?), BOUND)
            .with_context(|| format!("the {name} client"))?;
        let text = fs::read_to_string(output)?;
        let reports: Vec<CaseReport> =
            text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let cases = self.destination.cases();
        ensure!(reports.len() == cases.len(), "the {name} client reported too few cases: {text}");
        Ok(cases
            .iter()
            .zip(reports)
            .map(|(case, report)| self.row(*case, report, upstream))
            .collect())
    }

    fn script(&self) -> Command {
        let mut script = Command::new(&self.client.program);
        script
            .arg(&self.client.script)
            .arg(format!("http://{}", self.address))
            .arg(self.caller())
            .args(self.destination.cases().iter().map(|case| case.name()))
            .env("NO_PROXY", "127.0.0.1");
        script
    }

    /// The name of the caller. Each run has another, because all run at the same time.
    fn caller(&self) -> String {
        format!("{}-{}", self.client.name, self.destination.name())
    }

    fn row(&self, case: SdkCase, report: CaseReport, upstream: &ChargeUpstream) -> CaseRow {
        let record = upstream.record(&format!("{}-{}", self.caller(), case.name()));
        let violation = if report.case == case.name() {
            case.violation(self.destination, &report, &record)
        } else {
            Some(format!("the report is about case {}", report.case))
        };
        CaseRow {
            client: self.client.name,
            destination: self.destination,
            case,
            report,
            record,
            violation,
        }
    }
}

impl CaseReport {
    pub(crate) fn is_refused(&self, status: u16, code: &str) -> bool {
        self.error.as_ref().is_some_and(|error| {
            error.status == Some(status) && error.code.as_deref() == Some(code)
        })
    }

    /// True when `count` objects came back and each is the one in `ids`.
    pub(crate) fn all_are(&self, ids: &[String], count: usize) -> bool {
        self.ids.len() == count && self.ids.iter().all(|id| [id.clone()] == *ids)
    }

    /// What the caller got: an error, or ids.
    pub(crate) fn answer(&self) -> String {
        match &self.error {
            Some(SdkError { name, status: Some(status), .. }) => format!("{name} {status}"),
            Some(SdkError { name, status: None, .. }) => name.clone(),
            None => self.ids.join(" "),
        }
    }
}
