//! The body of a request on its way to the upstream, and when it last moved.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use semel::http::RequestBody;
use tokio::time::{Duration, Instant};

use super::headers;

pin_project! {
    /// The body of a request to an upstream.
    #[derive(Debug)]
    pub(super) struct Upload {
        #[pin]
        body: RequestBody<Incoming>,
        progress: Option<Arc<UploadProgress>>,
    }
}

/// When an upload last moved. The time for a response starts when the whole request has been sent.
#[derive(Debug)]
pub(super) struct UploadProgress {
    began: Instant,
    moved_ms: AtomicU64,
    done: AtomicBool,
    waits: AtomicBool,
}

impl Upload {
    pub(super) fn new(body: RequestBody<Incoming>) -> (Self, Option<Arc<UploadProgress>>) {
        // Most requests have no body, or one that is in memory and takes no time.
        let comes_slowly = !body.is_end_stream() && !body.is_in_memory();
        let progress = comes_slowly.then(|| {
            Arc::new(UploadProgress {
                began: Instant::now(),
                moved_ms: AtomicU64::new(0),
                done: AtomicBool::new(false),
                waits: AtomicBool::new(false),
            })
        });
        (Self { body, progress: progress.clone() }, progress)
    }
}

impl UploadProgress {
    /// When a piece was last taken; now, if the next piece has not arrived from the client.
    pub(super) fn moved_at(&self) -> Instant {
        if self.waits_for_client() {
            return Instant::now();
        }
        self.began + Duration::from_millis(self.moved_ms.load(Relaxed))
    }

    /// True while the next piece has not arrived from the client, which has limits of its own.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// True once the last piece was taken, or no more can come.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }

    fn moved(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Relaxed);
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut this = self.project();
        let mut poll = this.body.as_mut().poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut poll
            && let Some(trailers) = frame.trailers_mut()
        {
            headers::filter_trailers(trailers);
        }
        if let Some(progress) = &this.progress {
            progress.waits.store(poll.is_pending(), Relaxed);
        }
        if let (Poll::Ready(frame), Some(progress)) = (&poll, this.progress) {
            progress.moved();
            // hyper does not poll for the end of a body with a known length.
            if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
                progress.done.store(true, Relaxed);
            }
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
