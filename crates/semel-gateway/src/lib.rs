//! `semel gateway`: the layer of `semel-http` around a reverse proxy. [`run()`] is all that the binary calls.
//!
//! A request passes these modules: `server` accepts the connection, `framing` scans its bytes, `client_service` and
//! `checked_request` check its head, `routes` finds its upstream, `pipeline` holds the idempotency layer, and `proxy`
//! forwards it.
//!
//! This crate is internal to the binary: it is not published. Its settings are read and checked by `semel-service`.

mod checked_request;
mod client_service;
mod deadline;
mod demo;
mod framing;
mod metrics;
mod pipeline;
mod principal;
mod proxy;
mod readiness;
mod rotation;
mod routes;
mod run;
mod server;
mod store_health;
#[cfg(test)]
mod tests;
mod upstream_probe;

pub use self::run::run;
