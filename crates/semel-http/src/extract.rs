//! The context that a handler gets about its own run.

use std::ops::Deref;

use semel_core::Context;

use crate::Mode;

/// In the extensions of every request that runs under a key: attempt, token, downstream key and the
/// signal that the lease is lost. Dereferences to [`Context`].
///
/// With feature `axum` it is an extractor. A request without a key has none: take
/// `Option<Idempotency>`, or require a key on the route.
#[derive(Clone, Debug)]
pub struct Idempotency {
    context: Context,
    mode: Mode,
}

impl Idempotency {
    pub(crate) const fn new(context: Context, mode: Mode) -> Self {
        Self { context, mode }
    }

    /// The context itself.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The mode of the layer for this request. In every mode but `Enforce` no key is claimed, and the attempt is 0.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

impl Deref for Idempotency {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

#[cfg(feature = "axum")]
mod axum_extractor {
    use std::convert::Infallible;

    use axum::{
        body::Body,
        extract::{FromRequestParts, OptionalFromRequestParts},
        response::Response,
    };
    use http::request::Parts;

    use super::Idempotency;
    use crate::problem::{BASE, Problem, ProblemBase};

    impl<S: Sync> FromRequestParts<S> for Idempotency {
        type Rejection = Response;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
            let found = parts.extensions.get::<Self>().cloned();
            found.ok_or_else(|| {
                let base = parts.extensions.get::<ProblemBase>().map_or(BASE, |base| &base.0);
                Problem::key_missing().response(base).map(Body::from)
            })
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Idempotency {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}
