//! `semel doctor`: checks a store, and the source and the dead letters of a worker, and lists what was checked, what is
//! wrong, and the fix.

mod checks;
mod seals;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args};
use semel::{Finding, Level};
use semel_service::{
    settings::{self, DoctorConfig, DoctorFlags, EventsConfig, StoreConfig},
    telemetry,
};
use semel_worker::{
    examine::{self, ExaminedPart},
    open,
};
use serde_json::{Value, json};

use crate::{
    show,
    store_command::{exit_code, refuse_absent},
};

#[derive(Args, Debug)]
pub(crate) struct DoctorCommand {
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: DoctorFlags,
}

/// What was found.
#[derive(Debug)]
struct DoctorReport {
    store: Vec<Finding>,
    source: Option<ExaminedPart>,
    dead_letters: Option<ExaminedPart>,
}

impl DoctorCommand {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        let config = match settings::load_doctor(matches) {
            Ok(config) => config,
            Err(bad) => return crate::refuse(&bad),
        };
        let problems = config
            .events
            .as_ref()
            .map(|it| open::check_each(it.source.as_ref(), it.dead_letters.as_ref()));
        if let Some(problems) = problems.filter(|problems| !problems.is_empty()) {
            problems.iter().for_each(|problem| crate::complain(format_args!("error: {problem}")));
            return ExitCode::from(crate::USAGE);
        }
        let _logs = telemetry::warnings();
        // Boxed: the future is large, and main's future would hold it.
        exit_code(Box::pin(self.examine(config)).await)
    }

    async fn examine(&self, config: DoctorConfig) -> Result<ExitCode> {
        let DoctorConfig { store, events } = config;
        let report = DoctorReport {
            store: examine_store(&store, events.as_ref()).await?,
            source: match &events {
                Some(events) => examine::source(events).await,
                None => None,
            },
            dead_letters: match &events {
                Some(events) => examine::dead_letters(events).await,
                None => None,
            },
        };
        let worst = report.worst();
        let printed = crate::print(&match self.json {
            true => show::line(&report.in_json(&store)),
            false => report.in_text(&store) + report.conclusion(),
        });
        Ok(if worst == Level::Bad { ExitCode::FAILURE } else { printed })
    }
}

/// A worker that starts for the first time has no folder for its store yet.
async fn examine_store(
    config: &StoreConfig,
    events: Option<&EventsConfig>,
) -> Result<Vec<Finding>> {
    match (refuse_absent(config), events) {
        (Ok(()), _) => Ok(checks::run(config).await),
        (Err(error), None) => Err(error),
        (Err(error), Some(_)) => {
            let error = error.to_string();
            let (what, fix) = error.split_once("; ").unwrap_or((&error, ""));
            let fix = match config.url.is_volatile() {
                true => fix.to_owned(),
                false => format!("the first start of a worker makes one; or {fix}"),
            };
            Ok(vec![Finding::warning(format!("not checked: {what}"), fix)])
        }
    }
}

impl DoctorReport {
    /// The findings about what a worker uses beside the store, with their place in the report.
    fn parts(&self) -> impl Iterator<Item = (&'static str, &ExaminedPart)> {
        let source = self.source.as_ref().map(|part| ("source", part));
        source.into_iter().chain(self.dead_letters.as_ref().map(|part| ("dead_letters", part)))
    }

    fn worst(&self) -> Level {
        let parts = self.parts().flat_map(|(_, part)| &part.findings);
        worst(self.store.iter().chain(parts))
    }

    fn in_text(&self, config: &StoreConfig) -> String {
        let store = format!("{}\n\n{}", config.url, in_text(&self.store));
        let parts = self.parts().map(|(place, part)| {
            let title = place.replace('_', " ");
            let name = part.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
            format!("\n{title}{}\n\n{}", show::plain(&name), in_text(&part.findings))
        });
        store + &parts.collect::<String>()
    }

    fn in_json(&self, config: &StoreConfig) -> Value {
        let mut report = json!({
            "store": config.url.to_string(),
            "worst": word(self.worst()),
            "findings": in_json(&self.store),
        });
        for (place, part) in self.parts() {
            report[place] = json!({"findings": in_json(&part.findings)});
            if let Some(name) = &part.name {
                report[place]["name"] = name.as_str().into();
            }
        }
        report
    }

    fn conclusion(&self) -> &'static str {
        match (self.worst(), worst(&self.store)) {
            (Level::Good, _) => "\nall is well\n",
            (Level::Warning, _) if self.parts().next().is_none() => {
                "\nthe store works; see the warnings\n"
            }
            (Level::Warning, _) => "\nit works; see the warnings\n",
            (Level::Bad, Level::Bad) => {
                "\nthe store cannot keep the promise; fix every finding marked BAD\n"
            }
            (Level::Bad, _) => {
                "\nthe worker cannot keep the promise; fix every finding marked BAD\n"
            }
        }
    }
}

fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Level {
    findings.into_iter().map(|it| it.level).max().unwrap_or(Level::Good)
}

fn in_text(findings: &[Finding]) -> String {
    findings.iter().map(one_in_text).collect()
}

fn in_json(findings: &[Finding]) -> Vec<Value> {
    let one = |it: &Finding| json!({"level": word(it.level), "what": it.what, "fix": it.fix});
    findings.iter().map(one).collect()
}

fn one_in_text(finding: &Finding) -> String {
    let fix = finding.fix.as_ref().map_or_else(String::new, |fix| format!("         fix: {fix}\n"));
    format!("{:<7}  {}\n{fix}", word(finding.level), show::plain(&finding.what))
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::Good => "ok",
        Level::Warning => "warning",
        Level::Bad => "BAD",
    }
}
