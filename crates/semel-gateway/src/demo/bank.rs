//! The demo's bank, whose charges must not happen twice.

use std::{sync::Mutex, time::Duration};

use serde::{Deserialize, Serialize};

/// Charges a card. It is sometimes slow and sometimes unavailable.
#[derive(Debug, Default)]
pub(super) struct Bank(Mutex<ChargeLedger>);

#[derive(Debug, Default)]
struct ChargeLedger {
    requests: u32,
    charges: Vec<Charge>,
}

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct Charge {
    id: String,
    amount: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChargeRequest {
    amount: u32,
}

/// The bank's reply to a charge.
pub(super) enum ChargeResult {
    Charged(Charge, Duration),
    /// Nothing happened.
    Unavailable,
}

impl Bank {
    const SLOW: Duration = Duration::from_secs(2);

    pub(super) fn charge(&self, request: &ChargeRequest) -> ChargeResult {
        let mut ledger = self.0.lock().expect("no thread panics while it holds the ledger");
        ledger.requests += 1;
        if ledger.requests.is_multiple_of(4) {
            return ChargeResult::Unavailable;
        }
        let takes = if ledger.requests.is_multiple_of(3) { Self::SLOW } else { Duration::ZERO };
        let charge =
            Charge { id: format!("ch_{}", ledger.charges.len() + 1), amount: request.amount };
        ledger.charges.push(charge.clone());
        ChargeResult::Charged(charge, takes)
    }

    pub(super) fn charges(&self) -> Vec<Charge> {
        self.0.lock().expect("no thread panics while it holds the ledger").charges.clone()
    }
}
