//! The rules of the protocol: what must never happen.

use std::fmt;

use stateright::Property;

use crate::{Protocol, world::WorldState};

macro_rules! rules {
    ($($rule:ident = $words:literal;)*) => {
        /// A rule of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ProtocolRule {
            $(#[doc = $words] $rule,)*
        }

        impl ProtocolRule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// The rule as a sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$rule => $words,)*
                }
            }
        }

        pub(crate) fn properties() -> Vec<Property<Protocol>> {
            vec![$(Property::always($words, |_, world: &WorldState| !world.broken.has(ProtocolRule::$rule)),)*]
        }
    };
}

rules! {
    HoldRunsOnce = "on hold at most one run may have had an effect, unless an operator reopened the key";
    OneOutcome = "a key has one outcome in its life";
    OutcomeStays = "a recorded outcome neither changes nor vanishes before it expires";
    RecordedIsStored = "an owner that gets Recorded has its outcome stored";
    OwnerIsAccepted = "an owner that was not superseded may renew, complete and release";
    SupersededChangesNothing = "a superseded owner changes nothing";
    NoEarlyTakeover =
        "no takeover before the owner's whole lease and a grace period have passed without a renewal";
    LeaseEnds = "a lease ends when its length and one grace period have passed without a renewal";
    MaxRunEnds = "no lease is renewed beyond max_run";
    AbandonedIsFinal = "an abandoned lease is not extended";
    RetryIsGranted = "a claim whose reply was lost is granted again as the same claim";
    LateCopyIsNotGranted = "a late copy of a released claim is not granted";
    TokensRise = "a token rises with every grant in a record's life";
    WithinTheLimit = "no more attempts are granted than the first claim allowed";
    NotDeadBelowTheLimit = "no key is dead below the limit of attempts of its first claim";
    OneFingerprint = "once a run may have had an effect, no run has another fingerprint";
    MismatchFirst = "a claim with another fingerprint gets Mismatch in every state";
    StateFollowsTable = "a key's state agrees with the replies, and changes only as the protocol's table says";
    KeptInTime = "a record exists exactly for its retention";
    PurgeDeletesOnlyExpired = "a purge deletes only expired records";
    ForgetRefusesUndecided = "no key is forgotten while its effect is undecided";
    DecisionFitsTheClaim = "a decision applies only to the claim that the operator read";
    StuckIsResolvable = "a stuck key can be reopened, and is then granted";
    AlwaysProgress = "every key makes progress: a lease ends, a record expires, an unknown key waits for an operator";
}

impl fmt::Display for ProtocolRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A set of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BrokenRules(u32);

impl BrokenRules {
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) const fn only(rule: ProtocolRule) -> Self {
        Self(1 << rule as u32)
    }

    pub(crate) const fn has(self, rule: ProtocolRule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn add(&mut self, rule: ProtocolRule) {
        self.0 |= 1 << rule as u32;
    }
}

impl WorldState {
    /// Adds `rule` to the broken rules unless `kept`.
    pub(crate) const fn require(&mut self, rule: ProtocolRule, kept: bool) {
        if !kept {
            self.broken.add(rule);
        }
    }
}
