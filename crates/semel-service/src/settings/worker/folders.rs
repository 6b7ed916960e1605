//! The folders of a worker: those of its store and of its dead letters are apart.

use std::path::{Component, Path, PathBuf};

use semel::StoreUrl;

use super::config::DeadLetterTarget;
use crate::settings::build::ConfigBuilder;

impl ConfigBuilder<'_> {
    /// Refuses dead letters in the folder of the store, or around it: each takes every file there for its own.
    pub(super) fn keep_folders_apart(
        &mut self,
        store: Option<&StoreUrl>,
        dead_letters: Option<&DeadLetterTarget>,
    ) {
        let Some(DeadLetterTarget::Url(url)) = dead_letters else { return };
        let letters = url.expose().parse::<StoreUrl>();
        let letters = letters.as_ref().ok().and_then(StoreUrl::folder);
        let (Some(letters), Some(store)) = (letters, store.and_then(StoreUrl::folder)) else {
            return;
        };
        let (at, of_store) = (resolved(letters), resolved(store));
        let how = match () {
            () if at == of_store => "is",
            () if at.starts_with(&of_store) => "is inside of",
            () if of_store.starts_with(&at) => "is around",
            () => return,
        };
        let what = format!(
            "its folder {} {how} the folder of the store, {}; name a folder beside it",
            letters.display(),
            store.display()
        );
        self.problem("worker.dead_letter", what);
    }
}

/// One spelling of a path, which need not exist: absolute, without links and dots.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.components().fold(PathBuf::new(), |mut resolved, component| match component {
        Component::CurDir => resolved,
        Component::ParentDir => {
            resolved.pop();
            resolved
        }
        Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
            resolved.push(component);
            resolved.canonicalize().unwrap_or(resolved)
        }
    })
}
