//! Work that outlives whoever asked for it.

use crate::{Error, ErrorKind, Result, background};

/// Runs `work` on [`background`], to its end even if the caller goes away. Connections that it opens live
/// there, and outlive the caller's runtime.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the subject `cut_off` when it does not come to its end.
pub fn on_background<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    cut_off: &'static str,
) -> impl Future<Output = Result<T>> + Send {
    let running = background().spawn(work);
    async move {
        running
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, cut_off).with_source(error))
    }
}
