//! Checks the protocol in larger bounds than the tests do: one line per configuration.

use std::{process::ExitCode, thread};

use semel_model::{ModelConfig, Protocol};

fn main() -> ExitCode {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let mut broken = false;
    for config in ModelConfig::SMALL.iter().chain(ModelConfig::LARGE) {
        let report = Protocol::new(*config).check(threads);
        println!("{report}");
        broken |= !report.broken.is_empty();
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
