//! The errors for data that does not open. None of them may look like a store that is down: a policy may run work
//! without protection then.

use semel_core::{Error, ErrorKind, KeyHash};

use crate::{seal::SealedPart, seal_keys::SealKeys};

/// The data is sealed with a key that is not in the ring.
pub(crate) fn no_key(record: &KeyHash, part: SealedPart, id: &str, keys: &SealKeys) -> Error {
    let ids = keys.ids().collect::<Vec<_>>().join(", ");
    corrupt(format!(
        "record {record}: its {part} is sealed with key {id}, which is not among the seal keys ({ids}); put \
         {id} back"
    ))
}

/// The authentication tag does not fit.
pub(crate) fn not_opened(record: &KeyHash, part: SealedPart, id: &str) -> Error {
    corrupt(format!(
        "record {record}: its {part} does not open with key {id}: it was changed, moved here from another \
         record, or sealed with another key of that name; restore the record, or the key"
    ))
}

/// The data is not sealed, and unsealed records are not accepted.
pub(crate) fn not_sealed(record: &KeyHash, part: SealedPart) -> Error {
    corrupt(format!(
        "record {record}: its {part} is not sealed; if it is from before sealing began, accept unsealed \
         records until they have expired"
    ))
}

/// The data is marked as sealed, but this layer did not make it.
pub(crate) fn damaged(record: &KeyHash, part: SealedPart) -> Error {
    corrupt(format!("record {record}: its sealed {part} is damaged; restore the record"))
}

/// The data was made by a newer version of this layer.
pub(crate) fn too_new(record: &KeyHash, part: SealedPart, version: u8) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "record {record}: its {part} is sealed in format {version}, newer than this build reads; upgrade \
             this node first"
        ),
    )
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}
