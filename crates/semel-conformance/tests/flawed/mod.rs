//! A store that keeps the protocol but for one flaw.

pub(crate) mod flaws;
mod store;

use std::time::Duration;

use semel_core::{
    AbandonRequest, ClaimRequest, CompleteRequest, Record, ReleaseRequest, RenewRequest,
    ResolveRequest, Timestamp,
};

pub(crate) use store::FlawedStore;

/// One thing that is wrong.
pub(crate) struct Flaw {
    pub(crate) name: &'static str,
    /// Bends what a step sees.
    pub(crate) before: fn(&mut Option<Record>, &mut Call),
    /// Bends what a step writes.
    pub(crate) after: fn(Seen<'_>, &mut Option<Record>),
    pub(crate) quirk: Quirk,
    /// Whether a sequence of single calls on one key can show it.
    pub(crate) shows_in_sequence: bool,
}

impl Flaw {
    pub(crate) const NONE: Self = Self {
        name: "none",
        before: |_, _| {},
        after: |_, _| {},
        quirk: Quirk::None,
        shows_in_sequence: true,
    };
}

/// What a step saw.
pub(crate) struct Seen<'a> {
    pub(crate) record: Option<&'a Record>,
    pub(crate) call: &'a Call,
    pub(crate) now: Timestamp,
}

/// Flaws beyond single steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    None,
    PurgeDeletesUnknown,
    PurgeForgetsHold,
    PurgeIgnoresItsLimit,
    GetShowsExpired,
    ListShowsExpired,
    ListRepeatsTheLast,
    ListIgnoresOrder,
    ListMatchesPrefixes,
    BatchAnswersInKeyOrder,
    BatchMissesTwins,
    StepsAreNotAtomic,
    TimeStandsStill,
}

/// A step on one key.
#[derive(Clone)]
pub(crate) enum Call {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    Release(ReleaseRequest),
    Abandon(AbandonRequest),
    Resolve(ResolveRequest),
    Erase,
    Forget,
}

/// Long enough for another thread to come in between.
pub(crate) const A_MOMENT: Duration = Duration::from_micros(50);
