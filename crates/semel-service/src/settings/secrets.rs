//! Reads secrets from files.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The largest file that is read; no secret, key or key set is larger.
const MAX_BYTES: usize = 1024 * 1024;

/// What the file holds, without the newline that editors leave at the end.
///
/// # Errors
///
/// Why the file cannot be read, with the fix.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = bytes(file, "create it, readable for this user only")?;
    Ok(without_newline(&bytes).to_owned())
}

/// The whole content of the file.
pub(super) fn bytes(file: &Path, fix: &str) -> Result<Vec<u8>, String> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(file)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| unreadable(file, &error, fix))?;
    match bytes.len() > MAX_BYTES {
        true => Err(format!("{} has more than 1 MiB; {fix}", file.display())),
        false => Ok(bytes),
    }
}

/// Without the newline that editors leave at the end.
pub fn without_newline(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Why a file cannot be read, and what to do.
pub(super) fn unreadable(file: &Path, error: &io::Error, fix: &str) -> String {
    let file = file.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{file} does not exist; {fix}"),
        io::ErrorKind::PermissionDenied => {
            format!("{file} may not be read by this user; change its owner or mode")
        }
        io::ErrorKind::IsADirectory => format!("{file} is a folder; {fix}"),
        io::ErrorKind::InvalidData => format!("{file} is not text (UTF-8); write it as text"),
        _ => format!("{file} cannot be read: {error}; {fix}"),
    }
}
