//! `semel seal-key`: prints a new line for a file of seal keys.

use std::process::ExitCode;

use clap::Args;
use semel::SealKey;

#[derive(Args, Debug)]
pub(crate) struct SealKeyCommand {
    /// The key's name, which is stored with everything it seals: 1 to 64 letters, digits, '.', '_' or '-'
    /// [default: a random name]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl SealKeyCommand {
    pub(crate) fn run(self) -> ExitCode {
        let name = self.name.unwrap_or_else(random_name);
        match SealKey::random(&name) {
            Ok(key) => crate::print(&format!("{}\n", *key.line())),
            Err(error) => {
                crate::complain(format_args!("error: {error}; choose another, such as 2026-11"));
                ExitCode::from(crate::USAGE)
            }
        }
    }
}

/// A short random name.
fn random_name() -> String {
    let hash = semel::HashSecret::check_value(Some(&semel::HashSecret::random()));
    format!("k-{}", semel::KeyHash::from_bytes(hash))
}
