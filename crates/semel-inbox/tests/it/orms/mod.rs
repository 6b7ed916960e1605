//! The inbox keeps its promise in transactions of diesel-async and sea-orm. `docs/inbox-orms.md` prints
//! `diesel_async.rs` and `sea_orm.rs`, to be copied; a test compares page and files.

mod database;
#[expect(unreachable_pub, reason = "the file is printed as part of a library")]
mod diesel_async;
mod page;
mod promise;
#[expect(unreachable_pub, reason = "the file is printed as part of a library")]
mod sea_orm;
mod shop;
