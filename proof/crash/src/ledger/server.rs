//! The ledger process: many connections, one file, one fsync for all lines that wait.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use anyhow::{Context, Result};

/// A line, and the connection that waits for its acknowledgement.
type ReceivedLine = (String, Arc<UnixStream>);

/// Serves until the process ends.
///
/// # Errors
///
/// When the socket or the file cannot be opened or written.
pub fn serve(socket: &Path, file: &Path) -> Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(file)?;
    let listener =
        UnixListener::bind(socket).with_context(|| format!("listen on {}", socket.display()))?;
    // The harness waits for this line.
    println!("ready");
    let (lines, inbox) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lines = lines.clone();
            thread::spawn(move || collect(stream, &lines));
        }
    });
    write_batches(log, &inbox)
}

/// Passes complete lines on. An incomplete line of a killed worker has no effect.
fn collect(stream: UnixStream, lines: &mpsc::Sender<ReceivedLine>) {
    let stream = Arc::new(stream);
    let mut reader = BufReader::new(&*stream);
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(1..) if line.ends_with('\n') => {}
            _ => return,
        }
        if lines.send((line, stream.clone())).is_err() {
            return;
        }
    }
}

fn write_batches(mut log: File, inbox: &mpsc::Receiver<ReceivedLine>) -> Result<()> {
    while let Ok(first) = inbox.recv() {
        let batch: Vec<ReceivedLine> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let text: String = batch.iter().map(|(line, _)| line.as_str()).collect();
        log.write_all(text.as_bytes())?;
        log.sync_data()?;
        for (_, waiting) in &batch {
            // The worker may have been killed meanwhile; the line stays.
            let _ = (&**waiting).write_all(b"+");
        }
    }
    Ok(())
}
