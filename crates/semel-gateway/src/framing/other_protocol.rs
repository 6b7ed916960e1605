//! Recognises clients that speak another protocol than HTTP/1: they get a reply in their protocol if possible, and the
//! log names them.

use std::{
    fmt,
    net::SocketAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{debug, warn};

/// A protocol other than HTTP/1, recognised by the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherProtocol {
    Tls,
    Http2,
}

impl OtherProtocol {
    /// Empty SETTINGS, then GOAWAY: no stream was processed, HTTP_1_1_REQUIRED (RFC 9113, 7).
    const GOAWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0d";
    /// How often each protocol is logged as a warning.
    const LOG_EVERY: Duration = Duration::from_secs(60);

    /// The protocol that these first bytes of a connection belong to, if it is not HTTP/1.
    pub(super) fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // A TLS record of type handshake, of any version.
            [0x16, 0x03, 0..=4, ..] => Some(Self::Tls),
            _ if bytes.starts_with(b"PRI * HTTP/2.0\r\n") => Some(Self::Http2),
            _ => None,
        }
    }

    /// The reply in the client's own protocol. TLS clients get the 400 of HTTP/1, which several of them recognise.
    pub(super) const fn reply(self) -> Option<&'static [u8]> {
        match self {
            Self::Tls => None,
            Self::Http2 => Some(Self::GOAWAY),
        }
    }

    /// Logs this client: as a warning once a minute, else at debug level.
    pub(crate) fn log(self, peer: SocketAddr) {
        static LOGGED: [Mutex<Option<Instant>>; 2] = [const { Mutex::new(None) }; 2];
        let mut logged = LOGGED[self as usize].lock();
        if logged.is_some_and(|at| at.elapsed() < Self::LOG_EVERY) {
            debug!(%peer, "a client speaks {self} to this port");
            return;
        }
        *logged = Some(Instant::now());
        warn!(%peer, "a client speaks {self} to this port, which speaks HTTP/1.1 without TLS; {}", self.fix());
    }

    const fn fix(self) -> &'static str {
        match self {
            Self::Tls => "use http:// in its URL, or terminate TLS in front of the gateway",
            Self::Http2 => "switch HTTP/2 off in the client, or in the proxy in front",
        }
    }
}

impl fmt::Display for OtherProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "TLS",
            Self::Http2 => "HTTP/2",
        })
    }
}
