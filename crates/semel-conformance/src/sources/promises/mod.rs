//! Promises of a source alone, one function each.

pub(super) mod connections;
pub(super) mod deadlines;
pub(super) mod handover;
pub(super) mod settling;

use std::sync::Arc;

use super::SourceFixture;

/// The fixture of one promise.
pub(super) type Fixture = Arc<dyn SourceFixture>;
