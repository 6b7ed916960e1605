//! The hook that decides whether a caller may see a recorded answer.

use std::{fmt, pin::Pin, sync::Arc};

use http::request::Parts;

type AuthorizeFn = dyn Fn(Parts) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync;

/// The user's hook.
#[derive(Clone)]
pub(crate) struct AuthorizeReplay(Arc<AuthorizeFn>);

impl AuthorizeReplay {
    pub(crate) fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        Self(Arc::new(move |parts| Box::pin(hook(parts))))
    }

    pub(crate) async fn allows(&self, parts: Parts) -> bool {
        (self.0)(parts).await
    }
}

impl fmt::Debug for AuthorizeReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorizeReplay")
    }
}
