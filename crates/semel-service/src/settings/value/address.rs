//! An address to listen on.

use std::{fmt, net::SocketAddr, str::FromStr};

use super::text::from_text;

/// An IP address and a port. Host names are refused: what they resolve to may change, and may be public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            "not an address; write IP:PORT, such as 127.0.0.1:8080 (this machine only), 0.0.0.0:8080 \
             (every interface) or [::1]:8080"
                .to_owned()
        })
    }
}

from_text!(ListenAddress, "an address such as \"127.0.0.1:8080\"");

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        for good in ["127.0.0.1:8080", "0.0.0.0:0", "[::1]:8080"] {
            assert_eq!(good.parse::<ListenAddress>().unwrap().to_string(), good);
        }
        for bad in
            ["", "8080", ":8080", "localhost:8080", "127.0.0.1", "127.0.0.1:65536", "::1:8080x"]
        {
            assert!(bad.parse::<ListenAddress>().unwrap_err().contains("IP:PORT"), "{bad}");
        }
    }
}
