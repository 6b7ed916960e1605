//! The binary as its users meet it.

#![allow(clippy::unwrap_used)] // outside of test functions too

mod settings;
