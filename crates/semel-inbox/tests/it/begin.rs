//! However a transaction fails to begin, the next caller finds a connection that is in none.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};

use semel_inbox::{
    Done, InboxError, InboxEvent, InboxPool, InboxTx, InboxVariant, PgInbox, TxError,
};

use crate::{
    over_pools,
    scene::{OfOne, POOL_TIMEOUT, Scene, event},
};

over_pools! {
    a_cancelled_begin_leaves_nothing_and_runs_nothing
    a_call_dropped_at_any_step_leaves_the_only_connection_free
    a_pool_that_is_taken_is_told_at_once
}

/// The server cancels it before it has begun, and when it has.
const CANCELLED: [&str; 2] = [
    "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60);
     BEGIN; SET LOCAL semel.begun = 'on'; SAVEPOINT semel",
    "BEGIN; SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60);
     SET LOCAL semel.begun = 'on'; SAVEPOINT semel",
];

/// A pool whose next transactions begin like these.
#[derive(Clone)]
struct Begins<P> {
    pool: P,
    next: Arc<Mutex<VecDeque<&'static str>>>,
}

impl<P: InboxPool> InboxPool for Begins<P> {
    type Tx = P::Tx;

    async fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> Result<(P::Tx, Option<String>), TxError> {
        let next = self.next.lock().unwrap().pop_front();
        self.pool.begin(next.unwrap_or(begin), statement, parameters).await
    }

    async fn run(&self, statement: &str) -> Result<(), TxError> {
        self.pool.run(statement).await
    }

    async fn ask(&self, statement: &str, parameters: &[&str]) -> Result<Option<String>, TxError> {
        self.pool.ask(statement, parameters).await
    }
}

async fn inbox_over<Q, P>(scene: &Scene<Q>, pool: P) -> PgInbox<P>
where
    Q: InboxPool + Clone,
    P: InboxPool + Clone,
{
    scene.inbox(InboxVariant::Full).await;
    let inbox = PgInbox::builder(pool).schema(&scene.schema.name).consumer("test");
    inbox.build().await.unwrap()
}

/// The server refuses this in a transaction.
async fn assert_free<P: InboxPool + Clone>(scene: &Scene<P>, pool: &impl InboxPool) {
    pool.run(&format!("VACUUM {}.effects", scene.schema.name)).await.unwrap();
}

/// The effect of an event, where there is a transaction for it: the server refuses a savepoint outside of one.
async fn effect_inside<P: InboxPool + Clone>(
    scene: &Scene<P>,
    tx: &mut impl InboxTx,
    event: &InboxEvent,
) -> Result<(), TxError> {
    tx.run("SAVEPOINT inside").await?;
    scene.takes_effect(tx, event).await
}

async fn a_cancelled_begin_leaves_nothing_and_runs_nothing<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    let pool = Begins { pool: P::of_one(&scene.schema.url), next: Arc::default() };
    let inbox = inbox_over(&scene, pool.clone()).await;
    for begin in CANCELLED {
        let event = event();
        pool.next.lock().unwrap().push_back(begin);
        let failed = inbox.process::<(), _>(&event, async |_, _| panic!("it ran")).await;
        assert_cancelled(failed);
        assert_free(&scene, &pool).await;
        pool.next.lock().unwrap().push_back(begin);
        let events = [event];
        let failed = inbox.process_batch(&events, async |_, _| panic!("it ran")).await;
        assert_cancelled(failed);
        assert_free(&scene, &pool).await;
        let [event] = &events;
        assert_eq!(scene.seen(event).await, (0, 0), "{begin}");
        let done =
            inbox.process(event, async |tx, _| Ok(effect_inside(&scene, tx, event).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()), "{begin}");
        assert_eq!(scene.seen(event).await, (1, 1), "{begin}");
    }
}

fn assert_cancelled<T: std::fmt::Debug>(failed: Result<T, InboxError>) {
    let Err(InboxError::Store(error)) = failed else { panic!("{failed:?}") };
    assert!(error.to_string().contains("57014"), "{error}");
}

/// Polls so often at most, and drops what is not done by then.
async fn polled<F: Future>(times: u32, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn a_call_dropped_at_any_step_leaves_the_only_connection_free<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    let pool = P::of_one(&scene.schema.url);
    let inbox = inbox_over(&scene, pool.clone()).await;
    let outside = AtomicU32::new(0);
    for times in (1..=25).cycle().take(100) {
        let event = event();
        let call = inbox.process(&event, async |tx, _| {
            let done = effect_inside(&scene, tx, &event).await;
            outside.fetch_add(u32::from(done.is_err()), SeqCst);
            Ok(done?)
        });
        let _ = polled(times, call).await;
        assert_free(&scene, &pool).await;
        let next = crate::scene::event();
        let done =
            inbox.process(&next, async |tx, _| Ok(effect_inside(&scene, tx, &next).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()), "after {times} polls");
    }
    assert_eq!(outside.into_inner(), 0, "handlers that ran outside of a transaction");
    until_committed(&scene).await;
    let (effects, records) = (scene.count("effects").await, scene.count("processed_events").await);
    assert_eq!(effects, records, "effect and record commit together");
}

/// What was sent before its call was dropped is over.
async fn until_committed<P: InboxPool + Clone>(scene: &Scene<P>) {
    let locks = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{}.effects'::regclass AND mode = 'RowExclusiveLock'",
        scene.schema.name
    );
    let client = scene.client().await;
    let began = Instant::now();
    while client.query_one(&locks, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "a transaction stays open");
        tokio::task::yield_now().await;
    }
}

/// More attempts would take as many timeouts, and ask for the connection that others wait for.
async fn a_pool_that_is_taken_is_told_at_once<P>(scene: Scene<P>)
where
    P: InboxPool + Clone + OfOne,
{
    let inbox = inbox_over(&scene, P::of_one(&scene.schema.url)).await;
    let (holder, other) = (event(), [event()]);
    let told = |failed: InboxError, asked: Instant| {
        let InboxError::Store(error) = failed else { panic!("{failed:?}") };
        assert!(error.kind().is_retryable(), "{error}");
        assert!(error.to_string().contains("make the pool larger"), "{error}");
        let waited = asked.elapsed();
        assert!(waited < 2 * POOL_TIMEOUT, "told after {waited:?}");
        assert!(waited > POOL_TIMEOUT / 2, "told after {waited:?}");
    };
    let held = inbox.process(&holder, async |_, _| {
        let asked = Instant::now();
        let failed = inbox.process::<(), _>(&other[0], async |_, _| panic!("it ran")).await;
        told(failed.unwrap_err(), asked);
        let asked = Instant::now();
        let failed = inbox.process_batch(&other, async |_, _| panic!("it ran")).await;
        told(failed.unwrap_err(), asked);
        Ok(())
    });
    assert_eq!(held.await.unwrap(), Done::Now(()));
}
