//! The gateway as a reverse proxy: messages arrive unchanged, and hop-by-hop headers are removed.

mod connections;
mod forwarded;
mod headers;
mod keys;
mod modes;
mod responses;
mod routes;
mod streams;
