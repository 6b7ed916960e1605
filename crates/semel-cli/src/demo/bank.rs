//! A bank on the far side of a bad line.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use semel::DownstreamKey;

use super::Tally;

/// Charges first, then loses some of the replies.
#[derive(Clone)]
pub(super) struct Bank {
    ledger: Arc<Mutex<Ledger>>,
    lost_replies: u32,
}

#[derive(Default)]
struct Ledger {
    charges: HashMap<u32, usize>,
    seen: HashSet<DownstreamKey>,
}

impl Bank {
    pub(super) fn new(lost_replies: u32) -> Self {
        Self { ledger: Arc::default(), lost_replies }
    }

    /// Charges an order, once per key if there is one.
    pub(super) async fn charge(
        &self,
        order: u32,
        key: Option<DownstreamKey>,
    ) -> io::Result<String> {
        tokio::time::sleep(Duration::from_millis(rand::random_range(1..20))).await;
        let mut ledger = self.ledger.lock().expect("no thread panics with the ledger");
        if key.is_none_or(|key| ledger.seen.insert(key)) {
            *ledger.charges.entry(order).or_default() += 1;
        }
        if rand::random_range(0..100) < self.lost_replies {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(format!("receipt-{order}"))
    }

    pub(super) fn tally(&self, answered: usize) -> Tally {
        let ledger = self.ledger.lock().expect("no thread panics with the ledger");
        let overcharged = ledger.charges.values().filter(|charges| **charges > 1).count();
        Tally { charges: ledger.charges.values().sum(), overcharged, answered }
    }
}
