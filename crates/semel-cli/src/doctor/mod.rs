//! `semel doctor`: checks a store, and lists what was checked, what is wrong, and the fix.

mod checks;
mod seals;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args};
use semel::{Finding, Level};
use semel_service::settings::{StoreConfig, StoreFlags};
use serde_json::{Value, json};

use crate::{
    show,
    store_command::{refuse_absent, run_with_store},
};

#[derive(Args, Debug)]
pub(crate) struct DoctorCommand {
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl DoctorCommand {
    pub(crate) async fn run(self, matches: &ArgMatches) -> ExitCode {
        run_with_store(matches, async |config| self.examine(config).await).await
    }

    async fn examine(&self, config: StoreConfig) -> Result<ExitCode> {
        refuse_absent(&config)?;
        let findings = checks::run(&config).await;
        let worst = findings.iter().map(|it| it.level).max().unwrap_or(Level::Good);
        let printed = crate::print(&match self.json {
            true => show::line(&json!({
                "store": config.url.to_string(),
                "worst": word(worst),
                "findings": findings.iter().map(in_json).collect::<Vec<_>>(),
            })),
            false => in_text(&config, &findings) + conclusion(worst),
        });
        Ok(if worst == Level::Bad { ExitCode::FAILURE } else { printed })
    }
}

fn in_text(config: &StoreConfig, findings: &[Finding]) -> String {
    format!("{}\n\n{}", config.url, findings.iter().map(one_in_text).collect::<String>())
}

fn one_in_text(finding: &Finding) -> String {
    let fix = finding.fix.as_ref().map_or_else(String::new, |fix| format!("         fix: {fix}\n"));
    format!("{:<7}  {}\n{fix}", word(finding.level), show::plain(&finding.what))
}

fn in_json(finding: &Finding) -> Value {
    json!({"level": word(finding.level), "what": finding.what, "fix": finding.fix})
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::Good => "ok",
        Level::Warning => "warning",
        Level::Bad => "BAD",
    }
}

const fn conclusion(worst: Level) -> &'static str {
    match worst {
        Level::Good => "\nall is well\n",
        Level::Warning => "\nthe store works; see the warnings\n",
        Level::Bad => "\nthe store cannot keep the promise; fix every finding marked BAD\n",
    }
}
