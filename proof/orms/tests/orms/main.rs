//! The inbox keeps its promise in transactions of diesel-async and sea-orm, with the code of the page.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod page;
mod promise;
mod scene;
mod shop;
