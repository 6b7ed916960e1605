//! Tests of the consumer over its source in memory, and of dead letters on a server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attempts;
#[cfg(feature = "postgres")]
mod dead_letters_postgres;
mod fixture;
mod identity;
mod settings;
mod source_end;
#[cfg(feature = "inbox")]
mod transaction;
