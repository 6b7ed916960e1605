//! Faults of the source in memory.

/// How often something happens: `numerator` of `denominator` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRate {
    /// Times that it happens.
    pub numerator: u32,
    /// Of so many.
    pub denominator: u32,
}

impl FaultRate {
    /// It does not happen.
    pub const NEVER: Self = Self { numerator: 0, denominator: 1 };
    /// It happens each time.
    pub const ALWAYS: Self = Self { numerator: 1, denominator: 1 };

    /// `numerator` of `denominator` times.
    #[must_use]
    pub const fn of(numerator: u32, denominator: u32) -> Self {
        Self { numerator, denominator }
    }

    pub(super) fn happens(self) -> bool {
        self.numerator > 0
            && rand::random_ratio(self.numerator.min(self.denominator), self.denominator.max(1))
    }
}

/// What goes wrong in a [`MemorySource`](super::MemorySource).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFaults {
    /// The broker cannot be reached: nothing is received or settled.
    pub is_down: bool,
    /// The broker does not get a settlement, and the consumer gets an error.
    pub lost_settlements: FaultRate,
    /// The broker gets a settlement, but its confirmation is lost: the consumer gets an error.
    pub lost_confirmations: FaultRate,
    /// A message is delivered a second time while its first delivery is open.
    pub early_redeliveries: FaultRate,
    /// Messages do not say how often they were delivered.
    pub hides_deliveries: bool,
}

impl MemoryFaults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        is_down: false,
        lost_settlements: FaultRate::NEVER,
        lost_confirmations: FaultRate::NEVER,
        early_redeliveries: FaultRate::NEVER,
        hides_deliveries: false,
    };
}

impl Default for MemoryFaults {
    fn default() -> Self {
        Self::NONE
    }
}
