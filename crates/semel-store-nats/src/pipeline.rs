//! The pipeline of one connection: requests are sent without waiting for earlier replies, and each gets its reply
//! when it arrives.

use std::{collections::VecDeque, future::pending, sync::Arc, time::Instant};

use async_nats::{HeaderMap, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use semel_core::{Error, Result};
use semel_remote::batch::{Batch, Batches};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep_until, timeout_at},
};

use crate::{
    connection::{GRACE, NatsConnection},
    error::{RequestError, disconnected, no_responders, timed_out, unavailable, unsent},
};

/// Most requests without a reply; more wait in the queue.
const MAX_IN_FLIGHT: usize = 4096;

/// Replies that are read before the next requests are sent. If all available replies were read first, client and server
/// would wait for each other in turns.
const RECEIVE_TOGETHER: usize = 16;

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) request: OutgoingRequest,
    /// When its caller stops waiting. It is not sent after that.
    pub(crate) until: Instant,
    pub(crate) reply_sender: oneshot::Sender<RawReply>,
}

/// A message that the server replies to.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

/// The reply to one request.
pub(crate) type RawReply = std::result::Result<Bytes, RequestError>;

pub(crate) type RequestBatches = Batches<QueuedRequest, Result<()>>;

/// Sends the requests of one connection, and receives their replies.
#[derive(Debug)]
pub(crate) struct NatsPipeline {
    connection: Arc<NatsConnection>,
    disconnected_since: watch::Receiver<Option<Instant>>,
    /// The subject of a reply is the inbox and the number of its request.
    inbox: String,
    replies: Subscriber,
    in_flight: InFlightRequests,
}

impl NatsPipeline {
    pub(crate) async fn open(connection: Arc<NatsConnection>) -> Result<Self> {
        let (inbox, disconnected_since) =
            (connection.client.new_inbox(), connection.disconnected_since());
        let replies = connection.client.subscribe(format!("{inbox}.*")).await;
        let replies = replies
            .map_err(|error| unavailable("nats: cannot subscribe to replies").with_source(error))?;
        Ok(Self {
            connection,
            disconnected_since,
            inbox,
            replies,
            in_flight: InFlightRequests::default(),
        })
    }

    /// Runs until the queue is closed.
    pub(crate) async fn run(mut self, mut requests: RequestBatches) {
        loop {
            let since = *self.disconnected_since.borrow();
            // Nothing is sent while there is no connection: the driver would buffer it and send it later.
            let may_send = since.is_none_or(|since| since.elapsed() > GRACE);
            tokio::select! {
                message = self.replies.next() => match message {
                    Some(message) => self.receive(message, RECEIVE_TOGETHER),
                    None => return,
                },
                _ = self.disconnected_since.changed() => self.fail_all(),
                () = wait_until(self.in_flight.until()) => self.in_flight.fail_overdue(Instant::now()),
                () = wait_until(since.map(|_| Instant::now() + GRACE)) => drop(self.connection.is_connected()),
                batch = requests.take(), if may_send && self.in_flight.waiting < MAX_IN_FLIGHT => match batch {
                    Some(batch) => self.send(batch).await,
                    None => return,
                },
            }
        }
    }

    async fn send(&mut self, Batch { calls: requests, reply }: Batch<QueuedRequest, Result<()>>) {
        // The batch is acknowledged at once: each request gets its own reply later.
        reply.send(requests.iter().map(|_| Ok(())).collect());
        // A reconnect without an event must be noticed before anything is in flight.
        self.connection.is_connected();
        if self.disconnected_since.has_changed().unwrap_or(false) {
            self.disconnected_since.mark_unchanged();
            self.fail_all();
        }
        // Requests whose caller is gone are not sent.
        for QueuedRequest { request, until, reply_sender } in
            requests.into_iter().filter(|request| !request.reply_sender.is_closed())
        {
            match self.send_one(request, until).await {
                Ok(()) => self.in_flight.add(until, reply_sender),
                Err(error) => drop(reply_sender.send(Err(error))),
            }
        }
    }

    async fn send_one(&self, request: OutgoingRequest, until: Instant) -> Result<(), RequestError> {
        if !self.connection.is_connected() {
            return Err(RequestError::Unacknowledged(disconnected()));
        }
        if until <= Instant::now() {
            return Err(RequestError::Unacknowledged(timed_out()));
        }
        let sent = timeout_at(until.into(), self.publish(request)).await;
        sent.unwrap_or_else(|_| Err(RequestError::Unacknowledged(timed_out())))
    }

    async fn publish(&self, request: OutgoingRequest) -> Result<(), RequestError> {
        let OutgoingRequest { subject, headers, payload } = request;
        let (client, reply) =
            (&self.connection.client, format!("{}.{}", self.inbox, self.in_flight.next()));
        let sent = match headers.is_empty() {
            true => client.publish_with_reply(subject, reply, payload).await,
            false => client.publish_with_reply_and_headers(subject, reply, headers, payload).await,
        };
        sent.map_err(unsent)
    }

    /// Fails all requests in flight. Replies that came before the loss are delivered first.
    fn fail_all(&mut self) {
        if let Some(Some(message)) = self.replies.next().now_or_never() {
            self.receive(message, usize::MAX);
        }
        self.in_flight.fail_all(&disconnected());
    }

    /// Delivers a reply, and up to `more` replies that have arrived too.
    fn receive(&mut self, message: Message, more: usize) {
        self.deliver(message);
        for _ in 0..more {
            let Some(Some(message)) = self.replies.next().now_or_never() else { return };
            self.deliver(message);
        }
    }

    fn deliver(&mut self, message: Message) {
        if let Some(number) = number_of(&message) {
            self.in_flight.deliver(number, read(message));
        }
    }
}

/// Requests without a reply, in the order in which they were sent.
#[derive(Debug, Default)]
struct InFlightRequests {
    /// The number of the first. No number is used twice: a reply may come late, and after a change of leader twice.
    first: u64,
    requests: VecDeque<Option<(Instant, oneshot::Sender<RawReply>)>>,
    /// How many of them have no reply yet.
    waiting: usize,
}

impl InFlightRequests {
    /// The number of the next request.
    fn next(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    fn add(&mut self, until: Instant, reply_sender: oneshot::Sender<RawReply>) {
        self.requests.push_back(Some((until, reply_sender)));
        self.waiting += 1;
    }

    /// Delivers a reply, unless its request has one.
    fn deliver(&mut self, number: u64, reply: RawReply) {
        let entry = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = entry.and_then(|at| self.requests.get_mut(at))
            && let Some((_, reply_sender)) = entry.take()
        {
            self.waiting -= 1;
            let _ = reply_sender.send(reply);
        }
        self.remove_finished();
    }

    /// Fails all requests: no reply will come.
    fn fail_all(&mut self, why: &Error) {
        (self.first, self.waiting) = (self.next(), 0);
        for (_, reply_sender) in self.requests.drain(..).flatten() {
            let _ = reply_sender.send(Err(RequestError::Unacknowledged(why.clone())));
        }
    }

    /// When the caller of the first request stops waiting.
    fn until(&self) -> Option<Instant> {
        self.requests.front()?.as_ref().map(|(until, _)| *until)
    }

    fn fail_overdue(&mut self, now: Instant) {
        while self.until().is_some_and(|until| until <= now) {
            if let Some((_, reply_sender)) = self.requests.pop_front().flatten() {
                self.waiting -= 1;
                let _ = reply_sender.send(Err(RequestError::Unacknowledged(timed_out())));
            }
            self.first += 1;
            self.remove_finished();
        }
    }

    fn remove_finished(&mut self) {
        while let Some(None) = self.requests.front() {
            self.requests.pop_front();
            self.first += 1;
        }
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

fn number_of(message: &Message) -> Option<u64> {
    message.subject.rsplit('.').next()?.parse().ok()
}

fn read(message: Message) -> RawReply {
    match message.status {
        Some(StatusCode::NO_RESPONDERS) => Err(RequestError::Unacknowledged(no_responders())),
        _ => Ok(message.payload),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn in_flight<const N: usize>(
        until: Instant,
    ) -> (InFlightRequests, [oneshot::Receiver<RawReply>; N]) {
        let mut in_flight = InFlightRequests { first: 7, ..InFlightRequests::default() };
        let replies = [(); N].map(|()| {
            let (reply_sender, reply) = oneshot::channel();
            in_flight.add(until, reply_sender);
            reply
        });
        (in_flight, replies)
    }

    fn is_lost(reply: &mut oneshot::Receiver<RawReply>) -> bool {
        matches!(reply.try_recv(), Ok(Err(RequestError::Unacknowledged(_))))
    }

    #[test]
    fn a_reply_is_delivered_once_and_to_its_request() {
        let (mut in_flight, [mut first, mut second]) = in_flight(Instant::now());
        for number in [0, 6, 9, u64::MAX] {
            in_flight.deliver(number, Ok(Bytes::new()));
        }
        in_flight.deliver(8, Ok(Bytes::from_static(b"once")));
        in_flight.deliver(8, Ok(Bytes::from_static(b"twice")));
        assert!(matches!(second.try_recv(), Ok(Ok(reply)) if reply == "once"));
        assert!(first.try_recv().is_err());
        in_flight.deliver(7, Ok(Bytes::new()));
        assert!(matches!(first.try_recv(), Ok(Ok(_))));
        assert_eq!((in_flight.requests.len(), in_flight.waiting, in_flight.next()), (0, 0, 9));
        in_flight.deliver(8, Ok(Bytes::from_static(b"thrice")));
    }

    #[test]
    fn after_a_lost_connection_all_requests_fail_and_late_replies_are_dropped() {
        let (mut in_flight, mut replies) = in_flight::<3>(Instant::now());
        in_flight.fail_all(&disconnected());
        assert!(replies.iter_mut().all(is_lost) && in_flight.waiting == 0);
        let (reply_sender, mut reply) = oneshot::channel();
        assert_eq!(in_flight.next(), 10);
        in_flight.add(Instant::now(), reply_sender);
        for late in 7..10 {
            in_flight.deliver(late, Ok(Bytes::new()));
        }
        assert!(reply.try_recv().is_err());
    }

    #[test]
    fn overdue_requests_fail_and_the_others_go_on() {
        let now = Instant::now();
        let (mut in_flight, mut replies) = in_flight::<3>(now);
        let (reply_sender, mut later) = oneshot::channel();
        in_flight.add(now + Duration::from_secs(9), reply_sender);
        in_flight.deliver(8, Ok(Bytes::new()));
        in_flight.fail_overdue(now);
        assert!(is_lost(&mut replies[0]) && is_lost(&mut replies[2]));
        assert!(matches!(replies[1].try_recv(), Ok(Ok(_))));
        assert!(later.try_recv().is_err() && in_flight.waiting == 1);
        in_flight.deliver(10, Ok(Bytes::new()));
        assert!(matches!(later.try_recv(), Ok(Ok(_))));
    }
}
