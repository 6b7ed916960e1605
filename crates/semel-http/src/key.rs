//! The `Idempotency-Key` header: from field lines to the caller's id.
