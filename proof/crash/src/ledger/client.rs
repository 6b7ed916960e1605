//! The worker's side of the ledger.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
};

use super::LedgerEntry;

/// A line, and the sender to notify when it is on the disk.
type PendingLine = (String, oneshot::Sender<()>);

/// A connection to the ledger. Clones share it.
#[derive(Clone, Debug)]
pub struct LedgerClient {
    lines: mpsc::UnboundedSender<PendingLine>,
}

impl LedgerClient {
    /// Connects to the ledger's process.
    ///
    /// # Errors
    ///
    /// When no process listens there.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await.context("connect to the ledger")?;
        let (reader, writer) = stream.into_split();
        let (lines, inbox) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(std::collections::VecDeque::new()));
        tokio::spawn(send(inbox, writer, waiting.clone()));
        tokio::spawn(acknowledge(reader, waiting));
        Ok(Self { lines })
    }

    /// Returns when the entry is on the ledger's disk.
    ///
    /// # Errors
    ///
    /// When the ledger process has ended. A run without a ledger proves nothing.
    pub async fn write(&self, entry: &LedgerEntry) -> Result<()> {
        let line = serde_json::to_string(entry)? + "\n";
        let (sender, written) = oneshot::channel();
        self.lines.send((line, sender)).ok().context("the ledger process has ended")?;
        written.await.context("the ledger process has ended")
    }
}

/// The senders of the lines that are not acknowledged yet, in order.
type Unacknowledged = Arc<Mutex<std::collections::VecDeque<oneshot::Sender<()>>>>;

async fn send(
    mut inbox: mpsc::UnboundedReceiver<PendingLine>,
    mut writer: OwnedWriteHalf,
    waiting: Unacknowledged,
) {
    while let Some((line, sender)) = inbox.recv().await {
        waiting.lock().push_back(sender);
        if writer.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the acknowledgements: one byte per line, in the order of the lines.
async fn acknowledge(mut reader: OwnedReadHalf, waiting: Unacknowledged) {
    let mut buffer = [0; 256];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        for _ in 0..count {
            if let Some(sender) = waiting.lock().pop_front() {
                let _ = sender.send(());
            }
        }
    }
    waiting.lock().clear();
}
