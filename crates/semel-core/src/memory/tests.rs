//! Bounds and expiry of the memory store.
