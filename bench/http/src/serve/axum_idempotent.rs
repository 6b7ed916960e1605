//! axum-idempotent in its best case: the key is taken from the header and nothing is hashed, sessions are in memory,
//! and each key has a session of its own, because a write visits all keys of its session.

use std::sync::Arc;

use axum::Router;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::{CookieOptions, SessionLayer, store::moka::MokaStore};
use tower_cookies::CookieManagerLayer;

use crate::order::SESSION_COOKIE;

/// More sessions than a benchmark makes.
const MAX_SESSIONS: u64 = 100_000_000;

pub(super) fn guarded(orders: Router) -> Router {
    let options = IdempotentOptions::default().use_idempotency_key_header(None, true);
    let sessions = Arc::new(MokaStore::builder().max_capacity(MAX_SESSIONS).build());
    let cookie = CookieOptions::build().name(SESSION_COOKIE).path("/");
    // The last layer is the outermost: cookies, then the session, then its recorded answers.
    orders
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(SessionLayer::new(sessions).with_cookie_options(cookie))
        .layer(CookieManagerLayer::new())
}
