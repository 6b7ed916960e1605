//! `semel seal-key`: a fresh line for a file of seal keys.

use std::process::ExitCode;

use clap::Args;
use semel::SealKey;

#[derive(Args, Debug)]
pub(crate) struct SealKeyCommand {
    /// Its name, which stands beside everything it seals: 1 to 64 letters, digits, '.', '_' or '-'
    /// [default: one that nobody has]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl SealKeyCommand {
    pub(crate) fn run(self) -> ExitCode {
        let name = self.name.unwrap_or_else(any_name);
        match SealKey::random(&name) {
            Ok(key) => crate::print(&format!("{}\n", *key.line())),
            Err(error) => {
                crate::complain(format_args!("error: {error}; choose another, such as 2026-11"));
                ExitCode::from(crate::USAGE)
            }
        }
    }
}

/// Short, and not used before.
fn any_name() -> String {
    let hash = semel::HashSecret::check_value(Some(&semel::HashSecret::random()));
    format!("k-{}", semel::KeyHash::from_bytes(hash))
}
