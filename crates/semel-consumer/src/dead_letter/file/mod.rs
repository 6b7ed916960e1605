//! Dead letters in a folder: one JSON file for each letter.

mod folder;

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use semel_core::{Error, ErrorKind, Result};

use self::folder::LetterFolder;
use super::{DeadLetter, DeadLetterQueue, DeadLetterSink};

/// Dead letters in a folder, each in a file `ID.json` with what [`DeadLetter::to_json`] writes.
///
/// A letter is on the disk before it counts as published. Several processes on one machine may share the folder; do not
/// put it on a network file system that does not lock files.
#[derive(Clone)]
pub struct FileDeadLetters(Arc<LetterFolder>);

impl FileDeadLetters {
    /// Opens a folder, and makes it if it does not exist. Files of writes that were interrupted are removed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when the folder cannot be made or read.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        blocking(move || LetterFolder::open(path)).await.map(|folder| Self(Arc::new(folder)))
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LetterFolder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folder = self.0.clone();
        blocking(move || work(&folder)).await
    }
}

/// Reads and writes files outside of the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let stopped =
        |_| Err(Error::new(ErrorKind::Unavailable, "dead letters: the runtime is shutting down"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(stopped)
}

impl fmt::Debug for FileDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileDeadLetters").field(&self.0.path()).finish()
    }
}

#[async_trait]
impl DeadLetterSink for FileDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let letter = letter.clone();
        self.run(move |folder| folder.put(&letter)).await
    }

    async fn check(&self) -> Result<()> {
        self.run(LetterFolder::check).await
    }

    fn name(&self) -> String {
        format!("file:{}", self.0.path().display())
    }
}

#[async_trait]
impl DeadLetterQueue for FileDeadLetters {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let after = after.map(str::to_owned);
        self.run(move |folder| folder.list(after.as_deref(), limit)).await
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        let id = id.to_owned();
        self.run(move |folder| folder.get(&id)).await
    }

    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let letter = letter.clone();
        self.run(move |folder| folder.remove(&letter)).await
    }
}

#[cfg(test)]
mod tests;
