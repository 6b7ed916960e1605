//! Checks periodically that the folder and its files are still there. A removed file can still be written and synced,
//! and its content is lost when the process ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{Error, ErrorKind, Result};

use crate::log::Segments;

/// The interval of the check.
const PERIOD: Duration = Duration::from_millis(500);

/// The result of the last check. Dropping it ends the checking thread.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    seen: Arc<FolderState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct FolderState {
    ended: AtomicBool,
    is_lost: AtomicBool,
    /// The last check failed.
    is_unsure: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl FolderWatch {
    pub(crate) fn start(segments: Arc<Segments>) -> Result<Self> {
        let seen = Arc::new(FolderState::default());
        let work = {
            let seen = seen.clone();
            move || seen.run(&segments)
        };
        let thread = thread::Builder::new().name("semel-watch".into()).spawn(work);
        let thread = thread.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                "embedded store: cannot start the thread that watches its folder",
            )
            .with_source(error)
        })?;
        Ok(Self { seen, thread: Some(thread) })
    }

    /// Fails while the folder or a file is gone.
    pub(crate) fn check(&self) -> Result<()> {
        self.seen.check()
    }
}

impl FolderState {
    fn run(&self, segments: &Segments) {
        loop {
            thread::park_timeout(PERIOD);
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            self.look(segments);
        }
    }

    /// Checks once. A failed check leaves the earlier result as it is.
    pub(crate) fn look(&self, segments: &Segments) {
        let looked = segments.lost();
        let was_unsure = self.is_unsure.swap(looked.is_err(), Ordering::Relaxed);
        match looked {
            Ok(lost) => self.note(lost),
            Err(error) if !was_unsure => {
                tracing::warn!(%error, "embedded store: cannot look whether its files are still there");
            }
            Err(_) => {}
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.why.lock().clone().map_or(Ok(()), Err)
    }

    fn note(&self, lost: Option<Error>) {
        let (was_lost, is_lost) = (self.is_lost.load(Ordering::Relaxed), lost.is_some());
        match &lost {
            Some(error) if !was_lost => {
                tracing::error!(%error, "embedded store: refuses all calls")
            }
            None if was_lost => tracing::warn!("embedded store: its folder is back"),
            _ => {}
        }
        *self.why.lock() = lost;
        self.is_lost.store(is_lost, Ordering::Relaxed);
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        self.seen.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The folder is unlocked after this: the checking thread must have ended.
            let _ = thread.join();
        }
    }
}
