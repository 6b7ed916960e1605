//! A small HTTP target that passes the cases of the planted bugs, unless it has one of the bugs.

mod layer;

use async_trait::async_trait;
use http::Uri;
use semel_conformance::http::{Ability, HttpTarget, TestServer, TestUpstream, serve};

use self::layer::FlawedLayer;

/// A planted bug. Each is a bug that a real implementation had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpFlaw {
    None,
    ProtectsNothing,
    ClaimsNothing,
    LeavesThePrincipalOut,
    LowersKeys,
    IgnoresTheBody,
    ComparesSizedBodiesOnly,
    ReplaysCookies,
    KeepsTheLastOfRepeatedHeaders,
    ReadsBodiesAsText,
    RunsAgainOnEmptyBodies,
    KeepsServerErrors,
    DropsTheWorkOnHangUp,
    RecordsItsOwnAnswers,
}

/// The flawed layer as a target, or the upstream without a layer.
pub(crate) struct FlawedTarget(TestServer, TestUpstream);

impl FlawedTarget {
    pub(crate) async fn open(flaw: HttpFlaw) -> Self {
        let upstream = TestUpstream::new();
        Self(serve(FlawedLayer::new(upstream.clone(), flaw)).await, upstream)
    }

    pub(crate) async fn bare() -> Self {
        let upstream = TestUpstream::new();
        Self(upstream.serve().await, upstream)
    }
}

#[async_trait]
impl HttpTarget for FlawedTarget {
    fn base_url(&self) -> Uri {
        self.0.base_url()
    }
    fn upstream(&self) -> &TestUpstream {
        &self.1
    }
    fn unsupported(&self) -> &[Ability] {
        &[Ability::Erase, Ability::BreakStore]
    }
    async fn erase(&self, _: &str, _: &str, _: &str) {}
    async fn break_store(&self) {}
    async fn repair_store(&self) {}
}
