//! All requests of one connection: sent as they come, each answered when its reply is there.

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
    connection::{Connection, GRACE},
    error::{Trouble, disconnected, no_responders, timed_out, unavailable, unsent},
};

/// Requests without a reply at most; more wait.
const IN_FLIGHT: usize = 4096;

/// Replies that are heard before the next requests are sent: if it were all that are there, client and server would
/// wait for each other in turns.
const TOGETHER: usize = 16;

/// One request.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) what: Request,
    /// Later it is not sent any more: nobody waits for it.
    pub(crate) until: Instant,
    pub(crate) told: oneshot::Sender<Told>,
}

/// A message to a subject that is replied to.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

/// What one request was answered with.
pub(crate) type Told = std::result::Result<Bytes, Trouble>;

pub(crate) type Asks = Batches<Ask, Result<()>>;

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    connection: Arc<Connection>,
    down_since: watch::Receiver<Option<Instant>>,
    /// The subject of a reply is this, and the number of its request.
    inbox: String,
    replies: Subscriber,
    flight: Flight,
}

impl Pipe {
    pub(crate) async fn open(connection: Arc<Connection>) -> Result<Self> {
        let (inbox, down_since) = (connection.client.new_inbox(), connection.down_since());
        let replies = connection.client.subscribe(format!("{inbox}.*")).await;
        let replies =
            replies.map_err(|error| unavailable("nats: no replies").with_source(error))?;
        Ok(Self { connection, down_since, inbox, replies, flight: Flight::default() })
    }

    /// Serves until there is nobody left who asks.
    pub(crate) async fn run(mut self, mut asks: Asks) {
        loop {
            let since = *self.down_since.borrow();
            // Nothing is sent while there is no connection: the driver would keep it and send it later.
            let takes = since.is_none_or(|since| since.elapsed() > GRACE);
            tokio::select! {
                message = self.replies.next() => match message {
                    Some(message) => self.hear(message, TOGETHER),
                    None => return,
                },
                _ = self.down_since.changed() => self.lose(),
                () = overdue(self.flight.until()) => self.flight.give_up(Instant::now()),
                () = overdue(since.map(|_| Instant::now() + GRACE)) => drop(self.connection.is_up()),
                batch = asks.take(), if takes && self.flight.waiting < IN_FLIGHT => match batch {
                    Some(batch) => self.send(batch).await,
                    None => return,
                },
            }
        }
    }

    async fn send(&mut self, Batch { calls: asks, reply }: Batch<Ask, Result<()>>) {
        // Each is told by itself; the batch is only that they were taken.
        reply.send(asks.iter().map(|_| Ok(())).collect());
        // If it has come back untold, that is noticed before anything is in flight.
        self.connection.is_up();
        if self.down_since.has_changed().unwrap_or(false) {
            self.down_since.mark_unchanged();
            self.lose();
        }
        // Those whose caller left are not sent any more.
        for Ask { what, until, told } in asks.into_iter().filter(|ask| !ask.told.is_closed()) {
            match self.sent(what, until).await {
                Ok(()) => self.flight.add(until, told),
                Err(trouble) => drop(told.send(Err(trouble))),
            }
        }
    }

    async fn sent(&self, what: Request, until: Instant) -> Result<(), Trouble> {
        if !self.connection.is_up() {
            return Err(Trouble::Lost(disconnected()));
        }
        if until <= Instant::now() {
            return Err(Trouble::Lost(timed_out()));
        }
        let sent = timeout_at(until.into(), self.publish(what)).await;
        sent.unwrap_or_else(|_| Err(Trouble::Lost(timed_out())))
    }

    async fn publish(&self, what: Request) -> Result<(), Trouble> {
        let Request { subject, headers, payload } = what;
        let (client, reply) =
            (&self.connection.client, format!("{}.{}", self.inbox, self.flight.next()));
        let sent = match headers.is_empty() {
            true => client.publish_with_reply(subject, reply, payload).await,
            false => client.publish_with_reply_and_headers(subject, reply, headers, payload).await,
        };
        sent.map_err(unsent)
    }

    /// What came before the loss is heard before it.
    fn lose(&mut self) {
        if let Some(Some(message)) = self.replies.next().now_or_never() {
            self.hear(message, usize::MAX);
        }
        self.flight.lose(&disconnected());
    }

    /// Takes a reply, and so many that have come with it.
    fn hear(&mut self, message: Message, more: usize) {
        self.tell(message);
        for _ in 0..more {
            let Some(Some(message)) = self.replies.next().now_or_never() else { return };
            self.tell(message);
        }
    }

    fn tell(&mut self, message: Message) {
        if let Some(number) = number_of(&message) {
            self.flight.tell(number, read(message));
        }
    }
}

/// Requests without a reply, in the order in which they were sent.
#[derive(Debug, Default)]
struct Flight {
    /// The number of the first. None is used twice: replies may come late, and twice after a change of leader.
    first: u64,
    asked: VecDeque<Option<(Instant, oneshot::Sender<Told>)>>,
    /// Those among them that have not been told.
    waiting: usize,
}

impl Flight {
    /// The number of the next request.
    fn next(&self) -> u64 {
        self.first + self.asked.len() as u64
    }

    fn add(&mut self, until: Instant, told: oneshot::Sender<Told>) {
        self.asked.push_back(Some((until, told)));
        self.waiting += 1;
    }

    /// Tells who asked, unless it was told before.
    fn tell(&mut self, number: u64, told: Told) {
        let place = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(place) = place.and_then(|at| self.asked.get_mut(at))
            && let Some((_, asked)) = place.take()
        {
            self.waiting -= 1;
            let _ = asked.send(told);
        }
        self.forget_told();
    }

    /// No reply will come any more.
    fn lose(&mut self, why: &Error) {
        (self.first, self.waiting) = (self.next(), 0);
        for (_, asked) in self.asked.drain(..).flatten() {
            let _ = asked.send(Err(Trouble::Lost(why.clone())));
        }
    }

    /// Until when the first of them waits.
    fn until(&self) -> Option<Instant> {
        self.asked.front()?.as_ref().map(|(until, _)| *until)
    }

    fn give_up(&mut self, now: Instant) {
        while self.until().is_some_and(|until| until <= now) {
            if let Some((_, asked)) = self.asked.pop_front().flatten() {
                self.waiting -= 1;
                let _ = asked.send(Err(Trouble::Lost(timed_out())));
            }
            self.first += 1;
            self.forget_told();
        }
    }

    fn forget_told(&mut self) {
        while let Some(None) = self.asked.front() {
            self.asked.pop_front();
            self.first += 1;
        }
    }
}

async fn overdue(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

fn number_of(message: &Message) -> Option<u64> {
    message.subject.rsplit('.').next()?.parse().ok()
}

fn read(message: Message) -> Told {
    match message.status {
        Some(StatusCode::NO_RESPONDERS) => Err(Trouble::Lost(no_responders())),
        _ => Ok(message.payload),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flight<const N: usize>(until: Instant) -> (Flight, [oneshot::Receiver<Told>; N]) {
        let mut flight = Flight { first: 7, ..Flight::default() };
        let asked = [(); N].map(|()| {
            let (told, answer) = oneshot::channel();
            flight.add(until, told);
            answer
        });
        (flight, asked)
    }

    fn is_lost(answer: &mut oneshot::Receiver<Told>) -> bool {
        matches!(answer.try_recv(), Ok(Err(Trouble::Lost(_))))
    }

    #[test]
    fn a_reply_is_told_once_and_to_who_asked() {
        let (mut flight, [mut first, mut second]) = flight(Instant::now());
        for number in [0, 6, 9, u64::MAX] {
            flight.tell(number, Ok(Bytes::new()));
        }
        flight.tell(8, Ok(Bytes::from_static(b"once")));
        flight.tell(8, Ok(Bytes::from_static(b"twice")));
        assert!(matches!(second.try_recv(), Ok(Ok(told)) if told == "once"));
        assert!(first.try_recv().is_err());
        flight.tell(7, Ok(Bytes::new()));
        assert!(matches!(first.try_recv(), Ok(Ok(_))));
        assert_eq!((flight.asked.len(), flight.waiting, flight.next()), (0, 0, 9));
        flight.tell(8, Ok(Bytes::from_static(b"thrice")));
    }

    #[test]
    fn what_was_lost_is_told_and_its_replies_are_nobodys() {
        let (mut flight, mut asked) = flight::<3>(Instant::now());
        flight.lose(&disconnected());
        assert!(asked.iter_mut().all(is_lost) && flight.waiting == 0);
        let (told, mut answer) = oneshot::channel();
        assert_eq!(flight.next(), 10);
        flight.add(Instant::now(), told);
        for late in 7..10 {
            flight.tell(late, Ok(Bytes::new()));
        }
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn who_waited_long_enough_is_told_and_the_rest_goes_on() {
        let now = Instant::now();
        let (mut flight, mut asked) = flight::<3>(now);
        let (told, mut later) = oneshot::channel();
        flight.add(now + Duration::from_secs(9), told);
        flight.tell(8, Ok(Bytes::new()));
        flight.give_up(now);
        assert!(is_lost(&mut asked[0]) && is_lost(&mut asked[2]));
        assert!(matches!(asked[1].try_recv(), Ok(Ok(_))));
        assert!(later.try_recv().is_err() && flight.waiting == 1);
        flight.tell(10, Ok(Bytes::new()));
        assert!(matches!(later.try_recv(), Ok(Ok(_))));
    }
}
