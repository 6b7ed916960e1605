//! Recovery: reads every valid batch in order, and finds the position of the next one.
//!
//! Only the end of the last segment may be torn: a batch there was never acknowledged. Any other damage is an error,
//! since skipping it would lose acknowledged claims.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{self, SyncSender},
    },
    thread,
};

use semel_core::{
    KeyHash, Result, Timestamp,
    codec::{self, Peek},
};

use super::{
    Active, FIRST_CAPACITY, Filling, FolderId, FrameEntry, HEAD, HEADER, Location, SegmentHeader,
    SegmentLog, Segments, begin, corrupt, frame, manifest, missing, missing_segments, name_of,
    number_of, refused, spare, spare::Spare, unsure,
};
use crate::disk::{Disk, DiskFile};

/// The recovered log.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) log: SegmentLog,
    /// The latest time in the log.
    pub(crate) at: Timestamp,
}

/// One entry of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEntry {
    /// The location of a key's record.
    Put(Location, Peek),
    /// A key has no record.
    Delete(KeyHash),
}

/// Reads the whole log and passes its entries to `show`, oldest first. A thread reads and checks the next segment
/// meanwhile.
pub(crate) fn recover(
    disk: Arc<dyn Disk>,
    store: FolderId,
    max_capacity: u64,
    filling: Filling,
    show: impl Fn(Vec<LogEntry>),
) -> Result<Recovered> {
    let numbers = numbers(&*disk)?;
    let mut begun = begun(&*disk, store, &numbers)?;
    missing_segments::check(manifest::read(&*disk)?, &numbers, &begun)?;
    let left_over = before_gap(&mut begun);
    if begun.is_empty() {
        begun.push(first(&*disk, store, max_capacity)?);
    }
    let scan = Scan { at: Timestamp::default(), first: 1, sequence: begun[0].first };
    let (send, read) = mpsc::sync_channel(2);
    let scan = thread::scope(|scope| {
        let scanned = scope.spawn(|| scan.all(&*disk, &begun, send));
        read.into_iter().for_each(show);
        scanned.join().unwrap_or_else(|_| Err(corrupt("reading the log panicked")))
    });
    let (scan, tail) = scan?;
    let header = begun[begun.len() - 1];
    let file = open(&*disk, header.number)?;
    settle(&*file, &tail).map_err(|error| unsure("sync", error))?;
    let active = Active { header, file, end: tail.end as u64 };
    let segments = keep(&disk, &begun, scan.first)?;
    for header in left_over {
        disk.remove(&name_of(header.number)).map_err(|error| unsure("clear", error))?;
    }
    let spare = Spare::new(disk.clone(), filling);
    let (sequence, segments) = (scan.sequence, Arc::new(segments));
    let leaving = false;
    let mut log =
        SegmentLog { disk, store, segments, active, sequence, max_capacity, spare, leaving };
    log.prepare_spare();
    Ok(Recovered { log, at: scan.at })
}

pub(super) fn open(disk: &dyn Disk, number: u32) -> Result<Arc<dyn DiskFile>> {
    disk.open(&name_of(number)).map_err(|error| unsure("open", error))
}

/// The numbers of all segments, in order.
fn numbers(disk: &dyn Disk) -> Result<Vec<u32>> {
    let names = disk.list().map_err(|error| unsure("list", error))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The headers of all segments, oldest first. A last segment without a header was never used: it becomes the spare. It
/// is not recreated, since a power cut in between would leave a number in the list without its file.
fn begun(disk: &dyn Disk, store: FolderId, numbers: &[u32]) -> Result<Vec<SegmentHeader>> {
    let mut begun = Vec::new();
    for (n, number) in numbers.iter().enumerate() {
        let name = name_of(*number);
        let file = open(disk, *number)?;
        match read_header(&*file, &name)? {
            Some(header) => {
                check(&header, &name, *number, store, &*file)?;
                begun.push(header);
            }
            None if n + 1 == numbers.len() && is_blank(&*file)? => {}
            None => return Err(corrupt(&format!("the header of {name} cannot be read"))),
        }
    }
    Ok(begun)
}

/// Drops the segments before a gap, if the log says that it begins after the gap: they were given up, and not all of
/// their files were removed.
fn before_gap(begun: &mut Vec<SegmentHeader>) -> Vec<SegmentHeader> {
    let gap = begun.windows(2).rposition(|pair| pair[0].number + 1 != pair[1].number);
    let after = begun.split_off(gap.map_or(0, |gap| gap + 1));
    std::mem::replace(begun, after)
}

/// The last batch, and the position of its end.
struct Tail {
    batch: Vec<u8>,
    end: usize,
}

/// Makes the last batch durable: what a killed process wrote may be in the page cache only, and replies will rest on
/// it. It is written once more, since after a failed sync the system takes the pages for synced. A torn batch after it
/// stays: the next batch overwrites it.
fn settle(file: &dyn DiskFile, tail: &Tail) -> io::Result<()> {
    file.write_at(&tail.batch, (tail.end - tail.batch.len()) as u64)?;
    file.sync()
}

/// True when nothing was ever written after the header. A header is durable before its first batch.
fn is_blank(file: &dyn DiskFile) -> Result<bool> {
    let length = file.len().map_err(|error| unsure("look at", error))?;
    let rest = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(HEADER);
    if rest == 0 {
        return Ok(true);
    }
    let mut bytes = vec![0; rest];
    file.read_at(&mut bytes, HEADER as u64).map_err(|error| unsure("read from", error))?;
    Ok(written(&bytes) == 0)
}

pub(super) fn read_header(file: &dyn DiskFile, name: &str) -> Result<Option<SegmentHeader>> {
    let mut bytes = [0; HEADER];
    match file.read_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(unsure("read from", error)),
        Ok(()) => SegmentHeader::read(&bytes, name),
    }
}

fn check(
    header: &SegmentHeader,
    name: &str,
    number: u32,
    store: FolderId,
    file: &dyn DiskFile,
) -> Result<()> {
    if header.store != store || header.number != number {
        return Err(corrupt(&format!("{name} belongs to another store or was renamed")));
    }
    let length = file.len().map_err(|error| unsure("look at", error))?;
    if length < header.capacity {
        return Err(corrupt(&format!("{name} was cut short")));
    }
    Ok(())
}

/// A new folder's first segment.
fn first(disk: &dyn Disk, store: FolderId, max_capacity: u64) -> Result<SegmentHeader> {
    let capacity = FIRST_CAPACITY.min(max_capacity);
    let file =
        spare::fill(disk, 1, capacity).map_err(|error| refused("make a segment in", error))?;
    let header = SegmentHeader { store, number: 1, salt: rand::random(), first: 1, capacity };
    begin(&*file, header).map_err(|error| refused("begin a segment in", error))
}

struct Scan {
    at: Timestamp,
    /// The first segment that must be there.
    first: u32,
    /// The sequence of the next batch.
    sequence: u64,
}

impl Scan {
    /// Reads all segments up to the last batch.
    fn all(
        mut self,
        disk: &dyn Disk,
        begun: &[SegmentHeader],
        show: SyncSender<Vec<LogEntry>>,
    ) -> Result<(Self, Tail)> {
        let (mut buffer, mut last) = (Vec::new(), HEADER..HEADER);
        for (n, header) in begun.iter().enumerate() {
            let capacity = usize::try_from(header.capacity);
            buffer.resize(capacity.map_err(|_| corrupt("a segment is too large"))?, 0);
            let read = open(disk, header.number)?.read_at(&mut buffer, 0);
            read.map_err(|error| unsure("read from", error))?;
            let until = begun.get(n + 1).map(|next| next.first);
            let mut found = Vec::new();
            last = self.segment(header, until, &buffer, &mut found)?;
            // The receiver is gone only after it has failed itself.
            let _ = show.send(found);
        }
        Ok((self, Tail { batch: buffer[last.clone()].to_vec(), end: last.end }))
    }

    /// Reads one segment up to batch `until`, or up to its last batch, and returns the position of that.
    fn segment(
        &mut self,
        &SegmentHeader { number, salt, first, .. }: &SegmentHeader,
        until: Option<u64>,
        buffer: &[u8],
        found: &mut Vec<LogEntry>,
    ) -> Result<Range<usize>> {
        if first != self.sequence {
            return Err(missing_batches(number));
        }
        let mut last = HEADER..HEADER;
        while until.is_none_or(|until| self.sequence < until) {
            let end = last.end;
            match self.batch(&buffer[end..], (number, end), salt, found)? {
                Some(length) => last = end..end + length,
                None => break,
            }
        }
        match until {
            Some(until) if self.sequence < until => Err(missing_batches(number)),
            None if has_batch_after(&buffer[last.end..], salt, self.sequence) => {
                let (name, end) = (name_of(number), last.end);
                Err(corrupt(&format!("{name} at {end}: a batch is damaged, and others follow it")))
            }
            _ => Ok(last),
        }
    }

    /// Reads the next batch, if it is whole, and returns its length.
    fn batch(
        &mut self,
        bytes: &[u8],
        (number, base): (u32, usize),
        salt: u64,
        found: &mut Vec<LogEntry>,
    ) -> Result<Option<usize>> {
        let head =
            frame::BatchHead::read(bytes, salt).filter(|head| head.sequence == self.sequence);
        let Some(head) = head else { return Ok(None) };
        let Some(entries) = head.entries(bytes) else { return Ok(None) };
        let base = u32::try_from(base).map_err(|_| corrupt("a segment is too large"))?;
        for (extent, entry) in entries {
            let location = Location { segment: number, extent: extent.behind(base) };
            match entry {
                FrameEntry::Put(record) => {
                    found.push(LogEntry::Put(location, codec::peek(record)?))
                }
                FrameEntry::Delete(key) => found.push(LogEntry::Delete(key)),
                FrameEntry::Trim(first) => self.first = first,
            }
        }
        self.sequence += 1;
        self.at = self.at.max(head.at);
        Ok(Some(HEAD + head.length))
    }
}

fn missing_batches(number: u32) -> semel_core::Error {
    corrupt(&format!("batches before the end of {} are damaged or missing", name_of(number)))
}

/// True when a later batch follows: the damaged bytes here were durable once, and are not a torn end.
fn has_batch_after(bytes: &[u8], salt: u64, sequence: u64) -> bool {
    let written = &bytes[..written(bytes)];
    let salt_bytes = salt.to_be_bytes();
    (0..written.len()).any(|at| {
        written[at..].starts_with(&salt_bytes)
            && frame::BatchHead::read(&bytes[at..], salt)
                .is_some_and(|head| head.sequence > sequence)
    })
}

/// The length of `bytes` without the zeros at its end.
fn written(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let blank = bytes.rchunks(BLOCK).take_while(|block| **block == ZEROS[..block.len()]);
    bytes.len() - blank.map(<[u8]>::len).sum::<usize>()
}

/// Removes the segments that were given up, and checks that no other one is missing.
fn keep(disk: &Arc<dyn Disk>, begun: &[SegmentHeader], first: u32) -> Result<Segments> {
    let oldest = begun[0].number;
    if oldest > first {
        return Err(missing(oldest - 1));
    }
    let segments = Segments::new(disk.clone());
    for header in begun {
        if header.number < first {
            disk.remove(&name_of(header.number)).map_err(|error| unsure("clear", error))?;
        } else {
            segments.add(header.number, header.capacity);
        }
    }
    Ok(segments)
}
