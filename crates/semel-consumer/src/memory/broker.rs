//! The state of the broker in memory.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::{Duration, SystemTime},
};

use semel_core::{Error, ErrorKind, Outcome, Result};
use tokio::time::Instant;

use super::{faults::MemoryFaults, unreachable_broker};
use crate::message::Message;

/// How a delivery was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemorySettlement {
    /// The message is done.
    Acked,
    /// The message comes again after this time.
    Nacked(Duration),
    /// The message is a dead letter, for this reason.
    Rejected(String),
}

/// A settlement that the broker got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledMessage {
    /// The number of the message.
    pub number: u64,
    /// How often the message was delivered before it was settled, this delivery included.
    pub deliveries: u32,
    /// How.
    pub how: MemorySettlement,
}

#[derive(Default)]
pub(super) struct BrokerState {
    /// Messages that are not settled for good.
    open: HashMap<u64, OpenMessage>,
    /// All messages, as they were published.
    published: HashMap<u64, Message>,
    ready: VecDeque<u64>,
    /// Times at which a message may have to be delivered again.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    settled: Vec<SettledMessage>,
    replies: Vec<(String, Outcome)>,
    faults: MemoryFaults,
    last: u64,
    has_ended: bool,
}

#[derive(Default)]
struct OpenMessage {
    deliveries: u32,
    /// The last delivery, and the connection that has it.
    current: u32,
    connection: u64,
    /// Earlier deliveries were taken back.
    valid_from: u32,
    /// True until the last delivery is settled. Only then it can be extended.
    is_held: bool,
    /// When it is delivered again unless something happens before; `None` while it is ready.
    due: Option<Instant>,
}

/// A message that is handed over.
pub(super) struct Taken {
    pub(super) number: u64,
    pub(super) delivery: u32,
    pub(super) message: Message,
}

impl BrokerState {
    pub(super) fn publish(&mut self, message: Message) -> u64 {
        self.last += 1;
        let number = self.last;
        let published_at = message.published_at.or_else(|| Some(SystemTime::now()));
        let position = format!("memory/{number}");
        self.published.insert(number, Message { position, published_at, ..message });
        self.open.insert(number, OpenMessage::default());
        self.ready.push_back(number);
        number
    }

    pub(super) fn duplicate(&mut self, number: u64) -> Option<u64> {
        let copy = self.published.get(&number)?.clone();
        Some(self.publish(copy))
    }

    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended && self.open.is_empty()
    }

    pub(super) fn set_faults(&mut self, faults: MemoryFaults) {
        self.faults = faults;
    }

    pub(super) fn faults(&self) -> &MemoryFaults {
        &self.faults
    }

    pub(super) fn settled(&self) -> &[SettledMessage] {
        &self.settled
    }

    pub(super) fn replies(&self) -> &[(String, Outcome)] {
        &self.replies
    }

    pub(super) fn reply(&mut self, address: String, outcome: Outcome) {
        self.replies.push((address, outcome));
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// The next messages that are ready, at most `max`.
    pub(super) fn take(
        &mut self,
        max: usize,
        now: Instant,
        ack_deadline: Duration,
        connection: u64,
    ) -> Vec<Taken> {
        self.redeliver_due(now);
        let mut taken = Vec::new();
        while taken.len() < max {
            let Some(number) = self.ready.pop_front() else { break };
            let Some(open) = self.open.get_mut(&number) else { continue };
            open.deliveries += 1;
            open.current = open.deliveries;
            open.connection = connection;
            open.is_held = true;
            let due = now + ack_deadline;
            open.due = Some(due);
            self.due.push(Reverse((due, number)));
            let deliveries = (!self.faults.hides_deliveries).then_some(open.deliveries);
            let message = Message { deliveries, ..self.published[&number].clone() };
            taken.push(Taken { number, delivery: open.current, message });
            if self.faults.early_redeliveries.happens() {
                self.ready.push_back(number);
            }
        }
        taken
    }

    /// When the next message may become ready by itself.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    fn redeliver_due(&mut self, now: Instant) {
        while let Some(Reverse((due, number))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            // An extended or settled delivery left an entry that does not count any more.
            if let Some(open) = self.open.get_mut(&number).filter(|open| open.due == Some(due)) {
                open.due = None;
                self.ready.push_back(number);
            }
        }
    }

    pub(super) fn settle(
        &mut self,
        number: u64,
        delivery: u32,
        how: MemorySettlement,
        now: Instant,
    ) -> Result<()> {
        if self.faults.is_down || self.faults.lost_settlements.happens() {
            return Err(unreachable_broker());
        }
        let open = self.open.get_mut(&number);
        let Some(open) = open.filter(|open| delivery >= open.valid_from) else {
            let what = "the delivery was settled or taken back before";
            return Err(Error::new(ErrorKind::Unavailable, what));
        };
        let deliveries = open.deliveries;
        match &how {
            MemorySettlement::Acked | MemorySettlement::Rejected(_) => {
                self.open.remove(&number);
            }
            // A delivery that was replaced by a later one decides nothing any more.
            MemorySettlement::Nacked(_) if open.current != delivery => {}
            MemorySettlement::Nacked(delay) if delay.is_zero() => {
                open.is_held = false;
                open.due = None;
                self.ready.push_back(number);
            }
            MemorySettlement::Nacked(delay) => {
                open.is_held = false;
                let due = now + *delay;
                open.due = Some(due);
                self.due.push(Reverse((due, number)));
            }
        }
        self.settled.push(SettledMessage { number, deliveries, how });
        match self.faults.lost_confirmations.happens() {
            true => Err(unreachable_broker()),
            false => Ok(()),
        }
    }

    pub(super) fn extend(&mut self, number: u64, delivery: u32, until: Instant) -> Result<()> {
        if self.faults.is_down {
            return Err(unreachable_broker());
        }
        let open = self.open.get_mut(&number);
        if let Some(open) =
            open.filter(|open| open.current == delivery && open.is_held && open.due.is_some())
        {
            open.due = Some(until);
            self.due.push(Reverse((until, number)));
        }
        Ok(())
    }

    /// A delivery was dropped. It has no effect if that delivery was settled or replaced before.
    pub(super) fn drop_delivery(&mut self, number: u64, delivery: u32) {
        let open = self.open.get_mut(&number);
        if let Some(open) = open.filter(|open| open.current == delivery && open.is_held)
            && open.due.take().is_some()
        {
            open.is_held = false;
            self.ready.push_back(number);
        }
    }

    /// Takes all deliveries back, or those that one connection holds.
    pub(super) fn take_back(&mut self, connection: Option<u64>) {
        for (number, open) in &mut self.open {
            let is_meant = connection.is_none_or(|it| open.is_held && open.connection == it);
            if is_meant && open.due.take().is_some() {
                open.valid_from = open.deliveries + 1;
                self.ready.push_back(*number);
            }
        }
    }
}
