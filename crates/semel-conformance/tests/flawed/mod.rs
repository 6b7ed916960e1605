//! A small door that keeps the promises the tester is tested with, unless it is told to break one.

mod guard;

use async_trait::async_trait;
use http::Uri;
use semel_conformance::http::{Ability, HttpTarget, TestServer, TestUpstream, serve};

use self::guard::Guard;

/// What a door does wrong: each is a bug that a real one had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    GuardsNothing,
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

/// A door over a map in memory, or none at all.
pub(crate) struct Flawed(TestServer, TestUpstream);

impl Flawed {
    pub(crate) async fn open(flaw: Flaw) -> Self {
        let upstream = TestUpstream::new();
        Self(serve(Guard::new(upstream.clone(), flaw)).await, upstream)
    }

    pub(crate) async fn bare() -> Self {
        let upstream = TestUpstream::new();
        Self(upstream.serve().await, upstream)
    }
}

#[async_trait]
impl HttpTarget for Flawed {
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
