//! Work that outlives whoever asked for it.

use futures_util::FutureExt;

use semel_core::{Error, ErrorKind, Result, background, background::ContinueOnDrop};

/// Runs `work` on [`background`], to its end even if the caller goes away. Connections that it opens live
/// there, and outlive the caller's runtime.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the subject `cut_off` when it does not come to its end.
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

/// Waits for `work`, which is polled here. When the caller goes away it goes on on [`background`], where its timers are
/// from the beginning.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the subject `cut_off` when it panics.
pub fn run_to_completion<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    work: F,
    cut_off: &'static str,
) -> impl Future<Output = Result<T>> + use<T, F> {
    // Boxed here: whoever waits would carry it along otherwise.
    let continue_with = Box::new(|work| drop(background::handle().spawn(work)));
    let work = ContinueOnDrop::new(Box::pin(work), continue_with);
    work.map(move |answer| answer.ok_or_else(|| Error::new(ErrorKind::Unavailable, cut_off)))
}
