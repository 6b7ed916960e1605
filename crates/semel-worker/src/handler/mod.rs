//! The handler of the user, behind HTTP: posts an event, and turns the response into what the consumer records.

mod client;
mod inner_semel;
mod request;
mod response;

use std::{collections::HashSet, time::Duration};

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use semel::{ErrorClass, Outcome, WorkError};
use semel_consumer::{Event, EventContext, Handler};
use semel_service::settings::HandlerUrl;
use tokio::time::timeout;

use self::{
    client::{HandlerClient, NoResponse},
    request::EventPost,
    response::Meaning,
};
use crate::metrics::{RequestResult, count};

/// How long the rest of a response that is not recorded may take to arrive, so that its connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of such a response that are read.
const DRAIN_BYTES: usize = 64 * 1024;

/// Posts events to an HTTP endpoint.
#[derive(Debug)]
pub(crate) struct HttpHandler {
    client: HandlerClient,
    post: EventPost,
    permanent: Vec<StatusCode>,
    /// The types that the endpoint takes; all of them if empty.
    types: HashSet<String>,
    timeout: Duration,
}

impl HttpHandler {
    /// A handler at `url`. `source` is the CloudEvents source of messages that are no CloudEvents.
    pub(crate) fn new(
        url: &HandlerUrl,
        source: &str,
        permanent: Vec<StatusCode>,
        types: impl IntoIterator<Item = String>,
        timeout: Duration,
    ) -> Self {
        Self {
            client: HandlerClient::new(timeout),
            post: EventPost::new(url, source),
            permanent,
            types: types.into_iter().collect(),
            timeout,
        }
    }

    async fn exchange(&self, event: &Event, context: &EventContext) -> Result<Outcome, WorkError> {
        let request = self.post.request(event, context)?;
        let response = self.client.send(request).await.map_err(NoResponse::into_error)?;
        let (head, body) = response.into_parts();
        match response::meaning(&head, &self.permanent) {
            Meaning::Success => match response::outcome(&head, body).await {
                Ok(outcome) => {
                    count(RequestResult::Success);
                    Ok(outcome)
                }
                Err(why) => Err(NoResponse::Broken(why).into_error()),
            },
            meaning => {
                drain(body).await;
                count(match &meaning {
                    Meaning::Final => RequestResult::Permanent,
                    Meaning::Success | Meaning::NoEffect | Meaning::Retry => RequestResult::Retry,
                });
                Err(response::error(&head, &meaning))
            }
        }
    }
}

/// Reads a response that is not recorded, if it is short: its connection can be used again.
async fn drain(mut body: Incoming) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await
            && bytes <= DRAIN_BYTES
        {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, reading).await;
}

impl Handler for HttpHandler {
    async fn handle(
        &self,
        (): &mut (),
        event: Event,
        context: EventContext,
    ) -> Result<Outcome, WorkError> {
        let exchange = self.exchange(&event, &context);
        timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            count(RequestResult::Timeout);
            let limit = self.timeout;
            let why = format!("the handler did not answer within {limit:?} (--handler-timeout)");
            // All of the request may have arrived.
            Err(WorkError::indeterminate(why).class(ErrorClass::Timeout))
        })
    }

    fn accepts(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.contains(event_type)
    }
}
