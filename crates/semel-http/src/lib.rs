//! `Idempotency-Key` for tower and axum services: one effect per request, however often it is sent.

mod canonical;
#[cfg(test)]
mod fuzz;
mod key;
