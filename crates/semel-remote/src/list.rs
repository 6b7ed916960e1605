//! Leaves records that this build cannot read out of a list.

use semel_core::{ErrorKind, Record, Result, steps::StoreReply};

/// The record in the reply to a get. A record that this build cannot read is logged and left out, so that it does not
/// hide the others.
///
/// # Errors
///
/// All but [`ErrorKind::Corrupt`] and [`ErrorKind::Unsupported`].
pub fn readable_record(store: &'static str, answer: Result<StoreReply>) -> Result<Option<Record>> {
    match answer {
        Ok(StoreReply::Get(sighting)) => Ok(sighting.map(|sighting| sighting.record)),
        Ok(other) => unreachable!("{store} replied {other:?} to a get"),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
            tracing::error!(%error, "{store}: left out of a list");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
