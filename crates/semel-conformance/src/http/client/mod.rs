//! A client that can be rude: any header, any framing, and a hang-up at the worst moment. Every
//! request has a connection of its own.

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
