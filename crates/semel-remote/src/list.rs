//! One record of a list.

use semel_core::{ErrorKind, Record, Result, steps::StoreReply};

/// The record that a get found, unless this build cannot read it: then it is logged, so that it does not hide
/// the others.
///
/// # Errors
///
/// All but [`ErrorKind::Corrupt`] and [`ErrorKind::Unsupported`].
pub fn readable_record(store: &'static str, answer: Result<StoreReply>) -> Result<Option<Record>> {
    match answer {
        Ok(StoreReply::Get(sighting)) => Ok(sighting.map(|sighting| sighting.record)),
        Ok(other) => unreachable!("{store} said {other:?} to a get"),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
            tracing::error!(%error, "{store}: left out of a list");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
