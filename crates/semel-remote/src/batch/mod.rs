//! The auto-batcher: gathers calls that come at the same time into batches.
//!
//! A store whose cost is per trip (an fsync, a round trip, a transaction) puts a [`Batcher`] in
//! front of it. Callers queue one step each; a worker takes whatever is queued, as one [`Batch`],
//! does it in one trip and answers everybody. There is no timer: an idle worker takes the first
//! call at once, and while it is busy the next batch grows by itself. The number of workers is the
//! number of batches in flight.
//!
//! - **A queued call happens**, whether or not its caller still waits: a dropped future never
//!   leaves half a step. A call that was refused never happens.
//! - **Bounded**: calls beyond [`BatchLimits::queued`] are refused with
//!   [`ErrorKind::Full`](semel_core::ErrorKind::Full).
//! - **One wake-up**: a batch is answered under one lock, and each caller is woken once.
//! - **Nobody waits for ever**: a batch dropped without an answer (its worker panicked) is answered
//!   with [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable), since its calls may have happened.
//!
//! It needs no runtime: workers may be threads or tasks.
//!
//! ```
//! use semel_core::batch::{BatchLimits, Batcher};
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
