//! The flaws, one by one.

mod claim;
mod complete;
mod operator;
mod owner;
mod release;
mod whole_store;

use crate::Flaw;

/// Every flaw. The conformance kit catches all of them.
pub fn all() -> impl Iterator<Item = &'static Flaw> {
    [
        claim::FLAWS,
        owner::FLAWS,
        complete::FLAWS,
        release::FLAWS,
        operator::FLAWS,
        whole_store::FLAWS,
    ]
    .into_iter()
    .flatten()
}

/// The flaw of this name.
///
/// # Panics
///
/// When there is none: a test that names it would otherwise test nothing.
#[must_use]
pub fn named(name: &str) -> &'static Flaw {
    all().find(|flaw| flaw.name == name).unwrap_or_else(|| panic!("there is no flaw `{name}`"))
}
