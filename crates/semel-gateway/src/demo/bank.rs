//! The effect that must not happen twice.

use std::{sync::Mutex, time::Duration};

use serde::{Deserialize, Serialize};

/// Charges a card. Sometimes slow, sometimes not there.
#[derive(Debug, Default)]
pub(super) struct Bank(Mutex<ChargeLedger>);

#[derive(Debug, Default)]
struct ChargeLedger {
    asked: u32,
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

/// What the bank does with the next order.
pub(super) enum ChargeResult {
    Charged(Charge, Duration),
    /// Nothing happened.
    Unavailable,
}

impl Bank {
    const SLOW: Duration = Duration::from_secs(2);

    pub(super) fn charge(&self, order: &ChargeRequest) -> ChargeResult {
        let mut ledger = self.0.lock().expect("nobody panics with the ledger");
        ledger.asked += 1;
        if ledger.asked.is_multiple_of(4) {
            return ChargeResult::Unavailable;
        }
        let takes = if ledger.asked.is_multiple_of(3) { Self::SLOW } else { Duration::ZERO };
        let charge =
            Charge { id: format!("ch_{}", ledger.charges.len() + 1), amount: order.amount };
        ledger.charges.push(charge.clone());
        ChargeResult::Charged(charge, takes)
    }

    pub(super) fn charges(&self) -> Vec<Charge> {
        self.0.lock().expect("nobody panics with the ledger").charges.clone()
    }
}
