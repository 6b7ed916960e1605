//! The log of the upstream: calls and effects for each order. The order is what a caller wants done once.

use std::collections::BTreeMap;

use crate::sdk::case::SdkCase;

#[derive(Debug, Default)]
pub(crate) struct OrderLog {
    records: BTreeMap<String, OrderRecord>,
    created: u32,
}

/// One order. It should have one effect, however often it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderRecord {
    pub(crate) calls: u32,
    /// The effects: the id of each created object.
    pub(crate) ids: Vec<String>,
    /// Every idempotency key that came with a call, and the last object created under it.
    pub(crate) keys: BTreeMap<String, Option<String>>,
}

/// How the upstream answers a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamAction {
    Refuse,
    Answer(String),
    /// The object is created, but the client gets no response.
    CloseConnection,
}

impl OrderLog {
    pub(crate) fn record(&self, order: &str) -> OrderRecord {
        self.records.get(order).cloned().unwrap_or_default()
    }

    /// Logs a call and its effect. `prefix` is the kind of object, such as `ch`.
    pub(crate) fn call(
        &mut self,
        case: SdkCase,
        order: &str,
        key: &str,
        prefix: &str,
    ) -> UpstreamAction {
        let record = self.records.entry(order.to_owned()).or_default();
        record.calls += 1;
        let first = record.calls == 1;
        let created = record.keys.entry(key.to_owned()).or_default();
        match (case, created.as_ref()) {
            (SdkCase::FailFirst, _) if first => return UpstreamAction::Refuse,
            // The gateway cannot know that the first attempt had its effect, so the upstream checks the key.
            (SdkCase::DropFirst, Some(id)) => return UpstreamAction::Answer(id.clone()),
            _ => {}
        }
        self.created += 1;
        let id = format!("{prefix}_{}", self.created);
        *created = Some(id.clone());
        record.ids.push(id.clone());
        if first && case == SdkCase::DropFirst {
            UpstreamAction::CloseConnection
        } else {
            UpstreamAction::Answer(id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_an_effect_whatever_its_key() {
        let mut orders = OrderLog::default();
        for id in ["ch_1", "ch_2"] {
            assert_eq!(
                orders.call(SdkCase::Slow, "a", "k", "ch"),
                UpstreamAction::Answer(id.to_owned())
            );
        }
        assert_eq!(orders.record("a").ids, ["ch_1", "ch_2"]);
        assert!(orders.record("b").ids.is_empty());
    }

    #[test]
    fn a_refused_call_has_no_effect() {
        let mut orders = OrderLog::default();
        assert_eq!(orders.call(SdkCase::FailFirst, "a", "k", "ch"), UpstreamAction::Refuse);
        assert!(orders.record("a").ids.is_empty());
        assert_eq!(
            orders.call(SdkCase::FailFirst, "a", "k", "ch"),
            UpstreamAction::Answer("ch_1".to_owned())
        );
    }

    #[test]
    fn an_effect_without_a_response_is_found_by_its_key_only() {
        let mut orders = OrderLog::default();
        assert_eq!(
            orders.call(SdkCase::DropFirst, "a", "k", "ch"),
            UpstreamAction::CloseConnection
        );
        assert_eq!(
            orders.call(SdkCase::DropFirst, "a", "k", "ch"),
            UpstreamAction::Answer("ch_1".to_owned())
        );
        assert_eq!(orders.record("a").ids.len(), 1);
        orders.call(SdkCase::DropFirst, "a", "other", "ch");
        assert_eq!(orders.record("a").ids.len(), 2);
    }
}
