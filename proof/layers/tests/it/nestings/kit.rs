//! The HTTP kit, many cases at once.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use semel_conformance::http::{ALL, HttpCase};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::layered::Layered;

/// Every case of the kit: most of their time is waiting. What a busy machine broke is asked again alone; a door
/// that breaks a promise breaks it then too. A store that fails, fails for all: those cases come last.
pub(crate) async fn passes_the_kit(door: Layered) {
    let (alone, others): (Vec<&HttpCase>, Vec<&HttpCase>) =
        ALL.iter().partition(|case| case.name().starts_with("store::"));
    assert!(!alone.is_empty(), "who breaks the store is told by its name");
    let (door, places) = (Arc::new(door), Arc::new(Semaphore::new(16)));
    let mut checks = JoinSet::new();
    for case in others {
        let (door, places) = (door.clone(), places.clone());
        checks.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            (case, AssertUnwindSafe(case.check(&*door)).catch_unwind().await)
        });
    }
    for (case, checked) in checks.join_all().await {
        if checked.is_err() {
            eprintln!("{case:?} is checked again, alone");
            case.check(&*door).await;
        }
    }
    for case in alone {
        case.check(&*door).await;
    }
}
