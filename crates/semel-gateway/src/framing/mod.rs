//! The stream between a client's socket and hyper. It lets no message through whose end two readers could see in two
//! places, and it ends a connection whose client stops sending or reading.
//!
//! hyper is lenient where the standard allows it: it accepts a bare line feed as the end of a line, accepts
//! `Content-Length` beside `Transfer-Encoding`, and keeps the connection. If a proxy in front reads the same bytes in
//! another way, an attacker can smuggle a second request.

mod chunks;
mod client_stream;
mod head;
mod other_protocol;
mod scanner;
#[cfg(test)]
mod tests;

pub(super) use self::{
    client_stream::{ClientStream, ConnectionState},
    other_protocol::OtherProtocol,
};
