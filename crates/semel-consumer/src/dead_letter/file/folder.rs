//! The folder itself, with blocking calls.
//!
//! A letter is written to a temporary file, synced and renamed, so that a file with the name of a letter is always
//! whole. The lock makes a removal one step: between its comparison and its removal, no other process can rename a
//! later letter to that name.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use semel_core::{Error, ErrorKind, Result};

use crate::dead_letter::{DeadLetter, no_letter_to_list_after, rfc3339};

const EXTENSION: &str = ".json";
/// How temporary files end. They begin with a dot.
const TEMPORARY: &str = ".tmp";
const LOCK: &str = ".lock";
/// The longest id of a letter.
const MAX_ID: usize = 128;
/// A temporary file of this age belongs to a write that was interrupted.
const INTERRUPTED: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct LetterFolder(PathBuf);

impl LetterFolder {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        make(&path).map_err(|error| failed("make the folder", &path, &error))?;
        let folder = Self(path);
        folder
            .remove_interrupted()
            .map_err(|error| failed("read the folder", &folder.0, &error))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the letter, and returns after it is on the disk.
    pub(super) fn put(&self, letter: &DeadLetter) -> Result<()> {
        let path = self.path_of(&letter.id)?;
        let temporary = self.temporary(&letter.id);
        let put = write_synced(&temporary, &letter.to_json()).and_then(|()| {
            let _lock = self.lock()?;
            fs::rename(&temporary, &path)?;
            self.sync()
        });
        put.map_err(|error| {
            // It is gone if it was renamed. If it stays, the next opening removes it.
            let _ = fs::remove_file(&temporary);
            failed("write", &path, &error)
        })
    }

    /// Does what [`LetterFolder::put`] does, with a file that is no letter.
    pub(super) fn check(&self) -> Result<()> {
        let (first, second) = (self.temporary("check"), self.temporary("check"));
        let checked =
            write_synced(&first, b"semel checks that it can write here\n").and_then(|()| {
                let _lock = self.lock()?;
                fs::rename(&first, &second)?;
                self.sync()?;
                fs::remove_file(&second)
            });
        checked.map_err(|error| {
            let _ = (fs::remove_file(&first), fs::remove_file(&second));
            let what = format!(
                "{}; let this user write there, free disk space, or choose another folder",
                subject("write to", &self.0, &error)
            );
            Error::new(ErrorKind::Unavailable, what).with_source(error)
        })
    }

    pub(super) fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        self.read(&self.path_of(id)?)
    }

    /// Reads all letters twice, so that no more than `limit` of them are in memory at once.
    pub(super) fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut letters = self.all()?;
        letters.sort_unstable();
        let start = match after {
            None => 0,
            Some(after) => {
                let position = letters.iter().position(|(_, id)| id == after);
                1 + position.ok_or_else(|| no_letter_to_list_after(after))?
            }
        };
        let page = letters.iter().skip(start).take(limit);
        page.filter_map(|(_, id)| self.get(id).transpose()).collect()
    }

    /// Removes the file if it still holds this letter.
    pub(super) fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let path = self.path_of(&letter.id)?;
        let failed = |error: io::Error| failed("remove", &path, &error);
        let _lock = self.lock().map_err(failed)?;
        if !self.read(&path)?.is_some_and(|kept| kept.is_copy_of(letter)) {
            return Ok(false);
        }
        fs::remove_file(&path).and_then(|()| self.sync()).map_err(failed)?;
        Ok(true)
    }

    /// When each letter was made, and its id.
    fn all(&self) -> Result<Vec<(u64, String)>> {
        let unreadable = |error: io::Error| failed("read the folder", &self.0, &error);
        let mut letters = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let Some(id) = name.strip_suffix(EXTENSION) else { continue };
            // A letter that was removed meanwhile is skipped.
            let Some(letter) = self.read(&self.0.join(name))? else { continue };
            if letter.id != id {
                let what = format!(
                    "{} holds the letter {:?}; rename it",
                    self.0.join(name).display(),
                    letter.id
                );
                return Err(Error::new(ErrorKind::Corrupt, format!("dead letters: {what}")));
            }
            letters.push((rfc3339::micros(letter.last_at), letter.id));
        }
        Ok(letters)
    }

    fn read(&self, path: &Path) -> Result<Option<DeadLetter>> {
        let json = match fs::read(path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", path, &error)),
        };
        let unreadable = |error: Error| {
            let what = format!(
                "{}: {error}; restore the file, or move it out of the folder",
                path.display()
            );
            Error::new(error.kind(), format!("dead letters: {what}"))
        };
        DeadLetter::from_json(&json).map(Some).map_err(unreadable)
    }

    /// An id is part of a path, so it must not lead out of the folder.
    fn path_of(&self, id: &str) -> Result<PathBuf> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_safe) {
            return Ok(self.0.join(format!("{id}{EXTENSION}")));
        }
        Err(Error::invalid(format!(
            "dead letters: {id:?} is no id of a letter; ids have 1 to {MAX_ID} characters of a-z, A-Z, 0-9, - and _"
        )))
    }

    fn temporary(&self, id: &str) -> PathBuf {
        let random: u64 = rand::random();
        self.0.join(format!(".{id}.{random:016x}{TEMPORARY}"))
    }

    /// Excludes other writers until the file is dropped. A system that kills the process unlocks it.
    fn lock(&self) -> io::Result<fs::File> {
        let lock = private().create(true).truncate(false).open(self.0.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.0)?.sync_all()
    }

    /// Another process may be writing a file that is younger.
    fn remove_interrupted(&self) -> io::Result<()> {
        let Some(before) = SystemTime::now().checked_sub(INTERRUPTED) else { return Ok(()) };
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let is_temporary = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with('.') && name.ends_with(TEMPORARY));
            // A file that disappears meanwhile was renamed or removed by its writer.
            let is_old =
                || entry.metadata().and_then(|it| it.modified()).is_ok_and(|at| at < before);
            if is_temporary && is_old() {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private().create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the folder for its owner alone, because letters hold payloads, and its name durable.
fn make(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all())
        }
    }
}

fn subject(what: &str, path: &Path, error: &io::Error) -> String {
    format!("dead letters: cannot {what} {}: {error}", path.display())
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, subject(what, path, error))
}
