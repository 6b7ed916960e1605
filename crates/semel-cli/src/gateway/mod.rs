//! `semel gateway`: the promise of the HTTP layer in front of any service.

pub(crate) mod admin;
pub(crate) mod metrics;
pub(crate) mod principal;
