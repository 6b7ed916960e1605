//! The spare: the next segment, filled with zeros before it is needed.
//!
//! Existing blocks are faster to sync than a growing file, whose length is journalled. On most file systems a filled
//! segment cannot run out of disk space either: a full disk is noticed while the spare is filled.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{manifest, segment::name_of};
use crate::disk::{Disk, DiskFile};

/// What fills the spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// A separate thread, while the log is written.
    Ahead,
    /// The log itself, so that a test sees the same order each time.
    #[cfg(test)]
    Inline,
}

impl Filling {
    /// How long to wait after a failure before the next attempt.
    const fn patience(self) -> Duration {
        match self {
            Self::Ahead => Duration::from_millis(100),
            #[cfg(test)]
            Self::Inline => Duration::ZERO,
        }
    }
}

#[derive(Debug)]
pub(super) struct Spare {
    disk: Arc<dyn Disk>,
    filling: Filling,
    state: SpareState,
    /// The last attempt failed.
    missing: bool,
}

#[derive(Debug)]
enum SpareState {
    None,
    Coming(JoinHandle<io::Result<Arc<dyn DiskFile>>>),
    Ready(Arc<dyn DiskFile>),
    Failed(io::Error, Instant),
}

impl Spare {
    pub(super) fn new(disk: Arc<dyn Disk>, filling: Filling) -> Self {
        Self { disk, filling, state: SpareState::None, missing: false }
    }

    /// Begins to fill segment `number`, unless that is under way or done.
    pub(super) fn prepare(&mut self, number: u32, capacity: u64) {
        self.look();
        match &self.state {
            SpareState::Coming(_) | SpareState::Ready(_) => return,
            SpareState::Failed(_, at) if at.elapsed() < self.filling.patience() => return,
            SpareState::Failed(..) | SpareState::None => {}
        }
        let disk = self.disk.clone();
        let work = move || fill(&*disk, number, capacity);
        self.state = match self.filling {
            Filling::Ahead => match thread::Builder::new().name("semel-spare".into()).spawn(work) {
                Ok(handle) => SpareState::Coming(handle),
                Err(error) => self.done(Err(error)),
            },
            #[cfg(test)]
            Filling::Inline => self.done(work()),
        };
    }

    /// True when the last attempt failed. Waits for an attempt that is under way.
    pub(super) fn is_missing(&mut self) -> bool {
        self.join();
        self.missing
    }

    /// The spare, waiting for it if it is still being filled. Give it back if it was not used.
    pub(super) fn take(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        self.join();
        match std::mem::replace(&mut self.state, SpareState::None) {
            SpareState::Ready(file) => Ok(file),
            SpareState::Failed(error, at) => {
                let again = io::Error::new(error.kind(), error.to_string());
                self.state = SpareState::Failed(error, at);
                Err(again)
            }
            SpareState::None | SpareState::Coming(_) => {
                Err(io::Error::other("no spare was prepared"))
            }
        }
    }

    pub(super) fn give_back(&mut self, file: Arc<dyn DiskFile>) {
        self.state = SpareState::Ready(file);
    }

    fn done(&mut self, result: io::Result<Arc<dyn DiskFile>>) -> SpareState {
        self.missing = result.is_err();
        match result {
            Ok(file) => SpareState::Ready(file),
            Err(error) => SpareState::Failed(error, Instant::now()),
        }
    }

    fn look(&mut self) {
        if let SpareState::Coming(handle) = &self.state
            && handle.is_finished()
        {
            self.join();
        }
    }

    fn join(&mut self) {
        self.state = match std::mem::replace(&mut self.state, SpareState::None) {
            SpareState::Coming(handle) => {
                let panicked = |_| Err(io::Error::other("filling a spare segment panicked"));
                self.done(handle.join().unwrap_or_else(panicked))
            }
            state => state,
        };
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // The folder is unlocked after this: the filling thread must have ended.
        self.join();
    }
}

/// Makes a segment of zeros, or continues one that an earlier attempt left unfinished.
pub(super) fn fill(disk: &dyn Disk, number: u32, capacity: u64) -> io::Result<Arc<dyn DiskFile>> {
    static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
    let name = name_of(number);
    let file = match disk.open(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&name)?,
        opened => opened?,
    };
    let mut at = file.len()?;
    while at < capacity {
        let chunk = usize::try_from(capacity - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_at(&ZEROS[..chunk], at)?;
        at += chunk as u64;
    }
    file.sync()?;
    disk.sync()?;
    manifest::write(disk, number)?;
    Ok(file)
}
