//! A good reverse proxy: what is sent arrives, what is the connection's own stays on it.

mod connections;
mod forwarded;
mod headers;
mod keys;
mod modes;
mod responses;
mod routes;
mod streams;
