//! The routes that a target is configured with. All accept POST, with a backoff of 50 ms.

use std::time::Duration;

/// The default policy. Also for GET, HEAD, PUT, PATCH and DELETE.
pub const PLAIN: &str = "/kit/plain";
/// A template: `/kit/items/{id}`, here with the id 1.
pub const ITEM: &str = "/kit/items/1";
/// Does not wait for a run: wait 0.
pub const IMPATIENT: &str = "/kit/impatient";
/// A key is required.
pub const REQUIRED: &str = "/kit/required";
/// A lost owner's key is held for an operator.
pub const HOLD: &str = "/kit/hold";
/// Two attempts at most.
pub const CAPPED: &str = "/kit/capped";
/// Success and failure are kept for [`BRIEF_RETENTION`].
pub const BRIEF: &str = "/kit/brief";
/// Long enough that a test sees the outcome kept, short enough that it can wait for the end.
pub const BRIEF_RETENTION: Duration = Duration::from_millis(700);
/// Mode `observe`.
pub const OBSERVE: &str = "/kit/observe";
/// Mode `off`.
pub const OFF: &str = "/kit/off";
/// A mismatch is answered with 422.
pub const UNPROCESSABLE: &str = "/kit/unprocessable";
/// Bodies of up to 1 KiB, both ways.
pub const SMALL: &str = "/kit/small";
/// Requests of up to 4 MiB.
pub const LARGE: &str = "/kit/large";
/// Canonical JSON that leaves `/sent_at` out.
pub const CANONICAL: &str = "/kit/canonical";
/// The key may come from the JSON pointer `/request_id`.
pub const POINTER: &str = "/kit/pointer";
/// Server errors are final.
pub const FINAL: &str = "/kit/final";
