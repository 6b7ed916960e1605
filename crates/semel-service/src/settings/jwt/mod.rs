//! The keys that JWTs are verified with. They are read with the settings, so that `semel config check` refuses what the
//! gateway would refuse.

mod jwks;
mod keys;
mod pem;

use std::{path::Path, time::Duration};

pub use self::keys::{JwtKey, JwtKeyKind, JwtKeys};
use super::{
    build::ConfigBuilder,
    config::{JwtSettings, PrincipalSource},
    secrets,
    value::DurationValue,
};

impl ConfigBuilder<'_> {
    pub(super) fn jwt(&mut self, kind: JwtKeyKind, file: &Path) -> PrincipalSource {
        let leeway = self.leeway();
        let jwt = self.settings.jwt.clone();
        match content(file).and_then(|content| keys(kind, file, &content)) {
            Ok(keys) => PrincipalSource::Jwt(JwtSettings {
                file: file.to_owned(),
                kind,
                keys,
                issuers: jwt.issuers.unwrap_or_default(),
                audiences: jwt.audiences.unwrap_or_default(),
                leeway,
            }),
            Err(what) => {
                self.problem("principal", what);
                PrincipalSource::Anonymous // Never used: there is a problem.
            }
        }
    }

    fn leeway(&mut self) -> Duration {
        let leeway = self.settings.jwt.leeway.map_or(JwtSettings::LEEWAY, |it| it.0);
        if leeway > JwtSettings::MAX_LEEWAY {
            let what = format!("is {}; use at most 1h, and set the clocks", DurationValue(leeway));
            self.problem("jwt.leeway", what);
        } else if leeway.subsec_nanos() != 0 {
            let what =
                format!("is {}; tokens count whole seconds, use those", DurationValue(leeway));
            self.problem("jwt.leeway", what);
        }
        leeway
    }
}

/// The content of a key file. A pipe is read once, with the settings.
///
/// # Errors
///
/// Why the file cannot be read, with the fix.
pub fn content(file: &Path) -> Result<Vec<u8>, String> {
    secrets::bytes(file, "name the file that holds the key or key set to verify with")
}

/// The keys in the content of a file.
///
/// # Errors
///
/// What is wrong with the content, with the fix.
pub fn keys(kind: JwtKeyKind, file: &Path, content: &[u8]) -> Result<JwtKeys, String> {
    kind.parse(content).map_err(|error| format!("{}: {error:#}", file.display()))
}
