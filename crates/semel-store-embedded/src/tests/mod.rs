//! What a real folder cannot be made to do on demand: lose power, fill up, fail.

mod bench;
mod damage;
mod faults;
mod power_cut;
mod sim;
mod space;
