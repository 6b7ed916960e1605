//! A way to a server for each runtime that calls.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::RwLock;
use tokio::runtime::{Handle, Id};

use semel_core::background::{self, caller};

/// A way to a server whose connections live on one runtime.
pub trait RuntimeConnection: Send + Sync {
    /// Whether it takes calls now.
    fn is_ready(&self) -> bool;

    /// Whether it never will again, as far as it is known.
    fn is_failed(&self) -> bool;

    /// Whether its runtime is gone. One that is lost on a runtime that lives is not opened there again.
    fn is_runtime_gone(&self) -> bool;
}

/// A lane on each runtime that calls often, and one on [`background`].
///
/// A call whose connection is on another thread waits for two threads to wake each other; on its own runtime it waits
/// for the server alone. A runtime that is busy keeps only its own calls waiting, and renewals are made from
/// [`background`]. Only the calls of tasks, and of
/// what they run on blocking threads, use it: other threads that enter a runtime may wait while nobody drives it.
pub struct RuntimeConnections<L> {
    own: Arc<L>,
    /// Runtimes that have one at most.
    limit: usize,
    callers: RwLock<Vec<(Id, Caller<L>)>>,
    open: Box<dyn Fn(&Handle) -> L + Send + Sync>,
}

enum Caller<L> {
    /// It has made so many calls: some runtimes make a few and are gone.
    New(AtomicU32),
    Has(Arc<L>),
}

/// Calls that are worth a lane.
const CALLS: u32 = 32;
/// Runtimes that have one, or are counted, at most.
const CALLERS: usize = 64;

impl<L: RuntimeConnection> RuntimeConnections<L> {
    /// With a lane on [`background`], and what begins one on another runtime. That must not wait: a lane may come up later.
    pub fn new(own: L, open: impl Fn(&Handle) -> L + Send + Sync + 'static) -> Self {
        Self {
            own: Arc::new(own),
            limit: CALLERS,
            callers: RwLock::default(),
            open: Box::new(open),
        }
    }

    /// Opens lanes on so many other runtimes at the same time. The calls of those that come later take the way of
    /// [`background`]'s.
    #[must_use]
    pub fn max_runtimes(self, limit: usize) -> Self {
        Self { limit: limit.min(CALLERS), ..self }
    }

    /// The lane of the runtime that calls. While that is not up, or if there is none, it is [`background`]'s.
    pub fn current(&self) -> Arc<L> {
        self.of_caller().unwrap_or_else(|| self.own.clone())
    }

    /// The lane on [`background`].
    pub fn background(&self) -> Arc<L> {
        self.own.clone()
    }

    fn of_caller(&self) -> Option<Arc<L>> {
        tokio::task::try_id()?;
        let runtime = caller::runtime()?;
        let id = runtime.id();
        if let Some((_, caller)) = self.callers.read().iter().find(|(of, _)| *of == id) {
            match caller {
                Caller::Has(lane) if lane.is_ready() => return Some(lane.clone()),
                Caller::Has(lane) if !lane.is_runtime_gone() => return None,
                // Where there is no room for a lane yet, it asks again now and then.
                Caller::New(calls) if calls.fetch_add(1, Relaxed) % CALLS != 0 => return None,
                Caller::Has(_) | Caller::New(_) => {}
            }
        }
        if id != background::handle().id() {
            self.add(&runtime);
        }
        None
    }

    /// Begins to count the calls of a runtime, or opens its lane.
    fn add(&self, runtime: &Handle) {
        let (mut callers, id) = (self.callers.write(), runtime.id());
        callers
            .retain(|(_, caller)| !matches!(caller, Caller::Has(lane) if lane.is_runtime_gone()));
        let is_lane = |caller: &Caller<L>| matches!(caller, Caller::Has(lane) if !lane.is_failed());
        let lanes = callers.iter().filter(|(_, caller)| is_lane(caller)).count();
        match callers.iter_mut().find(|(of, _)| *of == id) {
            Some((_, caller @ Caller::New(_))) if lanes < self.limit => {
                *caller = Caller::Has(Arc::new((self.open)(runtime)));
            }
            // There is no room, or somebody was quicker.
            Some(_) => {}
            None => {
                // Of those that only called now and then, the first is likely gone.
                let is_new = |(_, caller): &(Id, Caller<L>)| matches!(caller, Caller::New(_));
                if callers.len() >= CALLERS
                    && let Some(first) = callers.iter().position(is_new)
                {
                    callers.remove(first);
                }
                if callers.len() < CALLERS {
                    callers.push((id, Caller::New(AtomicU32::new(1))));
                }
            }
        }
    }
}

impl<L: fmt::Debug> fmt::Debug for RuntimeConnections<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callers = self.callers.read().len();
        f.debug_struct("RuntimeConnections")
            .field("own", &self.own)
            .field("callers", &callers)
            .finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        task::Poll,
        time::Duration,
    };

    use tokio::runtime::Runtime;

    use super::*;
    use semel_core::background::{poll_once, within};

    #[derive(Debug)]
    struct Path {
        is_ready: AtomicBool,
        is_failed: AtomicBool,
        is_runtime_gone: AtomicBool,
    }

    impl Path {
        fn new(is_ready: bool) -> Self {
            let no = || AtomicBool::new(false);
            Self { is_ready: AtomicBool::new(is_ready), is_failed: no(), is_runtime_gone: no() }
        }
    }

    impl RuntimeConnection for Path {
        fn is_ready(&self) -> bool {
            self.is_ready.load(SeqCst)
        }

        fn is_failed(&self) -> bool {
            self.is_failed.load(SeqCst)
        }

        fn is_runtime_gone(&self) -> bool {
            self.is_runtime_gone.load(SeqCst)
        }
    }

    fn lanes() -> Arc<RuntimeConnections<Path>> {
        Arc::new(RuntimeConnections::new(Path::new(true), |_| Path::new(true)))
    }

    fn is_own(lanes: &RuntimeConnections<Path>, lane: &Arc<Path>) -> bool {
        Arc::ptr_eq(&lanes.own, lane)
    }

    /// What a task of this runtime is given after so many calls.
    fn lane_after(
        runtime: &Runtime,
        lanes: &Arc<RuntimeConnections<Path>>,
        calls: u32,
    ) -> Arc<Path> {
        let lanes = lanes.clone();
        let calling = async move {
            (0..calls).for_each(|_| drop(lanes.current()));
            lanes.current()
        };
        runtime.block_on(async { tokio::spawn(calling).await.expect("it ends") })
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one starts")
    }

    #[test]
    fn a_runtime_that_calls_often_has_a_lane_of_its_own() {
        let (lanes, one, other) = (lanes(), runtime(), runtime());
        assert!(is_own(&lanes, &lane_after(&one, &lanes, CALLS - 1)), "it has only begun");
        let first = lane_after(&one, &lanes, 2);
        assert!(!is_own(&lanes, &first));
        assert!(Arc::ptr_eq(&first, &lane_after(&one, &lanes, 0)));
        let second = lane_after(&other, &lanes, CALLS + 1);
        assert!(!is_own(&lanes, &second) && !Arc::ptr_eq(&first, &second));
        first.is_ready.store(false, SeqCst);
        assert!(is_own(&lanes, &lane_after(&one, &lanes, 0)), "while it is not up");
        first.is_runtime_gone.store(true, SeqCst);
        let next = lane_after(&one, &lanes, CALLS + 2);
        assert!(
            !is_own(&lanes, &next) && !Arc::ptr_eq(&first, &next),
            "one that is over is replaced"
        );
        assert_eq!(lanes.callers.read().len(), 2);
    }

    #[test]
    fn runtimes_that_come_and_go_leave_nothing_behind() {
        let lanes = lanes();
        for _ in 0..2 * CALLERS {
            assert!(is_own(&lanes, &lane_after(&runtime(), &lanes, 3)));
        }
        assert_eq!(lanes.callers.read().len(), CALLERS);
        assert!(
            !is_own(&lanes, &lane_after(&runtime(), &lanes, CALLS + 1)),
            "a newer one has its turn"
        );
    }

    #[test]
    fn runtimes_beyond_the_limit_have_their_turn_when_another_is_gone() {
        let lanes = RuntimeConnections::new(Path::new(true), |_| Path::new(true)).max_runtimes(1);
        let (lanes, first, second) = (Arc::new(lanes), runtime(), runtime());
        let given = lane_after(&first, &lanes, CALLS + 1);
        assert!(!is_own(&lanes, &given));
        assert!(is_own(&lanes, &lane_after(&second, &lanes, 3 * CALLS)));
        given.is_runtime_gone.store(true, SeqCst);
        assert!(!is_own(&lanes, &lane_after(&second, &lanes, CALLS + 1)));
    }

    /// As on one that has no sockets.
    #[test]
    fn a_lane_that_is_lost_takes_nobodys_place_and_is_not_tried_again() {
        let lanes = RuntimeConnections::new(Path::new(true), |_| Path::new(true)).max_runtimes(1);
        let (lanes, first, second) = (Arc::new(lanes), runtime(), runtime());
        let given = lane_after(&first, &lanes, CALLS + 1);
        given.is_ready.store(false, SeqCst);
        assert!(is_own(&lanes, &lane_after(&second, &lanes, 3 * CALLS)), "it may come up");
        given.is_failed.store(true, SeqCst);
        assert!(!is_own(&lanes, &lane_after(&second, &lanes, CALLS + 1)));
        assert!(is_own(&lanes, &lane_after(&first, &lanes, 3 * CALLS)));
        assert_eq!(Arc::strong_count(&given), 2, "it is still that one");
    }

    /// It may be driven by nobody.
    #[test]
    fn a_thread_that_only_entered_a_runtime_does_not_depend_on_it() {
        let (lanes, runtime) = (lanes(), runtime());
        assert!(!is_own(&lanes, &lane_after(&runtime, &lanes, CALLS + 1)));
        assert!(is_own(&lanes, &lanes.current()));
        let _entered = runtime.enter();
        assert!(is_own(&lanes, &lanes.current()));
    }

    #[test]
    fn semels_own_runtime_has_no_other() {
        let lanes = lanes();
        let calling = lanes.clone();
        let call = async move { (0..2 * CALLS).map(|_| calling.current()).collect::<Vec<_>>() };
        let given = runtime().block_on(async { background::handle().spawn(call).await.unwrap() });
        assert!(given.iter().all(|lane| is_own(&lanes, lane)));
    }

    /// The engine enters semel's runtime for the timers of a call, and it is still the caller's call.
    #[test]
    fn a_call_through_the_engine_is_the_callers() {
        let (lanes, runtime) = (lanes(), runtime());
        let mine = lane_after(&runtime, &lanes, CALLS + 1);
        let called = lanes.clone();
        let mut call = Box::pin(async move {
            let again = called.clone();
            // As a store does that is in front of another.
            let mut inner = Box::pin(async move { again.current() });
            let Poll::Ready(first) = poll_once(&mut inner).await else { panic!("it waits") };
            tokio::task::yield_now().await;
            (first, called.current())
        });
        let through_the_engine = async move {
            assert!(poll_once(&mut call).await.is_pending());
            within(Duration::from_secs(10), call, drop).await.unwrap()
        };
        let given = runtime.block_on(async { tokio::spawn(through_the_engine).await.unwrap() });
        assert!(Arc::ptr_eq(&given.0, &mine) && Arc::ptr_eq(&given.1, &mine));
    }
}
