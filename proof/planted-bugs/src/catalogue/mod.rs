//! The list of planted bugs.

mod claim;
mod complete;
mod contest;
mod operator;
mod owner;
mod release;
mod whole_store;

use crate::PlantedBug;

/// Every planted bug. The conformance suite catches all of them.
pub fn all() -> impl Iterator<Item = &'static PlantedBug> {
    [
        claim::BUGS,
        contest::BUGS,
        owner::BUGS,
        complete::BUGS,
        release::BUGS,
        operator::BUGS,
        whole_store::BUGS,
    ]
    .into_iter()
    .flatten()
}

/// The planted bug with this name.
///
/// # Panics
///
/// When there is none: a test that names it would otherwise test nothing.
#[must_use]
pub fn named(name: &str) -> &'static PlantedBug {
    all().find(|bug| bug.name == name).unwrap_or_else(|| panic!("there is no bug `{name}`"))
}
