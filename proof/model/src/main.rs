//! Checks the protocol in larger bounds than the tests do: one line per configuration.

use std::{process::ExitCode, thread};

use semel_model::{ModelConfig, Protocol, StallConfig};
use semel_planted_bugs::PlantedBug;

fn main() -> ExitCode {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let mut broken = false;
    for config in ModelConfig::SMALL.iter().chain(ModelConfig::LARGE) {
        let report = Protocol::new(*config).check(threads);
        println!("{report}");
        broken |= !report.broken.is_empty();
    }
    for config in StallConfig::ALL {
        let config = StallConfig { ticks: config.ticks * 2, stalls: config.stalls + 1, ..*config };
        let check = config.check(&PlantedBug::NONE);
        println!("{:<24}{check}", config.name);
        broken |= check.broken.is_some();
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
