//! The outcome that an operator records: the response that the operation would have given.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::Args;
use http::{HeaderValue, StatusCode, header};
use semel::{Body, Head, Header, Outcome};
use semel_service::settings::KeptHeader;
use serde_json::json;

use crate::store_command::UsageError;

/// The parts of a response beside the body of --complete, and those of a failure.
#[derive(Args, Debug)]
pub(super) struct OutcomeArgs {
    /// With --complete or --fail: the status of the response [default: 200, with --fail 409]
    #[arg(long, value_name = "CODE", conflicts_with = "rerun")]
    status: Option<u16>,
    /// With --complete or --fail: the media type of the body [default: application/json if it is JSON]
    #[arg(long, value_name = "TYPE", conflicts_with = "rerun")]
    content_type: Option<String>,
    /// With --complete or --fail: a header of the response, such as 'Location: /charges/7'; may be repeated
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "rerun")]
    header: Vec<String>,
    /// With --fail: the kind of failure, for programs that use the library [default: failed]
    #[arg(long, value_name = "WORD", conflicts_with_all = ["rerun", "complete"])]
    kind: Option<String>,
    /// With --fail: a sentence for the caller
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["rerun", "complete"])]
    message: Option<String>,
    /// With --fail: the body of the response, - for stdin [default: a problem (RFC 9457) with the message]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rerun", "complete"])]
    body: Option<PathBuf>,
}

const MESSAGE: &str = "the operation failed; an operator has recorded this";

impl OutcomeArgs {
    /// The outcome of an operation that took effect; `most` is the largest that the store takes.
    pub(super) fn success(&self, file: &Path, most: usize) -> Result<Outcome> {
        let status = self.status(StatusCode::OK)?;
        if !(status.is_success() || status.is_redirection()) {
            bail!(UsageError(format!(
                "--status {status} is no success; use 200 to 399, or --fail"
            )));
        }
        let body = read("--complete", file, most)?;
        if !body.is_empty() && has_no_body(status) {
            bail!(UsageError(format!(
                "--status {status} has no body, and --complete gives it {} bytes; name an empty file, such as \
                 /dev/null, or another status",
                body.len()
            )));
        }
        let head = self.head(status, of_json(&body))?;
        fits(Outcome::success(body).with_head(head), "--complete", most)
    }

    /// The outcome of an operation that failed for good.
    pub(super) fn failure(&self, most: usize) -> Result<Outcome> {
        let status = self.status(StatusCode::CONFLICT)?;
        if !(status.is_client_error() || status.is_server_error()) {
            bail!(UsageError(format!(
                "--status {status} is no failure; use 400 to 599, or --complete"
            )));
        }
        let message = self.message.as_deref().unwrap_or(MESSAGE);
        let (body, media_type) = match &self.body {
            Some(file) => {
                let body = read("--body", file, most)?;
                let media_type = of_json(&body);
                (body, media_type)
            }
            None => (problem(status, message), Some("application/problem+json")),
        };
        let head = self.head(status, media_type)?;
        let outcome = Outcome::failure(self.kind.as_deref().unwrap_or("failed"), message);
        fits(outcome.with_head(head).with_body(Body::Kept(body.into())), "--body", most)
    }

    fn status(&self, standard: StatusCode) -> Result<StatusCode> {
        let Some(code) = self.status else { return Ok(standard) };
        match StatusCode::from_u16(code) {
            Ok(status) if (200..600).contains(&code) => Ok(status),
            _ => bail!(UsageError(format!("--status {code} is no final status; use 200 to 599"))),
        }
    }

    fn head(&self, status: StatusCode, media_type: Option<&str>) -> Result<Head> {
        let content_type = self.content_type.clone().or(media_type.map(str::to_owned));
        if content_type.as_deref().is_some_and(|it| HeaderValue::from_str(it).is_err()) {
            bail!(UsageError(
                "--content-type is no header value; write it as text/plain".to_owned()
            ));
        }
        let headers = self.header.iter().map(|line| parse(line)).collect::<Result<_>>()?;
        Ok(Head { status: Some(status.as_u16()), content_type, headers, ..Head::default() })
    }
}

fn parse(line: &str) -> Result<Header> {
    let refused = |why: &str| UsageError(format!("--header {line:?}: {why}"));
    let Some((name, value)) = line.split_once(':') else {
        bail!(refused("write NAME: VALUE, such as 'Location: /charges/7'"));
    };
    let KeptHeader(name) = name.parse().map_err(|why: String| refused(&why))?;
    if name == header::CONTENT_TYPE {
        bail!(refused("use --content-type"));
    }
    let value = HeaderValue::from_str(value.trim())
        .map_err(|_| refused("the value has characters that no header can carry"))?;
    Ok(Header { name: name.as_str().to_owned(), value: value.as_bytes().to_vec().into() })
}

/// Reads the file, - for stdin: at most one byte more than the store takes, which shows that it is too large.
fn read(flag: &str, file: &Path, most: usize) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let bound = most as u64 + 1;
    let read = match file.to_str() {
        Some("-") => io::stdin().lock().take(bound).read_to_end(&mut body),
        _ => File::open(file).and_then(|it| it.take(bound).read_to_end(&mut body)),
    };
    match read {
        Ok(_) => Ok(body),
        Err(error) => bail!(UsageError(format!(
            "{flag}: {} cannot be read: {error}; name a file with the body of the response, /dev/null for none, - \
             for stdin",
            file.display()
        ))),
    }
}

/// Refuses a response that does not fit: it would be recorded without its body, and is to be replayed whole.
fn fits(outcome: Outcome, flag: &str, most: usize) -> Result<Outcome> {
    let size = outcome.size();
    if size > most {
        bail!(UsageError(format!(
            "{flag}: the response is larger than the {most} bytes that this store keeps; record a shorter one"
        )));
    }
    Ok(outcome)
}

fn of_json(body: &[u8]) -> Option<&'static str> {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    is_json.then_some("application/json")
}

fn has_no_body(status: StatusCode) -> bool {
    matches!(status.as_u16(), 204 | 205 | 304)
}

fn problem(status: StatusCode, message: &str) -> Vec<u8> {
    let title = status.canonical_reason().unwrap_or("Failed");
    let problem = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": message,
    });
    problem.to_string().into_bytes()
}
