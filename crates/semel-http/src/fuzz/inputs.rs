//! Inputs for the fuzz tests: bytes picked by hand, then damaged.

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

type Seeds = &'static [&'static str];

/// Inputs that are valid for one of the parsers, or almost.
const TRICKY: &[u8] = b"\"\\,;:=%@?*-+.~/019eEuzZ {}[]\t\n\x00\x7f\xc3\xff";

/// Damaged seeds, and sometimes noise.
pub(super) fn inputs(seeds: Seeds) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => vec(any::<u8>(), 0..24), 7 => damaged(seeds)]
}

fn damaged(seeds: Seeds) -> impl Strategy<Value = Vec<u8>> {
    let edit = (0..6u8, any::<Index>(), select(TRICKY));
    (select(seeds), select(seeds), vec(edit, 0..4)).prop_map(|(seed, donor, edits)| {
        let mut bytes = seed.as_bytes().to_vec();
        for (kind, at, byte) in edits {
            damage(&mut bytes, kind, at, byte, donor.as_bytes());
        }
        bytes
    })
}

fn damage(bytes: &mut Vec<u8>, kind: u8, at: Index, byte: u8, donor: &[u8]) {
    let place = at.index(bytes.len() + 1);
    match kind {
        0 => bytes.truncate(place),
        1 => drop(bytes.splice(place..place, donor.iter().copied())),
        2 => bytes.extend_from_within(place..),
        3 if place < bytes.len() => drop(bytes.remove(place)),
        4 if place < bytes.len() => bytes[place] = byte,
        _ => bytes.insert(place, byte),
    }
}
