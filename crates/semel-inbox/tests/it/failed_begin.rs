//! A transaction that fails to begin leaves no open transaction on the connection.

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
    fixture::{InboxFixture, POOL_TIMEOUT, SingleConnectionPool, event},
    over_pools,
};

over_pools! {
    a_cancelled_begin_leaves_nothing_and_runs_nothing
    a_call_dropped_at_any_step_leaves_the_only_connection_free
    an_exhausted_pool_fails_after_one_timeout
}

/// The server cancels the first statement before the transaction begins, or after.
const CANCELLED: [&str; 2] = [
    "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60);
     BEGIN; SET LOCAL semel.begun = 'on'; SAVEPOINT semel",
    "BEGIN; SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60);
     SET LOCAL semel.begun = 'on'; SAVEPOINT semel",
];

/// A pool whose next transactions begin with these statements.
#[derive(Clone)]
struct ReplacedBegin<P> {
    pool: P,
    next: Arc<Mutex<VecDeque<&'static str>>>,
}

impl<P: InboxPool> InboxPool for ReplacedBegin<P> {
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

    async fn query_text(
        &self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        self.pool.query_text(statement, parameters).await
    }
}

async fn inbox_over<Q, P>(fixture: &InboxFixture<Q>, pool: P) -> PgInbox<P>
where
    Q: InboxPool + Clone,
    P: InboxPool + Clone,
{
    fixture.inbox(InboxVariant::Full).await;
    let inbox = PgInbox::builder(pool).schema(&fixture.schema.name).consumer("test");
    inbox.build().await.unwrap()
}

/// The server refuses VACUUM in a transaction.
async fn assert_free<P: InboxPool + Clone>(fixture: &InboxFixture<P>, pool: &impl InboxPool) {
    pool.run(&format!("VACUUM {}.effects", fixture.schema.name)).await.unwrap();
}

/// The effect of an event, with proof of a transaction: the server refuses a savepoint outside of one.
async fn effect_inside<P: InboxPool + Clone>(
    fixture: &InboxFixture<P>,
    tx: &mut impl InboxTx,
    event: &InboxEvent,
) -> Result<(), TxError> {
    tx.run("SAVEPOINT inside").await?;
    fixture.insert_effect(tx, event).await
}

async fn a_cancelled_begin_leaves_nothing_and_runs_nothing<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    let pool = ReplacedBegin { pool: P::single(&fixture.schema.url), next: Arc::default() };
    let inbox = inbox_over(&fixture, pool.clone()).await;
    for begin in CANCELLED {
        let event = event();
        pool.next.lock().unwrap().push_back(begin);
        let failed = inbox.process::<(), _>(&event, async |_, _| panic!("it ran")).await;
        assert_cancelled(failed);
        assert_free(&fixture, &pool).await;
        pool.next.lock().unwrap().push_back(begin);
        let events = [event];
        let failed = inbox.process_batch(&events, async |_, _| panic!("it ran")).await;
        assert_cancelled(failed);
        assert_free(&fixture, &pool).await;
        let [event] = &events;
        assert_eq!(fixture.effects_and_records(event).await, (0, 0), "{begin}");
        let done =
            inbox.process(event, async |tx, _| Ok(effect_inside(&fixture, tx, event).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()), "{begin}");
        assert_eq!(fixture.effects_and_records(event).await, (1, 1), "{begin}");
    }
}

fn assert_cancelled<T: std::fmt::Debug>(failed: Result<T, InboxError>) {
    let Err(InboxError::Store(error)) = failed else { panic!("{failed:?}") };
    assert!(error.to_string().contains("57014"), "{error}");
}

/// Polls at most this often, then drops the future.
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

async fn a_call_dropped_at_any_step_leaves_the_only_connection_free<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    let pool = P::single(&fixture.schema.url);
    let inbox = inbox_over(&fixture, pool.clone()).await;
    let outside = AtomicU32::new(0);
    for times in (1..=25).cycle().take(100) {
        let event = event();
        let call = inbox.process(&event, async |tx, _| {
            let done = effect_inside(&fixture, tx, &event).await;
            outside.fetch_add(u32::from(done.is_err()), SeqCst);
            Ok(done?)
        });
        let _ = polled(times, call).await;
        assert_free(&fixture, &pool).await;
        let next = crate::fixture::event();
        let done =
            inbox.process(&next, async |tx, _| Ok(effect_inside(&fixture, tx, &next).await?)).await;
        assert_eq!(done.unwrap(), Done::Now(()), "after {times} polls");
    }
    assert_eq!(outside.into_inner(), 0, "handlers that ran outside of a transaction");
    until_committed(&fixture).await;
    let (effects, records) =
        (fixture.count("effects").await, fixture.count("processed_events").await);
    assert_eq!(effects, records, "effect and record commit together");
}

/// Waits until statements of dropped calls have ended.
async fn until_committed<P: InboxPool + Clone>(fixture: &InboxFixture<P>) {
    let locks = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{}.effects'::regclass AND mode = 'RowExclusiveLock'",
        fixture.schema.name
    );
    let client = fixture.client().await;
    let began = Instant::now();
    while client.query_one(&locks, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "a transaction stays open");
        tokio::task::yield_now().await;
    }
}

/// Further attempts would take a timeout each, and compete for the connection that other callers wait for.
async fn an_exhausted_pool_fails_after_one_timeout<P>(fixture: InboxFixture<P>)
where
    P: InboxPool + Clone + SingleConnectionPool,
{
    let inbox = inbox_over(&fixture, P::single(&fixture.schema.url)).await;
    let (holder, other) = (event(), [event()]);
    let assert_exhausted = |failed: InboxError, started: Instant| {
        let InboxError::Store(error) = failed else { panic!("{failed:?}") };
        assert!(error.kind().is_retryable(), "{error}");
        assert!(error.to_string().contains("make the pool larger"), "{error}");
        let waited = started.elapsed();
        // Five attempts would take five timeouts.
        assert!(waited < 4 * POOL_TIMEOUT, "failed after {waited:?}");
        assert!(waited > POOL_TIMEOUT / 2, "failed after {waited:?}");
    };
    let held = inbox.process(&holder, async |_, _| {
        let started = Instant::now();
        let failed = inbox.process::<(), _>(&other[0], async |_, _| panic!("it ran")).await;
        assert_exhausted(failed.unwrap_err(), started);
        let started = Instant::now();
        let failed = inbox.process_batch(&other, async |_, _| panic!("it ran")).await;
        assert_exhausted(failed.unwrap_err(), started);
        Ok(())
    });
    assert_eq!(held.await.unwrap(), Done::Now(()));
}
