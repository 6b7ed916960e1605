//! Implements `Store` for a type that takes each step as a [`StoreRequest`](semel_core::steps::StoreRequest).

/// Implements [`Store`](semel_core::Store) for a type with the methods `call` and `call_all`, which take a
/// [`StoreRequest`](semel_core::steps::StoreRequest). The methods that are no step on one key are written in the braces.
#[macro_export]
macro_rules! impl_store_by_requests {
    (impl Store for $store:ident { $($rest:tt)* }) => {
        #[::async_trait::async_trait]
        impl $crate::__core::Store for $store {
            $($rest)*

            async fn claim(&self, request: &$crate::__core::ClaimRequest) -> $crate::__core::Result<$crate::__core::Claim> {
                $crate::__send_request!(self, Claim(request.clone()))
            }

            async fn renew(&self, request: &$crate::__core::RenewRequest) -> $crate::__core::Result<$crate::__core::Renewal> {
                $crate::__send_request!(self, Renew(*request))
            }

            async fn complete(
                &self,
                request: &$crate::__core::CompleteRequest,
            ) -> $crate::__core::Result<$crate::__core::Completion> {
                $crate::__send_request!(self, Complete(request.clone()))
            }

            async fn release(
                &self,
                request: &$crate::__core::ReleaseRequest,
            ) -> $crate::__core::Result<$crate::__core::Release> {
                $crate::__send_request!(self, Release(*request))
            }

            async fn abandon(
                &self,
                request: &$crate::__core::AbandonRequest,
            ) -> $crate::__core::Result<$crate::__core::Abandonment> {
                $crate::__send_request!(self, Abandon(*request))
            }

            async fn claim_many(
                &self,
                requests: &[$crate::__core::ClaimRequest],
            ) -> Vec<$crate::__core::Result<$crate::__core::Claim>> {
                $crate::__send_requests!(self, Claim(requests))
            }

            async fn renew_many(
                &self,
                requests: &[$crate::__core::RenewRequest],
            ) -> Vec<$crate::__core::Result<$crate::__core::Renewal>> {
                $crate::__send_requests!(self, Renew(requests))
            }

            async fn complete_many(
                &self,
                requests: &[$crate::__core::CompleteRequest],
            ) -> Vec<$crate::__core::Result<$crate::__core::Completion>> {
                $crate::__send_requests!(self, Complete(requests))
            }

            async fn release_many(
                &self,
                requests: &[$crate::__core::ReleaseRequest],
            ) -> Vec<$crate::__core::Result<$crate::__core::Release>> {
                $crate::__send_requests!(self, Release(requests))
            }

            async fn resolve(
                &self,
                request: &$crate::__core::ResolveRequest,
            ) -> $crate::__core::Result<$crate::__core::Resolution> {
                $crate::__send_request!(self, Resolve(request.clone()))
            }

            async fn erase(&self, key: &$crate::__core::KeyHash) -> $crate::__core::Result<$crate::__core::Erasure> {
                $crate::__send_request!(self, Erase(*key))
            }

            async fn forget(&self, key: &$crate::__core::KeyHash) -> $crate::__core::Result<$crate::__core::Forgetting> {
                $crate::__send_request!(self, Forget(*key))
            }

            async fn get(&self, key: &$crate::__core::KeyHash) -> $crate::__core::Result<Option<$crate::__core::Sighting>> {
                Ok($crate::__send_request!(self, Get(*key))?.map(|sighting| *sighting))
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __send_request {
    ($store:ident, $kind:ident($request:expr)) => {
        $crate::__expect_reply!(
            $store.call($crate::__core::steps::StoreRequest::$kind($request)).await,
            $kind
        )
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __send_requests {
    ($store:ident, $kind:ident($requests:expr)) => {{
        let calls =
            $requests.iter().cloned().map($crate::__core::steps::StoreRequest::$kind).collect();
        $store
            .call_all(calls)
            .await
            .into_iter()
            .map(|reply| $crate::__expect_reply!(reply, $kind))
            .collect()
    }};
}

/// Unwraps the reply to a request of this kind.
#[doc(hidden)]
#[macro_export]
macro_rules! __expect_reply {
    ($answer:expr, $kind:ident) => {
        $answer.map(|reply| match reply {
            $crate::__core::steps::StoreReply::$kind(answer) => answer,
            other => unreachable!("the store replied {other:?} to another kind of request"),
        })
    };
}
