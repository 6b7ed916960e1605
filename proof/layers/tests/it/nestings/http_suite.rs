//! Runs the HTTP conformance suite, many cases at once.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use semel_conformance::http::{ALL, HttpCase};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::layered::Layered;

/// Runs every case, many at once, since they mostly wait. A case that fails on a busy machine is repeated alone: a
/// broken promise is broken then too. Cases that make the store fail affect all others, so they run last.
pub(crate) async fn passes_the_http_suite(target: Layered) {
    let (alone, others): (Vec<&HttpCase>, Vec<&HttpCase>) =
        ALL.iter().partition(|case| case.name().starts_with("store::"));
    assert!(
        !alone.is_empty(),
        "cases that make the store fail have names that begin with `store::`"
    );
    let (target, permits) = (Arc::new(target), Arc::new(Semaphore::new(16)));
    let mut checks = JoinSet::new();
    for case in others {
        let (target, permits) = (target.clone(), permits.clone());
        checks.spawn(async move {
            let _permit = permits.acquire_owned().await.unwrap();
            (case, AssertUnwindSafe(case.check(&*target)).catch_unwind().await)
        });
    }
    for (case, checked) in checks.join_all().await {
        if checked.is_err() {
            eprintln!("{case:?} is checked again, alone");
            case.check(&*target).await;
        }
    }
    for case in alone {
        case.check(&*target).await;
    }
}
