//! What a real folder cannot be made to do on demand: lose power, fill up, fail.

mod compaction;
mod conformance;
mod damage;
mod faults;
mod power_cut;
mod simulated_disk;
mod test_store;
