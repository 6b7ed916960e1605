//! Keeps renewals within the grace period of a contested key: how long their batches wait for replies, and how soon
//! another connection is attempted.
//!
//! An owner that is alive has a third of its lease to be heard after a store has stalled. A request on a connection that
//! lost bytes, or a login that began while the network was down, may wait for seconds after the network is back.

use std::{
    collections::VecDeque,
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use semel_core::steps::StoreRequest;
use tokio::time::sleep;

/// The least timeout of a batch. A server that is only busy must not lose its connections to very short leases.
const LEAST: Duration = Duration::from_millis(250);
/// Attempts at one connection that run at the same time.
const ATTEMPTS: usize = 3;

/// The shortest time in which a renewal of this store is of use.
#[derive(Debug)]
pub struct RenewalPace(AtomicU64);

impl Default for RenewalPace {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl RenewalPace {
    /// The timeout of a batch: the store's own, or less if the batch renews a lease, whose reply is worth nothing later.
    pub fn batch_timeout<'a>(
        &self,
        timeout: Duration,
        batch: impl IntoIterator<Item = &'a StoreRequest>,
    ) -> Duration {
        let shortest = batch.into_iter().filter_map(StoreRequest::reply_within).min();
        let Some(within) = shortest else { return timeout };
        let within = within.max(LEAST);
        self.0.fetch_min(u64::try_from(within.as_millis()).unwrap_or(u64::MAX), Relaxed);
        within.min(timeout)
    }

    /// This time, or the pace of the renewals if that is less.
    #[must_use]
    pub fn limit(&self, time: Duration) -> Duration {
        time.min(Duration::from_millis(self.0.load(Relaxed)))
    }

    /// Connects. While an attempt gets no answer, another one is begun at the pace of the renewals; the first that ends
    /// decides.
    ///
    /// # Errors
    ///
    /// Those of an attempt.
    pub async fn connect<T, E, F>(&self, attempt: impl Fn() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut attempts = VecDeque::from([Box::pin(attempt())]);
        loop {
            tokio::select! {
                biased;
                result = first_of(&mut attempts) => return result,
                () = self.pause() => {}
            }
            // The first attempt stays, so that it reports its timeout.
            if attempts.len() == ATTEMPTS {
                attempts.remove(1);
            }
            attempts.push_back(Box::pin(attempt()));
        }
    }

    async fn pause(&self) {
        match self.0.load(Relaxed) {
            u64::MAX => pending().await,
            pace => sleep(Duration::from_millis(pace)).await,
        }
    }
}

async fn first_of<F: Future>(attempts: &mut VecDeque<Pin<Box<F>>>) -> F::Output {
    poll_fn(|context| {
        let mut polled = attempts.iter_mut().map(|attempt| attempt.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use semel_core::{KeyHash, Nonce, Owner, RenewRequest};
    use tokio::time::Instant;

    use super::*;

    fn renewal(within: Duration) -> StoreRequest {
        let owner = Owner { key: KeyHash::from_bytes([7; 32]), nonce: Nonce::random(), token: 1 };
        let renewal = RenewRequest::new(owner, Duration::from_secs(60));
        StoreRequest::Renew(renewal.reply_within(within))
    }

    #[test]
    fn a_renewal_shortens_the_timeout_of_its_batch_down_to_a_limit() {
        let (seconds, pace) = (Duration::from_secs, RenewalPace::default());
        let get = || StoreRequest::Get(KeyHash::from_bytes([7; 32]));
        let of = |batch: &[StoreRequest]| pace.batch_timeout(seconds(5), batch);
        assert_eq!(of(&[get()]), seconds(5));
        assert_eq!(of(&[renewal(seconds(9))]), seconds(5), "the store's own timeout is shorter");
        assert_eq!(of(&[get(), renewal(seconds(1))]), seconds(1));
        assert_eq!(pace.limit(seconds(2)), seconds(1));
        assert_eq!(of(&[renewal(Duration::ZERO)]), LEAST);
        assert_eq!(pace.limit(seconds(2)), LEAST);
    }

    /// The network swallows what is sent in the first four seconds.
    #[tokio::test(start_paused = true)]
    async fn a_connection_is_there_soon_after_the_network_is_back() {
        const CUT: Duration = Duration::from_secs(4);
        let (pace, began) = (RenewalPace::default(), Instant::now());
        let within = Duration::from_millis(333);
        pace.batch_timeout(CUT, &[renewal(within)]);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let attempt = async || {
            let _running = Running::new(&running, &most);
            match began.elapsed() < CUT {
                true => {
                    sleep(Duration::from_secs(5)).await;
                    Err("timed out")
                }
                false => Ok(began.elapsed()),
            }
        };
        let connected_at = pace.connect(attempt).await.expect("the network is back");
        assert!(connected_at < CUT + within, "{connected_at:?}");
        assert_eq!(most.load(Relaxed), ATTEMPTS, "a server that hangs is not flooded");
    }

    #[tokio::test(start_paused = true)]
    async fn without_renewals_there_is_one_attempt_and_its_error_is_returned() {
        let (pace, calls) = (RenewalPace::default(), AtomicUsize::new(0));
        let attempt = async || {
            calls.fetch_add(1, Relaxed);
            sleep(Duration::from_secs(5)).await;
            Err::<(), _>("timed out")
        };
        assert_eq!(pace.connect(attempt).await, Err("timed out"));
        assert_eq!(calls.load(Relaxed), 1);
    }

    struct Running<'a>(&'a AtomicUsize);

    impl<'a> Running<'a> {
        fn new(running: &'a AtomicUsize, most: &AtomicUsize) -> Self {
            most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
            Self(running)
        }
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
}
