//! The far side: sends a request to its upstream, and says what became of it.

mod body;
mod connection;
mod headers;
mod pool;
mod progress;
mod service;
mod socket;

pub(super) use self::{
    body::ProxyBody,
    headers::{HeaderRules, connection_names_ours},
    pool::{Pool, Upstream},
    service::Proxy,
};
