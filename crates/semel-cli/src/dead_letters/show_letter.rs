//! `semel dead-letters show`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use semel_consumer::dead_letter::DeadLetter;
use semel_service::settings::{DeadLetterFlags, DeadLettersConfig};

use super::{find, open_letters};
use crate::show::{self, TextTable};

#[derive(Args, Debug)]
pub(crate) struct ShowCommand {
    /// The id of the dead letter
    #[arg(value_name = "ID")]
    id: String,
    /// Write JSON, with the payload in base64
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: DeadLetterFlags,
}

impl ShowCommand {
    pub(super) async fn run(&self, config: DeadLettersConfig) -> Result<ExitCode> {
        let letters = open_letters(&config).await?;
        let letter = find(&*letters, &self.id).await?;
        let text = match self.json {
            true => format!("{}\n", String::from_utf8_lossy(&letter.to_json())),
            false => text(&letter),
        };
        Ok(crate::print(&text))
    }
}

fn text(letter: &DeadLetter) -> String {
    let mut table = TextTable::bare();
    let message = &letter.message;
    let at = |at| show::both(show::timestamp(at), show::now());
    let or_none = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let record_key = message.record_key.as_ref().map(|it| String::from_utf8_lossy(it).into_owned());
    let rows = [
        ("id", letter.id.clone()),
        ("key", letter.key.as_ref().map_or_else(|| "-".to_owned(), semel::KeyHash::to_hex)),
        ("event", or_none(letter.event_id.as_ref())),
        ("reason", letter.reason.to_string()),
        ("class", letter.class.clone()),
        ("error", letter.error.clone()),
        ("attempts", letter.attempts.to_string()),
        ("first", at(letter.first_at)),
        ("last", at(letter.last_at)),
        ("consumer", letter.consumer.clone()),
        ("source", letter.source.clone()),
        ("position", message.position.clone()),
        ("topic", message.topic.clone()),
        ("message id", or_none(message.message_id.as_ref())),
        ("record key", or_none(record_key.as_ref())),
        ("ordering key", or_none(message.ordering_key.as_ref())),
    ];
    for (name, value) in rows {
        table.row([name.to_owned(), value]);
    }
    let mut text = table.to_string();
    for header in &message.headers {
        let value = String::from_utf8_lossy(&header.value);
        text += &format!("\n{}", show::plain(&format!("{}: {value}", header.name)));
    }
    text += "\n\n";
    match std::str::from_utf8(&message.body) {
        _ if message.is_tombstone => text += "no payload: the message is a tombstone\n",
        // Lines stay lines; other control characters must not reach the terminal.
        Ok(body) => body.lines().for_each(|line| {
            text += &show::plain(line);
            text.push('\n');
        }),
        Err(_) => {
            text += &format!("{} bytes that are no text; --json shows them\n", message.body.len())
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use semel_consumer::{Message, dead_letter::DeadLetterReason};

    use super::*;

    #[test]
    fn a_tombstone_is_not_shown_as_an_empty_payload() {
        let of = |message: Message| {
            text(&DeadLetter {
                id: "1".to_owned(),
                key: None,
                event_id: None,
                reason: DeadLetterReason::Failed,
                class: "declined".to_owned(),
                error: "no".to_owned(),
                attempts: 1,
                first_at: SystemTime::UNIX_EPOCH,
                last_at: SystemTime::UNIX_EPOCH,
                consumer: "billing".to_owned(),
                source: "kafka customers/billing".to_owned(),
                message: Arc::new(message),
            })
        };
        let says = "no payload: the message is a tombstone";
        assert!(of(Message::tombstone("customers")).ends_with(&format!("\n\n{says}\n")));
        assert!(!of(Message::new("customers", "")).contains(says));
    }
}
