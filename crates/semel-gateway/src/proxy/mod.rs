//! The far side: sends a request to its upstream, and says what became of it.

mod body;
mod connection;
mod headers;
mod pool;
mod service;
mod socket;
mod upload;

pub(super) use self::{
    body::ProxyBody,
    headers::{HeaderRules, connection_names_ours},
    pool::{ConnectionPool, ProxyUpstream},
    service::ReverseProxy,
};
