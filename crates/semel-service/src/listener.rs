//! A listener in two steps: the port is taken early, and connections are accepted once the store is open.

use std::{io, net::SocketAddr};

use anyhow::{Result, anyhow};
use tokio::net::{TcpListener, TcpSocket};

/// A port that is bound and not yet listened on: the kernel refuses connections to it.
#[derive(Debug)]
pub struct BoundPort {
    socket: TcpSocket,
    address: SocketAddr,
    flag: &'static str,
}

impl BoundPort {
    /// The most connections that wait to be accepted.
    const BACKLOG: u32 = 1024;

    /// Binds `address`, which was set with `flag`.
    ///
    /// # Errors
    ///
    /// When the port is in use, or the address is not one of this machine's. The error names `flag`.
    pub fn bind(address: SocketAddr, flag: &'static str) -> Result<Self> {
        let bind = || {
            let socket =
                if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Without it, connections of a process that has just ended would keep the port.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| cannot_listen(address, flag, &error))?;
        Ok(Self { socket, address, flag })
    }

    /// Accepts connections from now on.
    ///
    /// # Errors
    ///
    /// When the system refuses. The error names the flag.
    pub fn listen(self) -> Result<TcpListener> {
        let Self { socket, address, flag } = self;
        socket.listen(Self::BACKLOG).map_err(|error| cannot_listen(address, flag, &error))
    }
}

fn cannot_listen(address: SocketAddr, flag: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "cannot listen on {address}: the port is in use; stop what listens there, or choose \
             another address with {flag}"
        ),
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with {flag}"),
    }
}
