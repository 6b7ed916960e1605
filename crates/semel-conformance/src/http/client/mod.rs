//! A client that can be rude: any header, any framing, and a hang-up at the worst moment. Every
//! request has a connection of its own.

mod answer;
mod ask;
mod body;
mod connection;

pub(super) use self::connection::{PATIENCE, in_time};
pub use self::{
    answer::{Answer, Reply},
    ask::Ask,
    connection::Started,
};
