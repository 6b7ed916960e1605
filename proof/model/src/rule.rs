//! What must never happen.

use std::fmt;

use stateright::Property;

use crate::{Protocol, world::World};

macro_rules! rules {
    ($($rule:ident = $words:literal;)*) => {
        /// What must never be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $(#[doc = $words] $rule,)*
        }

        impl Rule {
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
            vec![$(Property::always($words, |_, world: &World| !world.broken.has(Rule::$rule)),)*]
        }
    };
}

rules! {
    HoldRunsOnce = "on hold at most one run may have had an effect, unless an operator reopened the key";
    OneOutcome = "a key has one outcome in its life";
    OutcomeStays = "a recorded outcome neither changes nor vanishes before it expires";
    RecordedIsStored = "an owner who is told Recorded has its outcome stored";
    OwnerIsHeard = "an owner nobody took over from may renew, complete and give back";
    StaleChangesNothing = "a stale pair changes nothing";
    NoEarlyTakeover = "nobody takes over before the owner stayed silent for its own whole lease";
    LeaseEnds = "a lease ends when its owner stayed silent for its length";
    MaxRunEnds = "no lease is renewed beyond max_run";
    AbandonedIsFinal = "an abandoned lease is not armed again";
    RetryIsGranted = "a claim whose reply was lost is granted again as the same one";
    LateCopyGrantsNobody = "a late copy of a released claim grants nobody";
    TokensRise = "a token rises with every grant in a record's life";
    WithinTheCap = "nobody is granted more attempts than the first claim allowed";
    NotDeadBelowTheCap = "no key is dead below the cap of its first claim";
    OneFingerprint = "once a run may have had an effect, no run has another fingerprint";
    MismatchFirst = "who asks for something else is told so, whatever the state";
    EndsStay = "a key's state is what the answers said, and changes only as the table says";
    KeptInTime = "a record is there exactly as long as it is to be kept";
    PurgeSparesTheLiving = "purge deletes only what has expired";
    ForgetSparesTheUndecided = "nothing is forgotten that may have an effect in flight";
    DecidesWhatWasSeen = "a decision meets the claim that the operator looked at";
    StuckIsResolvable = "a stuck key can be reopened, and is granted then";
    NeverStuck = "every key moves on: a lease ends, a record expires, an unknown key waits for an operator";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A set of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken(u32);

impl Broken {
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) const fn only(rule: Rule) -> Self {
        Self(1 << rule as u32)
    }

    pub(crate) const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn add(&mut self, rule: Rule) {
        self.0 |= 1 << rule as u32;
    }
}

impl World {
    /// Notes that `rule` is broken unless `kept`.
    pub(crate) const fn require(&mut self, rule: Rule, kept: bool) {
        if !kept {
            self.broken.add(rule);
        }
    }
}
