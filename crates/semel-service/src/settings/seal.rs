//! The keys that seal outcomes and labels.

use std::path::PathBuf;

use semel::{KeyFile, KeyRing, SealKeys, SealOptions};

use super::{build::ConfigBuilder, origin::SettingOrigin, problem::SettingProblem};

impl ConfigBuilder<'_> {
    pub(super) fn seal(&mut self) -> Option<SealOptions> {
        let accept_unsealed = self.settings.store.accept_unsealed.unwrap_or_default();
        let Some(keys) = self.seal_keys() else {
            let none = self.context.seal_keys.is_none() && self.settings.store.seal_keys.is_none();
            if accept_unsealed && none {
                self.problem(
                    "accept_unsealed",
                    "is set without seal keys; set seal_keys, or leave it out",
                );
            }
            return None;
        };
        Some(SealOptions { ring: KeyRing::new(keys), accept_unsealed })
    }

    fn seal_keys(&mut self) -> Option<SealKeys> {
        let file = self.settings.store.seal_keys.clone();
        let at = self.origins.of("seal_keys");
        let (keys, at) = match (&self.context.seal_keys, file) {
            // With other keys, no record opens again, so semel must not choose one of the two.
            (Some(_), Some(_)) if !matches!(at, SettingOrigin::File { .. }) => {
                self.problem("seal_keys", "is set beside SEMEL_SEAL_KEYS; keep one of them");
                return None;
            }
            (Some(text), _) => (SealKeys::parse(&text.0), self.origins.of("seal")),
            (None, Some(file)) => (KeyFile::new(file).read(), at),
            (None, None) => return None,
        };
        keys.map_err(|error| self.problems.push(SettingProblem::new(at, error.to_string()))).ok()
    }

    /// The file of the seal keys, which is read again when it changes.
    pub(super) fn seal_file(&self) -> Option<PathBuf> {
        match self.context.seal_keys {
            Some(_) => None,
            None => self.settings.store.seal_keys.clone(),
        }
    }
}
