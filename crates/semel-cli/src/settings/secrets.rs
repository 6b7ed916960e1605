//! Secrets in files.

use std::{fs, io, path::Path};

/// What the file holds, without the newline that editors leave at the end.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let fix = "create it, readable for this user only";
    let mut bytes = fs::read(file).map_err(|error| unreadable(file, &error, fix))?;
    for end in [b'\n', b'\r'] {
        bytes.pop_if(|byte| *byte == end);
    }
    Ok(bytes)
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
