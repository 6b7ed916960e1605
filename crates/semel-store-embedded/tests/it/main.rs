//! The embedded store in real folders.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod conformance;
mod folder;
mod removed_files;
