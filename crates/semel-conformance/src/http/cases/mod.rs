//! The cases, one function each. [`list`] names them all.

mod fingerprint;
mod headers;
mod keys;
mod limits;
#[macro_use]
mod list;
mod lost;
mod modes;
mod problems;
mod replay;
mod request;
mod running;
mod scope;
mod store;
mod streams;
mod verdicts;

use std::{fmt, pin::Pin};

use super::{Ability, HttpTarget, TestResponse, context::CaseContext};
use crate::promises::NameOnPanic;

type CaseCheck = for<'a> fn(&'a dyn HttpTarget) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One promise to the callers of every HTTP target.
#[derive(Clone, Copy)]
pub struct HttpCase {
    name: &'static str,
    says: &'static str,
    peers: &'static [&'static str],
    needs: &'static [Ability],
    check: CaseCheck,
}

impl HttpCase {
    /// Its name: subject and function, such as `replay::an_empty_body_is_replayed`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The promise, in a sentence.
    #[must_use]
    pub const fn says(&self) -> &'static str {
        self.says
    }

    /// Peers that broke it, and how.
    #[must_use]
    pub const fn peers(&self) -> &'static [&'static str] {
        self.peers
    }

    /// The ability that this case needs and the target does not have.
    #[must_use]
    pub fn missing_ability(&self, target: &dyn HttpTarget) -> Option<Ability> {
        self.needs.iter().copied().find(|ability| target.unsupported().contains(ability))
    }

    /// Checks a target against this case.
    ///
    /// # Panics
    ///
    /// If the target breaks the promise.
    pub async fn check(&self, target: &dyn HttpTarget) {
        let _name_on_panic = NameOnPanic(self.name);
        (self.check)(target).await;
    }
}

impl fmt::Debug for HttpCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! array {
    ([] $($subject:ident {
        $($case:ident $(needs $ability:ident)? $says:literal [$($peer:literal),* $(,)?])*
    })*) => {
        &[$($(HttpCase {
            name: concat!(stringify!($subject), "::", stringify!($case)),
            says: $says,
            peers: &[$($peer),*],
            needs: &[$(Ability::$ability)?],
            check: |target| Box::pin($subject::$case(CaseContext::new(target))),
        }),*),*]
    };
}

/// Every case, in the order in which a reader would check them.
pub const ALL: &[HttpCase] = __for_each_case!([array][]);

/// Asserts that `again` is the replay of an answer whose body was not kept.
fn assert_body_omitted(first: &TestResponse, again: &TestResponse) {
    assert!(again.is_replay(), "an answer without its body is marked as a replay: {again:?}");
    assert_eq!(again.status, first.status, "an omitted body leaves the status");
    for name in ["location", "content-type"] {
        assert_eq!(again.text(name), first.text(name), "an omitted body leaves {name}");
    }
    assert!(again.body.is_empty(), "a body is replayed whole or not at all");
    assert_eq!(again.text("idempotency-body"), Some("omitted"), "an omitted body is marked");
    let length = again.text("idempotency-body-length").map(str::to_owned);
    assert_eq!(
        length,
        Some(first.body.len().to_string()),
        "the length of the omitted body is sent"
    );
}
