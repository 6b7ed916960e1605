//! The batcher: calls that are made at the same time share one round trip.
//!
//! A store whose cost is per round trip (an fsync, a network round trip, a transaction) uses a [`Batcher`]. Callers
//! queue one step each; a worker takes all queued calls as one [`Batch`], does them in one round trip and sends the
//! replies. There is no timer: an idle worker takes the first call at once, and while it is busy the next batch grows.
//! The number of workers is the number of batches in flight.
//!
//! - **A queued call happens**, also if its caller is dropped: a dropped future never leaves half a step. A refused
//!   call never happens.
//! - **Bounded**: calls beyond [`BatchLimits::queued`] are refused with
//!   [`ErrorKind::Full`](semel_core::ErrorKind::Full).
//! - **One wake-up**: the replies of a batch are set under one lock, and each caller is woken once.
//! - **No caller waits for ever**: the calls of a batch that is dropped without replies (its worker panicked) fail
//!   with [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable), since its calls may have happened.
//!
//! It needs no runtime: workers may be threads or tasks.
//!
//! ```
//! use semel_remote::batch::{BatchLimits, Batcher};
//! let (batcher, mut batches) = Batcher::new(BatchLimits::default());
//! let worker = std::thread::spawn(move || {
//!     while let Some(batch) = batches.take_blocking() {
//!         batch.reply.send(batch.calls.into_iter().map(|n: u32| n * 2).collect());
//!     }
//! });
//! # tokio::runtime::Runtime::new().unwrap().block_on(async move {
//! assert_eq!(batcher.call(21).await?, 42);
//! # Ok::<_, semel_core::Error>(()) }).unwrap();
//! worker.join().unwrap();
//! ```

mod pending;
mod queue;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;

pub use queue::{Batch, BatchLimits, Batcher, Batches, ReplySender};
