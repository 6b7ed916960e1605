//! The limit: a log of checksummed records in files of zeros, an index in memory, one sync per batch. It has no leases,
//! no states and no recovery.

use std::{
    fs::{self, File},
    io::{Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use crate::load::{BODY, spread_out};
use anyhow::{Context, Result};
use hashbrown::HashMap;
use semel_remote::batch::{BatchLimits, Batcher, Batches};

use super::side::DurableSide;

/// Bytes of a claim, as many as the store writes, the header of its entry included.
pub const CLAIMED: usize = 173;

/// Bytes of a completion.
pub const COMPLETED: usize = 485;

const SEGMENT: u64 = 32 << 20;

type RawKey = [u8; 32];

enum LogCall {
    Claim(RawKey),
    Complete(RawKey, Vec<u8>),
    Forget(Range<u64>),
}

/// The bare log.
#[derive(Debug)]
pub struct RawLog(Batcher<LogCall, bool>);

impl RawLog {
    /// Creates a log in a new folder.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir(folder)?;
        let (calls, batches) = Batcher::new(BatchLimits::default());
        let writer = RawLogWriter::new(folder.to_owned())?;
        thread::spawn(move || writer.run(batches));
        Ok(Self(calls))
    }
}

impl RawLog {
    /// Removes keys from the index, which is all that expiry costs here.
    ///
    /// # Errors
    ///
    /// When its writer has ended.
    pub async fn forget(&self, keys: Range<u64>) -> Result<bool> {
        Ok(self.0.call(LogCall::Forget(keys)).await?)
    }
}

impl DurableSide for RawLog {
    type Owned = ();

    async fn claim(&self, i: u64) -> Result<()> {
        let done = self.0.call(LogCall::Claim(spread_out(i))).await?;
        anyhow::ensure!(done, "key {i} is not free");
        Ok(())
    }

    async fn complete(&self, i: u64, (): ()) -> Result<()> {
        self.0.call(LogCall::Complete(spread_out(i), BODY.to_vec())).await?;
        Ok(())
    }
}

struct RawLogWriter {
    folder: PathBuf,
    file: File,
    end: u64,
    number: u32,
    next: JoinHandle<std::io::Result<File>>,
    index: HashMap<RawKey, (u32, u64)>,
    buffer: Vec<u8>,
}

impl RawLogWriter {
    fn new(folder: PathBuf) -> Result<Self> {
        let file = zeros(&folder, 0)?;
        let next = ahead(&folder, 1);
        let (index, buffer) = (HashMap::new(), Vec::new());
        Ok(Self { folder, file, end: 0, number: 0, next, index, buffer })
    }

    fn run(mut self, mut batches: Batches<LogCall, bool>) {
        while let Some(batch) = batches.take_blocking() {
            match self.write(&batch.calls) {
                Ok(answers) => batch.reply.send(answers),
                Err(error) => eprintln!("the bare log failed: {error:#}"),
            }
        }
    }

    fn write(&mut self, calls: &[LogCall]) -> Result<Vec<bool>> {
        self.buffer.clear();
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let at = (self.number, self.end + self.buffer.len() as u64);
            answers.push(match call {
                LogCall::Claim(key) => self.index.insert(*key, at).is_none(),
                LogCall::Complete(key, _) => self.index.insert(*key, at).is_some(),
                LogCall::Forget(keys) => {
                    keys.clone().all(|i| self.index.remove(&spread_out(i)).is_some())
                }
            });
            match call {
                LogCall::Claim(key) => self.append(key, &[], CLAIMED),
                LogCall::Complete(key, body) => self.append(key, body, COMPLETED),
                LogCall::Forget(_) => {}
            }
        }
        self.file.write_all_at(&self.buffer, self.end)?;
        self.file.sync_data()?;
        self.end += self.buffer.len() as u64;
        if self.end + (4 << 20) > SEGMENT {
            self.roll()?;
        }
        Ok(answers)
    }

    fn append(&mut self, key: &RawKey, body: &[u8], length: usize) {
        let start = self.buffer.len();
        self.buffer.extend([0; 8]);
        self.buffer.extend(key);
        self.buffer.extend(body);
        self.buffer.resize(start + length, 0);
        let check = crc32fast::hash(&self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&check.to_be_bytes());
    }

    fn roll(&mut self) -> Result<()> {
        let next = ahead(&self.folder, self.number + 2);
        let filled = std::mem::replace(&mut self.next, next).join();
        self.file = filled.ok().context("filling a file panicked")??;
        (self.number, self.end) = (self.number + 1, 0);
        Ok(())
    }
}

fn ahead(folder: &Path, number: u32) -> JoinHandle<std::io::Result<File>> {
    let folder = folder.to_owned();
    thread::spawn(move || zeros(&folder, number))
}

fn zeros(folder: &Path, number: u32) -> std::io::Result<File> {
    let mut file = File::create_new(folder.join(format!("{number}")))?;
    let chunk = vec![0; 1 << 20];
    (0..SEGMENT >> 20).try_for_each(|_| file.write_all(&chunk))?;
    file.sync_all()?;
    Ok(file)
}

/// Reads all files of a folder with a checksum, and returns the number of bytes.
///
/// # Errors
///
/// The error of the file system.
pub fn read_all(folder: &Path) -> Result<u64> {
    let (mut total, mut buffer) = (0, Vec::new());
    for entry in fs::read_dir(folder)? {
        buffer.clear();
        File::open(entry?.path())?.read_to_end(&mut buffer)?;
        std::hint::black_box(crc32fast::hash(&buffer));
        total += buffer.len() as u64;
    }
    Ok(total)
}
