//! The routes that a target is configured with. All accept POST, with a backoff of 50 ms.

use std::time::Duration;

/// The default policy. Also for GET, HEAD, PUT, PATCH and DELETE.
pub const PLAIN: &str = "/test/plain";
/// A template: `/test/items/{id}`, here with the id 1.
pub const ITEM: &str = "/test/items/1";
/// Does not wait for a run: wait 0.
pub const IMPATIENT: &str = "/test/impatient";
/// A key is required.
pub const REQUIRED: &str = "/test/required";
/// A lost owner's key is held for an operator.
pub const HOLD: &str = "/test/hold";
/// Two attempts at most.
pub const CAPPED: &str = "/test/capped";
/// Success and failure are kept for [`BRIEF_RETENTION`].
pub const BRIEF: &str = "/test/brief";
/// Long enough that a test sees the outcome kept, short enough that it can wait for the end.
pub const BRIEF_RETENTION: Duration = Duration::from_millis(700);
/// Mode `observe`.
pub const OBSERVE: &str = "/test/observe";
/// Mode `off`.
pub const OFF: &str = "/test/off";
/// A mismatch is answered with 422.
pub const UNPROCESSABLE: &str = "/test/unprocessable";
/// Bodies of up to 1 KiB, both ways.
pub const SMALL: &str = "/test/small";
/// Requests of up to 4 MiB.
pub const LARGE: &str = "/test/large";
/// Canonical JSON that leaves `/sent_at` out.
pub const CANONICAL: &str = "/test/canonical";
/// The key may come from the JSON pointer `/request_id`.
pub const POINTER: &str = "/test/pointer";
/// Server errors are final.
pub const FINAL: &str = "/test/final";
