//! Runs store calls to their end even when their caller is dropped.

use futures_util::FutureExt;

use semel_core::{Error, ErrorKind, Result, background, background::ContinueOnDrop};

/// Runs `work` on the background runtime, to its end even if the caller is dropped. Connections that it opens live
/// there and outlive the caller's runtime.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the subject `cut_off` when the work panics.
pub fn run_in_background<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    cut_off: &'static str,
) -> impl Future<Output = Result<T>> + Send {
    let running = background::handle().spawn(work);
    async move {
        running
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, cut_off).with_source(error))
    }
}

/// Polls `work` in the caller. If the caller is dropped, the work continues on the background runtime, which owns its
/// timers from the beginning.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the subject `cut_off` when the work panics.
pub fn run_to_completion<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    work: F,
    cut_off: &'static str,
) -> impl Future<Output = Result<T>> + use<T, F> {
    // Boxed, so that the caller's future stays small.
    let continue_with = Box::new(|work| drop(background::handle().spawn(work)));
    let work = ContinueOnDrop::new(Box::pin(work), continue_with);
    work.map(move |answer| answer.ok_or_else(|| Error::new(ErrorKind::Unavailable, cut_off)))
}
