//! What layers promise when one of their two servers is down, silent or late.

mod arbiter;
mod failover;
mod front_ownership;
mod load;
