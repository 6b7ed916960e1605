//! What stands between the socket and hyper: nothing gets through whose end two readers could see in
//! two places, and nobody keeps a connection waiting for ever.
//!
//! hyper is lenient where the standard allows it: it takes a bare line feed for a line end, resolves
//! `Content-Length` beside `Transfer-Encoding`, and goes on with the connection. Behind a proxy that
//! reads the same bytes otherwise, that is how a second request is smuggled in.

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
