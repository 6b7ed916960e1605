//! A way to a server for each runtime that calls.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;
use tokio::runtime::{Handle, Id};

use crate::{background, engine::caller};

/// A way to a server whose connections live on one runtime.
pub trait Lane: Send + Sync {
    /// Whether it takes calls now.
    fn is_up(&self) -> bool;

    /// Whether it never will again, because its runtime is gone.
    fn is_over(&self) -> bool;
}

/// A lane on each runtime that calls, and one on [`background`].
///
/// A call whose connection is on another thread waits for two threads to wake each other; on its own runtime it waits
/// for the server alone. A runtime that is busy keeps only its own calls waiting, and renewals are made from
/// [`background`].
pub struct Lanes<L> {
    own: Arc<L>,
    callers: RwLock<Vec<(Id, Arc<L>)>>,
    open: Box<dyn Fn(&Handle) -> L + Send + Sync>,
}

impl<L: Lane> Lanes<L> {
    /// With a lane on [`background`], and what begins one on another runtime. That must not wait: a lane may come up later.
    pub fn new(own: L, open: impl Fn(&Handle) -> L + Send + Sync + 'static) -> Self {
        Self { own: Arc::new(own), callers: RwLock::default(), open: Box::new(open) }
    }

    /// The lane of the runtime that calls. While that is not up, or if there is none, it is [`background`]'s.
    pub fn lane(&self) -> Arc<L> {
        let Some(runtime) = caller::runtime() else { return self.own.clone() };
        let id = runtime.id();
        match self.of(id) {
            Some(lane) if lane.is_up() => lane,
            Some(lane) if !lane.is_over() => self.own.clone(),
            _ if id == background().id() => self.own.clone(),
            _ => {
                self.add(id, || (self.open)(&runtime));
                self.own.clone()
            }
        }
    }

    /// Whether a runtime calls that has no lane.
    pub fn lacks_one(&self) -> bool {
        caller::runtime().is_some_and(|runtime| {
            runtime.id() != background().id() && self.of(runtime.id()).is_none()
        })
    }

    /// Makes this the lane of the runtime that calls.
    pub fn join(&self, lane: L) {
        if let Some(runtime) = caller::runtime() {
            self.add(runtime.id(), || lane);
        }
    }

    fn of(&self, id: Id) -> Option<Arc<L>> {
        let callers = self.callers.read();
        callers.iter().find(|(of, _)| *of == id).map(|(_, lane)| lane.clone())
    }

    /// Unless somebody was quicker.
    fn add(&self, id: Id, lane: impl FnOnce() -> L) {
        let mut callers = self.callers.write();
        callers.retain(|(_, lane)| !lane.is_over());
        if !callers.iter().any(|(of, _)| *of == id) {
            callers.push((id, Arc::new(lane())));
        }
    }
}

impl<L: fmt::Debug> fmt::Debug for Lanes<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callers = self.callers.read();
        let of: Vec<_> = callers.iter().map(|(_, lane)| lane).collect();
        f.debug_struct("Lanes").field("own", &self.own).field("callers", &of).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        task::Poll,
        time::Duration,
    };

    use super::*;
    use crate::engine::background::{poll_once, within};

    #[derive(Debug)]
    struct Path {
        is_up: AtomicBool,
        is_over: AtomicBool,
    }

    impl Path {
        fn new(is_up: bool) -> Self {
            Self { is_up: AtomicBool::new(is_up), is_over: AtomicBool::new(false) }
        }
    }

    impl Lane for Path {
        fn is_up(&self) -> bool {
            self.is_up.load(SeqCst)
        }

        fn is_over(&self) -> bool {
            self.is_over.load(SeqCst)
        }
    }

    fn lanes(are_up: bool) -> Lanes<Path> {
        Lanes::new(Path::new(true), move |_| Path::new(are_up))
    }

    fn is_own(lanes: &Lanes<Path>, lane: &Arc<Path>) -> bool {
        Arc::ptr_eq(&lanes.own, lane)
    }

    #[tokio::test]
    async fn calls_go_over_the_callers_own_lane_while_it_is_up() {
        let lanes = lanes(true);
        assert!(is_own(&lanes, &lanes.lane()), "the first finds none yet");
        let mine = lanes.lane();
        assert!(!is_own(&lanes, &mine));
        mine.is_up.store(false, SeqCst);
        assert!(is_own(&lanes, &lanes.lane()));
        mine.is_up.store(true, SeqCst);
        assert!(Arc::ptr_eq(&mine, &lanes.lane()));
    }

    #[test]
    fn every_runtime_has_its_own_and_none_outlives_it() {
        let lanes = lanes(true);
        assert!(is_own(&lanes, &lanes.lane()), "there is no runtime");
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lane_of = |runtime: &tokio::runtime::Runtime| {
            runtime.block_on(async {
                lanes.lane();
                lanes.lane()
            })
        };
        let (one, other) = (runtime(), runtime());
        let (first, second) = (lane_of(&one), lane_of(&other));
        assert!(!Arc::ptr_eq(&first, &second) && !is_own(&lanes, &first));
        first.is_over.store(true, SeqCst);
        first.is_up.store(false, SeqCst);
        assert!(!Arc::ptr_eq(&first, &lane_of(&one)), "one that is over is replaced");
        assert_eq!(lanes.callers.read().len(), 2);
    }

    #[test]
    fn semels_own_runtime_has_no_other() {
        let lanes = Arc::new(lanes(true));
        let calling = lanes.clone();
        let call = async move { (calling.lane(), calling.lane()) };
        let (one, other) = tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(async { background().spawn(call).await.unwrap() });
        assert!(is_own(&lanes, &one) && is_own(&lanes, &other));
    }

    /// The engine enters semel's runtime for the timers of a call, and it is still the caller's call.
    #[tokio::test]
    async fn a_call_through_the_engine_is_the_callers() {
        let lanes = Arc::new(lanes(true));
        lanes.lane();
        let called = lanes.clone();
        let mut call = Box::pin(async move {
            let again = called.clone();
            // As a store does that is in front of another.
            let mut inner = Box::pin(async move { again.lane() });
            let Poll::Ready(first) = poll_once(&mut inner).await else { panic!("it waits") };
            tokio::task::yield_now().await;
            (first, called.lane())
        });
        assert!(poll_once(&mut call).await.is_pending());
        let (first, second) = within(Duration::from_secs(10), call, drop).await.unwrap();
        assert!(!is_own(&lanes, &first) && Arc::ptr_eq(&first, &second));
        assert_eq!(lanes.callers.read().len(), 1);
    }
}
