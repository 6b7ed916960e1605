//! The inbox in transactions of diesel-async and sea-orm. Both files are printed in `docs/inbox-orms.md`, to be
//! copied: a test holds page and files together.

pub mod diesel_async;
pub mod sea_orm;
