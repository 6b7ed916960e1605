//! A client that can send any header and any framing, and can disconnect at any moment. Every request has a
//! connection of its own.

mod body;
mod connection;
mod request;
mod response;

pub(super) use self::connection::{PATIENCE, in_time};
pub use self::{
    connection::SentRequest,
    request::TestRequest,
    response::{ResponseStream, TestResponse},
};
