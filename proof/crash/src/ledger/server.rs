//! The ledger's process: many connections, one file, one fsync for all who wait.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use anyhow::{Context, Result};

/// A line, and who waits for it.
type Line = (String, Arc<UnixStream>);

/// Serves until the process ends.
///
/// # Errors
///
/// When the socket or the file cannot be opened or written.
pub fn serve(socket: &Path, file: &Path) -> Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(file)?;
    let listener =
        UnixListener::bind(socket).with_context(|| format!("listen on {}", socket.display()))?;
    // Whoever started this process waits for the line.
    println!("ready");
    let (lines, inbox) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lines = lines.clone();
            thread::spawn(move || collect(stream, &lines));
        }
    });
    write_down(log, &inbox)
}

/// Hands on whole lines; half a line of a killed worker is nobody's effect.
fn collect(stream: UnixStream, lines: &mpsc::Sender<Line>) {
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

fn write_down(mut log: File, inbox: &mpsc::Receiver<Line>) -> Result<()> {
    while let Ok(first) = inbox.recv() {
        let batch: Vec<Line> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let text: String = batch.iter().map(|(line, _)| line.as_str()).collect();
        log.write_all(text.as_bytes())?;
        log.sync_data()?;
        for (_, waiting) in &batch {
            // It may have been killed meanwhile; the line stands.
            let _ = (&**waiting).write_all(b"+");
        }
    }
    Ok(())
}
