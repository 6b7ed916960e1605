//! `impl Store` for stores that take steps as values.

/// Implements [`Store`](crate::Store) for a type that takes steps as [`Call`](crate::steps::Call)s, in its
/// methods `call` and `call_all`. Whatever is no step on one key stands in the braces.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_by_calls {
    (impl Store for $store:ident { $($rest:tt)* }) => {
        #[::async_trait::async_trait]
        impl $crate::Store for $store {
            $($rest)*

            async fn claim(&self, request: &$crate::ClaimRequest) -> $crate::Result<$crate::Claim> {
                $crate::__ask!(self, Claim(request.clone()))
            }

            async fn renew(&self, request: &$crate::RenewRequest) -> $crate::Result<$crate::Renewal> {
                $crate::__ask!(self, Renew(*request))
            }

            async fn complete(
                &self,
                request: &$crate::CompleteRequest,
            ) -> $crate::Result<$crate::Completion> {
                $crate::__ask!(self, Complete(request.clone()))
            }

            async fn release(
                &self,
                request: &$crate::ReleaseRequest,
            ) -> $crate::Result<$crate::Release> {
                $crate::__ask!(self, Release(*request))
            }

            async fn abandon(
                &self,
                request: &$crate::AbandonRequest,
            ) -> $crate::Result<$crate::Abandonment> {
                $crate::__ask!(self, Abandon(*request))
            }

            async fn claim_many(
                &self,
                requests: &[$crate::ClaimRequest],
            ) -> Vec<$crate::Result<$crate::Claim>> {
                $crate::__ask_all!(self, Claim(requests))
            }

            async fn renew_many(
                &self,
                requests: &[$crate::RenewRequest],
            ) -> Vec<$crate::Result<$crate::Renewal>> {
                $crate::__ask_all!(self, Renew(requests))
            }

            async fn complete_many(
                &self,
                requests: &[$crate::CompleteRequest],
            ) -> Vec<$crate::Result<$crate::Completion>> {
                $crate::__ask_all!(self, Complete(requests))
            }

            async fn release_many(
                &self,
                requests: &[$crate::ReleaseRequest],
            ) -> Vec<$crate::Result<$crate::Release>> {
                $crate::__ask_all!(self, Release(requests))
            }

            async fn resolve(
                &self,
                request: &$crate::ResolveRequest,
            ) -> $crate::Result<$crate::Resolution> {
                $crate::__ask!(self, Resolve(request.clone()))
            }

            async fn erase(&self, key: &$crate::KeyHash) -> $crate::Result<$crate::Erasure> {
                $crate::__ask!(self, Erase(*key))
            }

            async fn forget(&self, key: &$crate::KeyHash) -> $crate::Result<$crate::Forgetting> {
                $crate::__ask!(self, Forget(*key))
            }

            async fn get(&self, key: &$crate::KeyHash) -> $crate::Result<Option<$crate::Sighting>> {
                Ok($crate::__ask!(self, Get(*key))?.map(|sighting| *sighting))
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __ask {
    ($store:ident, $kind:ident($request:expr)) => {
        $crate::__said!($store.call($crate::steps::Call::$kind($request)).await, $kind)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __ask_all {
    ($store:ident, $kind:ident($requests:expr)) => {{
        let calls = $requests.iter().cloned().map($crate::steps::Call::$kind).collect();
        $store.call_all(calls).await.into_iter().map(|said| $crate::__said!(said, $kind)).collect()
    }};
}

/// Unwraps what was said to a call of the same kind.
#[doc(hidden)]
#[macro_export]
macro_rules! __said {
    ($answer:expr, $kind:ident) => {
        $answer.map(|said| match said {
            $crate::steps::Said::$kind(answer) => answer,
            other => unreachable!("a store said {other:?} to another kind of call"),
        })
    };
}
