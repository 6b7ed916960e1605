//! The faults of the proxy.

use std::time::Duration;

/// What the proxy does to open and new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Passes everything on.
    #[default]
    None,
    /// Delays every piece by this time.
    Slow(Duration),
    /// Holds everything back until the fault ends, then passes it on in order, even for callers that left.
    Hold,
    /// Accepts connections and drops everything in both directions.
    BlackHole,
    /// Passes requests on and drops replies.
    OneWay,
    /// Leaves open connections alone and resets new ones at once.
    Refuse,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

impl Fault {
    /// True when bytes in this direction are dropped.
    pub(crate) const fn swallows(self, direction: Direction) -> bool {
        match (self, direction) {
            (Self::BlackHole, _) | (Self::OneWay, Direction::ToClient) => true,
            (Self::OneWay, Direction::ToServer) => false,
            (Self::None | Self::Slow(_) | Self::Hold | Self::Refuse, _) => false,
        }
    }

    /// How long each piece is delayed.
    pub(crate) const fn delay(self) -> Duration {
        match self {
            Self::Slow(delay) => delay,
            Self::None | Self::Hold | Self::BlackHole | Self::OneWay | Self::Refuse => {
                Duration::ZERO
            }
        }
    }
}
