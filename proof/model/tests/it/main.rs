//! The model checker's tests: the protocol breaks no rule, and planted bugs are found.

mod conformance_promise;
mod known_bugs;
mod planted_bugs;
mod protocol;
mod stall;
