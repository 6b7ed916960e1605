//! The HTTP target under test.

use std::fmt;

use async_trait::async_trait;
use http::Uri;

use super::TestUpstream;

/// A service that implements `Idempotency-Key` in front of a [`TestUpstream`], such as a layer or a gateway. It is
/// configured with the route table of the [module's page](super).
#[async_trait]
pub trait HttpTarget: Send + Sync + 'static {
    /// The URL that it serves: `http://`, host, port, and an optional path before the routes.
    fn base_url(&self) -> Uri;

    /// The upstream behind it.
    fn upstream(&self) -> &TestUpstream;

    /// The abilities that this target does not have. Cases that need one are reported as not shown, never as kept.
    fn unsupported(&self) -> &[Ability];

    /// Erases the record of a caller's id as an operator would. `operation` is method and route,
    /// such as `POST /test/plain`; `authorization` the caller's header.
    async fn erase(&self, operation: &str, authorization: &str, id: &str);

    /// Makes every call to the store fail until [`HttpTarget::repair_store`].
    async fn break_store(&self);

    /// Ends [`HttpTarget::break_store`].
    async fn repair_store(&self);
}

const _: Option<&dyn HttpTarget> = None; // Fails to compile if `HttpTarget` stops being object safe.

/// An ability that some cases need and not every target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// An operator can erase a record.
    Erase,
    /// The store can be made to fail.
    BreakStore,
    /// Trailers go through, both ways.
    Trailers,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Erase => "erasing a record",
            Self::BreakStore => "a store that fails",
            Self::Trailers => "trailers",
        })
    }
}
