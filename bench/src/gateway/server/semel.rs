//! `semel gateway` as it comes, but for its log.

use std::{env, process::Command};

use super::Place;
use crate::options::Options;

pub(super) fn command(place: &Place<'_>, options: &Options, store: &str) -> Command {
    let mut command = Command::new(&options.semel);
    // Settings of whoever runs the benchmark are none of its own.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_"))
    {
        command.env_remove(name);
    }
    let (listen, upstream) = (address(place.port), format!("http://{}", address(place.upstream)));
    command.args(["gateway", "--listen", &listen, "--upstream", &upstream]);
    command.args(["--store", store, "--principal", "anonymous", "--log", "warn"]);
    command
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
