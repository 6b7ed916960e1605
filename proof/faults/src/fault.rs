//! What can go wrong.

use std::time::Duration;

/// What happens to connections, those that are open and those to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// All is well.
    #[default]
    None,
    /// Everything arrives so much later, piece by piece.
    Slow(Duration),
    /// Nothing arrives until the fault ends; then everything does, in order, even of callers that left.
    Hold,
    /// Connects, and swallows both ways.
    BlackHole,
    /// Requests arrive, replies are swallowed.
    OneWay,
    /// Open connections go on, new ones are reset at once.
    Refuse,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

impl Fault {
    /// True when bytes that go this way are lost.
    pub(crate) const fn swallows(self, way: Way) -> bool {
        match (self, way) {
            (Self::BlackHole, _) | (Self::OneWay, Way::ToClient) => true,
            (Self::OneWay, Way::ToServer) => false,
            (Self::None | Self::Slow(_) | Self::Hold | Self::Refuse, _) => false,
        }
    }

    /// How long bytes are kept back.
    pub(crate) const fn delay(self) -> Duration {
        match self {
            Self::Slow(delay) => delay,
            Self::None | Self::Hold | Self::BlackHole | Self::OneWay | Self::Refuse => {
                Duration::ZERO
            }
        }
    }
}
