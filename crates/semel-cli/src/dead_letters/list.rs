//! `semel dead-letters list`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use semel_consumer::dead_letter::{DeadLetter, DeadLetterQueue};
use semel_service::settings::{CountValue, DeadLetterFlags, DeadLettersConfig};
use serde_json::json;

use super::open_letters;
use crate::show::{self, TextTable};

#[derive(Args, Debug)]
pub(crate) struct ListCommand {
    /// The most dead letters to list
    #[arg(long, value_name = "COUNT", default_value = "100")]
    limit: CountValue,
    /// Start after the dead letter with this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Write JSON, one line for each dead letter; payloads are left out
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: DeadLetterFlags,
}

/// Letters per page. They are read with their messages, so that a page must not be large.
const PAGE: usize = 100;

impl ListCommand {
    pub(super) async fn run(&self, config: DeadLettersConfig) -> Result<ExitCode> {
        let letters = open_letters(&config).await?;
        let mut listed = Listed::new(self.json);
        let limit = self.limit.0.get() as usize;
        let last = each(&*letters, self.after.clone(), limit, |letter| listed.add(letter)).await?;
        let code = crate::print(&listed.text());
        if let Some(last) = last {
            crate::complain(format_args!("there may be more; continue with --after {last}"));
        }
        Ok(code)
    }
}

/// Calls `show` with up to `limit` letters. Returns the id of the last one if the list ended at the limit.
pub(super) async fn each(
    letters: &dyn DeadLetterQueue,
    mut after: Option<String>,
    limit: usize,
    mut show: impl FnMut(&DeadLetter),
) -> Result<Option<String>> {
    let mut left = limit;
    while left > 0 {
        let page = letters.list(after.as_deref(), PAGE.min(left)).await?;
        page.iter().for_each(&mut show);
        if page.len() < PAGE.min(left) {
            return Ok(None);
        }
        left -= page.len();
        after = page.last().map(|letter| letter.id.clone());
    }
    Ok(after)
}

/// The letters listed so far.
enum Listed {
    Json(String),
    Table(TextTable),
}

impl Listed {
    fn new(json: bool) -> Self {
        if json {
            return Self::Json(String::new());
        }
        let head = ["ID", "LAST", "REASON", "CLASS", "ATTEMPTS", "CONSUMER", "POSITION", "EVENT"];
        Self::Table(TextTable::new(&head))
    }

    fn add(&mut self, letter: &DeadLetter) {
        match self {
            Self::Json(text) => *text += &show::line(&json(letter)),
            Self::Table(table) => table.row(row(letter)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Json(text) => text.clone(),
            Self::Table(table) => table.to_string(),
        }
    }
}

fn row(letter: &DeadLetter) -> [String; 8] {
    [
        letter.id.clone(),
        show::both(show::timestamp(letter.last_at), show::now()),
        letter.reason.to_string(),
        letter.class.clone(),
        letter.attempts.to_string(),
        letter.consumer.clone(),
        letter.message.position.clone(),
        letter.event_id.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

/// A letter without its payload and headers.
pub(super) fn json(letter: &DeadLetter) -> serde_json::Value {
    let time = |at| show::rfc3339(show::timestamp(at));
    json!({
        "id": letter.id,
        "key": letter.key.as_ref().map(semel::KeyHash::to_hex),
        "event_id": letter.event_id,
        "reason": letter.reason.as_str(),
        "class": letter.class,
        "error": letter.error,
        "attempts": letter.attempts,
        "first_at": time(letter.first_at),
        "last_at": time(letter.last_at),
        "consumer": letter.consumer,
        "source": letter.source,
        "topic": letter.message.topic,
        "position": letter.message.position,
        "body_bytes": letter.message.body.len(),
    })
}
