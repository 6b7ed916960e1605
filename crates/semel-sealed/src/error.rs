//! Why something does not open. None of these may be taken for a store that is down: work would run
//! without protection where a policy allows that.

use semel_core::{Error, ErrorKind, KeyHash};

use crate::{keys::Keys, seal::What};

/// Sealed with a key that is not here.
pub(crate) fn no_key(record: &KeyHash, what: What, id: &str, keys: &Keys) -> Error {
    let ids = keys.ids().collect::<Vec<_>>().join(", ");
    corrupt(format!(
        "record {record}: its {what} is sealed with key {id}, which is not among the seal keys ({ids}); put \
         {id} back"
    ))
}

/// The tag is not the one these bytes should have.
pub(crate) fn not_opened(record: &KeyHash, what: What, id: &str) -> Error {
    corrupt(format!(
        "record {record}: its {what} does not open with key {id}: it was changed, moved here from another \
         record, or sealed with another key of that name; restore the record, or the key"
    ))
}

/// Neither sealed nor expected to be clear.
pub(crate) fn not_sealed(record: &KeyHash, what: What) -> Error {
    corrupt(format!(
        "record {record}: its {what} is not sealed; if it is from before sealing began, accept unsealed \
         records until they have expired"
    ))
}

/// Marked as sealed, but not made by this layer.
pub(crate) fn damaged(record: &KeyHash, what: What) -> Error {
    corrupt(format!("record {record}: its sealed {what} is damaged; restore the record"))
}

/// Made by a newer layer.
pub(crate) fn too_new(record: &KeyHash, what: What, version: u8) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "record {record}: its {what} is sealed in format {version}, newer than this build reads; upgrade \
             this node first"
        ),
    )
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}
