//! The worker's end of the ledger.

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

use super::Entry;

type Line = (String, oneshot::Sender<()>);

/// Writes to the ledger. Clones share a connection.
#[derive(Clone, Debug)]
pub struct Ledger {
    lines: mpsc::UnboundedSender<Line>,
}

impl Ledger {
    /// Connects to the ledger's process.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
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
    /// When the ledger is gone. A run without a ledger proves nothing.
    pub async fn write(&self, entry: &Entry) -> Result<()> {
        let line = serde_json::to_string(entry)? + "\n";
        let (sender, written) = oneshot::channel();
        self.lines.send((line, sender)).ok().context("the ledger is gone")?;
        written.await.context("the ledger is gone")
    }
}

type Waiting = Arc<Mutex<std::collections::VecDeque<oneshot::Sender<()>>>>;

async fn send(
    mut inbox: mpsc::UnboundedReceiver<Line>,
    mut writer: OwnedWriteHalf,
    waiting: Waiting,
) {
    while let Some((line, sender)) = inbox.recv().await {
        waiting.lock().push_back(sender);
        if writer.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The ledger answers a connection's lines in their order, one byte each.
async fn acknowledge(mut reader: OwnedReadHalf, waiting: Waiting) {
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
