//! Opens an embedded store in a folder.

use std::{error::Error as _, io, path::Path};

use semel_core::{Error, Result};
use semel_store_embedded::EmbeddedStore;

use super::StoreOptions;

pub(super) fn open(folder: &Path, options: &StoreOptions) -> Result<EmbeddedStore> {
    let builder = EmbeddedStore::builder(folder);
    let secret = options.hash_secret.clone();
    let builder = secret.into_iter().fold(builder, |builder, secret| builder.hash_secret(secret));
    builder.open().map_err(|error| with_fix(&error))
}

/// Adds to the error of a folder what to do about it.
fn with_fix(error: &Error) -> Error {
    let what = error.to_string();
    let what = what.trim_start_matches("embedded store: ");
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let fix = cause.map_or_else(String::new, |cause| format!("; {}", fix(cause.kind())));
    Error::new(error.kind(), format!("{what}{fix}")).with_source(error.clone())
}

const fn fix(cause: io::ErrorKind) -> &'static str {
    match cause {
        io::ErrorKind::NotADirectory => "name a folder, not a file, with file:PATH",
        io::ErrorKind::NotFound => "make the folder above it, or name another with file:PATH",
        io::ErrorKind::PermissionDenied => {
            "let this user write there, or name another folder with file:PATH"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "name a folder on a disk that can be written with file:PATH"
        }
        io::ErrorKind::StorageFull => "free space on that disk",
        _ => "repair the folder, or name another one with file:PATH",
    }
}
