//! Connections to a server on each runtime that calls often.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::RwLock;
use tokio::runtime::{Handle, Id};

use semel_core::background::{self, caller_runtime};

/// The connections of a store on one runtime.
pub trait RuntimeConnection: Send + Sync {
    /// True while it takes calls.
    fn is_ready(&self) -> bool;

    /// True when it will never take calls again, as far as is known.
    fn is_failed(&self) -> bool;

    /// True when its runtime is gone. A failed connection whose runtime lives is not opened there again.
    fn is_runtime_gone(&self) -> bool;
}

/// The connections of a store: one [`RuntimeConnection`] on each runtime that calls often, and one on the background
/// runtime.
///
/// A call whose connection lives on another thread costs two wake-ups between threads; on its own runtime it waits for
/// the server alone. A busy runtime delays only its own calls, and renewals are made from the background runtime. Only
/// tasks, and what they run on blocking threads, use the connections of their runtime: another thread that entered a
/// runtime may wait while no thread drives it.
pub struct RuntimeConnections<L> {
    background: Arc<L>,
    /// How many runtimes have a connection at most.
    limit: usize,
    callers: RwLock<Vec<(Id, Caller<L>)>>,
    open: Box<dyn Fn(&Handle) -> L + Send + Sync>,
}

/// A runtime that has called.
enum Caller<L> {
    /// It has made this many calls. Some runtimes make a few calls and are gone.
    Counted(AtomicU32),
    Connected(Arc<L>),
}

/// A runtime gets a connection at this call.
const CALLS: u32 = 32;
/// How many runtimes are counted or have a connection at most.
const CALLERS: usize = 64;

impl<L: RuntimeConnection> RuntimeConnections<L> {
    /// Takes the connection on the background runtime, and a function that opens one on another runtime. The function
    /// must not wait: a connection may become ready later.
    pub fn new(background: L, open: impl Fn(&Handle) -> L + Send + Sync + 'static) -> Self {
        Self {
            background: Arc::new(background),
            limit: CALLERS,
            callers: RwLock::default(),
            open: Box::new(open),
        }
    }

    /// Limits the number of runtimes with a connection of their own. The calls of other runtimes use the connection on
    /// the background runtime.
    #[must_use]
    pub fn max_runtimes(self, limit: usize) -> Self {
        Self { limit: limit.min(CALLERS), ..self }
    }

    /// The connection on the calling runtime; the one on the background runtime while that is missing or not ready.
    pub fn current(&self) -> Arc<L> {
        self.of_caller().unwrap_or_else(|| self.background.clone())
    }

    /// The connection on the background runtime.
    pub fn background(&self) -> Arc<L> {
        self.background.clone()
    }

    fn of_caller(&self) -> Option<Arc<L>> {
        tokio::task::try_id()?;
        let runtime = caller_runtime::current()?;
        let id = runtime.id();
        if let Some((_, caller)) = self.callers.read().iter().find(|(of, _)| *of == id) {
            match caller {
                Caller::Connected(it) if it.is_ready() => return Some(it.clone()),
                Caller::Connected(it) if !it.is_runtime_gone() => return None,
                // At the limit, it tries again with every `CALLS`th call.
                Caller::Counted(calls) if calls.fetch_add(1, Relaxed) % CALLS != 0 => return None,
                Caller::Connected(_) | Caller::Counted(_) => {}
            }
        }
        if id != background::handle().id() {
            self.add(&runtime);
        }
        None
    }

    /// Begins to count the calls of a runtime, or opens its connection.
    fn add(&self, runtime: &Handle) {
        let (mut callers, id) = (self.callers.write(), runtime.id());
        callers
            .retain(|(_, caller)| !matches!(caller, Caller::Connected(it) if it.is_runtime_gone()));
        let is_open =
            |caller: &Caller<L>| matches!(caller, Caller::Connected(it) if !it.is_failed());
        let open = callers.iter().filter(|(_, caller)| is_open(caller)).count();
        match callers.iter_mut().find(|(of, _)| *of == id) {
            Some((_, caller @ Caller::Counted(_))) if open < self.limit => {
                *caller = Caller::Connected(Arc::new((self.open)(runtime)));
            }
            // The limit is reached, or another thread has opened it.
            Some(_) => {}
            None => {
                // The first counted runtime has the oldest calls: it is likely gone.
                let is_counted =
                    |(_, caller): &(Id, Caller<L>)| matches!(caller, Caller::Counted(_));
                if callers.len() >= CALLERS
                    && let Some(first) = callers.iter().position(is_counted)
                {
                    callers.remove(first);
                }
                if callers.len() < CALLERS {
                    callers.push((id, Caller::Counted(AtomicU32::new(1))));
                }
            }
        }
    }
}

impl<L: fmt::Debug> fmt::Debug for RuntimeConnections<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callers = self.callers.read().len();
        f.debug_struct("RuntimeConnections")
            .field("background", &self.background)
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
    use semel_core::background::{poll_once, timeout_without_cancel};

    #[derive(Debug)]
    struct TestConnection {
        is_ready: AtomicBool,
        is_failed: AtomicBool,
        is_runtime_gone: AtomicBool,
    }

    impl TestConnection {
        fn new(is_ready: bool) -> Self {
            let no = || AtomicBool::new(false);
            Self { is_ready: AtomicBool::new(is_ready), is_failed: no(), is_runtime_gone: no() }
        }
    }

    impl RuntimeConnection for TestConnection {
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

    fn connections() -> Arc<RuntimeConnections<TestConnection>> {
        Arc::new(RuntimeConnections::new(TestConnection::new(true), |_| TestConnection::new(true)))
    }

    fn is_background(
        connections: &RuntimeConnections<TestConnection>,
        connection: &Arc<TestConnection>,
    ) -> bool {
        Arc::ptr_eq(&connections.background, connection)
    }

    /// The connection that a task of this runtime gets after this many calls.
    fn connection_after(
        runtime: &Runtime,
        connections: &Arc<RuntimeConnections<TestConnection>>,
        calls: u32,
    ) -> Arc<TestConnection> {
        let connections = connections.clone();
        let calling = async move {
            (0..calls).for_each(|_| drop(connections.current()));
            connections.current()
        };
        runtime.block_on(async { tokio::spawn(calling).await.expect("the task ends") })
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime starts")
    }

    #[test]
    fn a_runtime_that_calls_often_gets_its_own_connection() {
        let (connections, one, other) = (connections(), runtime(), runtime());
        assert!(
            is_background(&connections, &connection_after(&one, &connections, CALLS - 1)),
            "it has made too few calls"
        );
        let first = connection_after(&one, &connections, 2);
        assert!(!is_background(&connections, &first));
        assert!(Arc::ptr_eq(&first, &connection_after(&one, &connections, 0)));
        let second = connection_after(&other, &connections, CALLS + 1);
        assert!(!is_background(&connections, &second) && !Arc::ptr_eq(&first, &second));
        first.is_ready.store(false, SeqCst);
        assert!(
            is_background(&connections, &connection_after(&one, &connections, 0)),
            "while its own is not ready"
        );
        first.is_runtime_gone.store(true, SeqCst);
        let next = connection_after(&one, &connections, CALLS + 2);
        assert!(
            !is_background(&connections, &next) && !Arc::ptr_eq(&first, &next),
            "a connection whose runtime is gone is replaced"
        );
        assert_eq!(connections.callers.read().len(), 2);
    }

    #[test]
    fn runtimes_that_come_and_go_leave_nothing_behind() {
        let connections = connections();
        for _ in 0..2 * CALLERS {
            assert!(is_background(&connections, &connection_after(&runtime(), &connections, 3)));
        }
        assert_eq!(connections.callers.read().len(), CALLERS);
        assert!(
            !is_background(&connections, &connection_after(&runtime(), &connections, CALLS + 1)),
            "a newer runtime takes the place of an older one"
        );
    }

    #[test]
    fn a_runtime_beyond_the_limit_gets_a_connection_when_another_runtime_is_gone() {
        let connections =
            RuntimeConnections::new(TestConnection::new(true), |_| TestConnection::new(true))
                .max_runtimes(1);
        let (connections, first, second) = (Arc::new(connections), runtime(), runtime());
        let given = connection_after(&first, &connections, CALLS + 1);
        assert!(!is_background(&connections, &given));
        assert!(is_background(&connections, &connection_after(&second, &connections, 3 * CALLS)));
        given.is_runtime_gone.store(true, SeqCst);
        assert!(!is_background(&connections, &connection_after(&second, &connections, CALLS + 1)));
    }

    /// As on a runtime that has no sockets.
    #[test]
    fn a_failed_connection_does_not_count_and_is_not_opened_again() {
        let connections =
            RuntimeConnections::new(TestConnection::new(true), |_| TestConnection::new(true))
                .max_runtimes(1);
        let (connections, first, second) = (Arc::new(connections), runtime(), runtime());
        let given = connection_after(&first, &connections, CALLS + 1);
        given.is_ready.store(false, SeqCst);
        assert!(
            is_background(&connections, &connection_after(&second, &connections, 3 * CALLS)),
            "it may become ready"
        );
        given.is_failed.store(true, SeqCst);
        assert!(!is_background(&connections, &connection_after(&second, &connections, CALLS + 1)));
        assert!(is_background(&connections, &connection_after(&first, &connections, 3 * CALLS)));
        assert_eq!(Arc::strong_count(&given), 2, "the failed connection is still there");
    }

    /// No thread may be driving that runtime.
    #[test]
    fn a_thread_that_only_entered_a_runtime_uses_the_background_connection() {
        let (connections, runtime) = (connections(), runtime());
        assert!(!is_background(&connections, &connection_after(&runtime, &connections, CALLS + 1)));
        assert!(is_background(&connections, &connections.current()));
        let _entered = runtime.enter();
        assert!(is_background(&connections, &connections.current()));
    }

    #[test]
    fn the_background_runtime_uses_the_background_connection() {
        let connections = connections();
        let calling = connections.clone();
        let call = async move { (0..2 * CALLS).map(|_| calling.current()).collect::<Vec<_>>() };
        let given = runtime().block_on(async { background::handle().spawn(call).await.unwrap() });
        assert!(given.iter().all(|it| is_background(&connections, it)));
    }

    /// The engine enters the background runtime for the timers of a call; the call still belongs to the caller.
    #[test]
    fn a_call_through_the_engine_uses_the_callers_connection() {
        let (connections, runtime) = (connections(), runtime());
        let mine = connection_after(&runtime, &connections, CALLS + 1);
        let called = connections.clone();
        let mut call = Box::pin(async move {
            let again = called.clone();
            // As a layer around another store does.
            let mut inner = Box::pin(async move { again.current() });
            let Poll::Ready(first) = poll_once(&mut inner).await else {
                panic!("the call is pending")
            };
            tokio::task::yield_now().await;
            (first, called.current())
        });
        let through_the_engine = async move {
            assert!(poll_once(&mut call).await.is_pending());
            timeout_without_cancel(Duration::from_secs(10), call, drop).await.unwrap()
        };
        let given = runtime.block_on(async { tokio::spawn(through_the_engine).await.unwrap() });
        assert!(Arc::ptr_eq(&given.0, &mine) && Arc::ptr_eq(&given.1, &mine));
    }
}
