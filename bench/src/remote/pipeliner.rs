//! What a pipeliner of our own would gain: bare claims over one connection, with one write for all waiting commands,
//! and replies that are counted instead of parsed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use semel_core::codec::HEAD_BYTES;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    task::JoinSet,
};

/// The reply to a first claim.
const NIL: &[u8] = b"$-1\r\n";

type PipelinedCall = (Vec<u8>, oneshot::Sender<()>);

/// Claims per second.
pub(crate) async fn run(port: u16, callers: usize, time: Duration) -> Result<f64> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (requests, queue) = mpsc::unbounded_channel();
    let (sent, waiting) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(queue, writer, sent));
    let reader = tokio::spawn(read(reader, waiting));
    let (started, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..callers {
        let requests = requests.clone();
        tasks.spawn(async move {
            let mut calls = 0u64;
            while started.elapsed() < time {
                let (done, answer) = oneshot::channel();
                requests.send((command(), done)).ok().context("the writer ended")?;
                answer.await.context("the reader ended")?;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    drop(requests);
    let mut calls = 0;
    while let Some(done) = tasks.join_next().await {
        calls += done??;
    }
    let rate = calls as f64 / started.elapsed().as_secs_f64();
    writer.await??;
    reader.await??;
    Ok(rate)
}

fn command() -> Vec<u8> {
    let (key, value) = (rand::random::<[u8; 32]>(), [b'c'; HEAD_BYTES + 1]);
    let mut command = Vec::with_capacity(HEAD_BYTES + 128);
    command.extend_from_slice(b"*7\r\n$3\r\nSET\r\n$40\r\nsemel:b:");
    command.extend_from_slice(&key);
    command.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
    command.extend_from_slice(&value);
    command.extend_from_slice(b"\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$8\r\n86430000\r\n");
    command
}

async fn write(
    mut queue: mpsc::UnboundedReceiver<PipelinedCall>,
    mut writer: OwnedWriteHalf,
    sent: mpsc::UnboundedSender<oneshot::Sender<()>>,
) -> Result<()> {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while queue.recv_many(&mut batch, 256).await > 0 {
        bytes.clear();
        for (command, done) in batch.drain(..) {
            bytes.extend_from_slice(&command);
            sent.send(done).ok().context("the reader ended")?;
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

async fn read(
    mut reader: OwnedReadHalf,
    mut waiting: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
) -> Result<()> {
    let (mut buffer, mut filled) = (vec![0; 64 * 1024], 0);
    while let Some(first) = waiting.recv().await {
        let mut next = Some(first);
        while let Some(done) = next {
            while filled < NIL.len() {
                let read = reader.read(&mut buffer[filled..]).await?;
                ensure!(read > 0, "the server hung up");
                filled += read;
            }
            let whole = filled / NIL.len();
            ensure!(buffer[..NIL.len()] == *NIL, "a new key was there already");
            let _ = done.send(());
            for _ in 1..whole {
                let done = waiting.recv().await.context("more replies than calls")?;
                let _ = done.send(());
            }
            buffer.copy_within(whole * NIL.len()..filled, 0);
            filled -= whole * NIL.len();
            next = waiting.try_recv().ok();
        }
    }
    Ok(())
}
