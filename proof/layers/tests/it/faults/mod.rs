//! What layers promise when one of their two servers is gone, silent or late.

mod arbiter;
mod belonging;
mod failover;
mod load;
