//! The reverse proxy: sends a request to its upstream, and turns the result into a response.

mod body;
mod connection;
mod headers;
mod pool;
mod service;
mod socket;
mod upload;

pub(super) use self::{
    body::ProxyBody,
    headers::{HeaderRules, connection_names_end_to_end},
    pool::{ConnectionPool, ProxyUpstream},
    service::ReverseProxy,
};
