//! The subject that a delivery is settled on. It says which delivery it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the subject of a delivery says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryInfo {
    pub(crate) stream: String,
    pub(crate) deliveries: u32,
    pub(crate) stream_sequence: u64,
    pub(crate) published_at: SystemTime,
}

impl DeliveryInfo {
    /// Parses `$JS.ACK.STREAM.CONSUMER.DELIVERIES.STREAM-SEQ.CONSUMER-SEQ.NANOSECONDS.PENDING`. Newer servers may put
    /// domain and account behind `$JS.ACK`, and append further parts.
    pub(crate) fn parse(subject: &str) -> Option<Self> {
        let parts: Vec<&str> = subject.strip_prefix("$JS.ACK.")?.split('.').collect();
        let parts = match parts.len() {
            7 => &parts[..],
            9.. => &parts[2..],
            _ => return None,
        };
        let deliveries: u64 = parts[2].parse().ok()?;
        Some(Self {
            stream: parts[0].to_owned(),
            deliveries: u32::try_from(deliveries).unwrap_or(u32::MAX),
            stream_sequence: parts[3].parse().ok()?,
            published_at: UNIX_EPOCH + Duration::from_nanos(parts[5].parse().ok()?),
        })
    }

    /// Where the message is, for operators.
    pub(crate) fn position(&self) -> String {
        position(&self.stream, self.stream_sequence)
    }
}

pub(crate) fn position(stream: &str, sequence: u64) -> String {
    format!("{stream}/{sequence}")
}

/// The subject that acknowledges a message that the consumer does not track any more. Its consumer sequence is 0, which
/// no delivery has, so the server takes it for no particular delivery.
pub(crate) fn late_ack_subject(
    stream: &str,
    consumer: &str,
    sequence: u64,
    deliveries: u32,
) -> String {
    format!("$JS.ACK.{stream}.{consumer}.{deliveries}.{sequence}.0.0.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_subject_are_understood() {
        let expected = DeliveryInfo {
            stream: "ORDERS".to_owned(),
            deliveries: 2,
            stream_sequence: 17,
            published_at: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001),
        };
        let rest = "ORDERS.billing.2.17.9.1700000000000000001.4";
        for subject in [
            format!("$JS.ACK.{rest}"),
            format!("$JS.ACK._.hash.{rest}"),
            format!("$JS.ACK.hub.hash.{rest}.random"),
        ] {
            assert_eq!(DeliveryInfo::parse(&subject).as_ref(), Some(&expected), "{subject}");
        }
        assert_eq!(expected.position(), "ORDERS/17");
        for wrong in
            ["", "_INBOX.1", "$JS.ACK.a.b", "$JS.ACK.a.b.1.x.1.1.1", "$JS.ACK.a.b.1.1.1.1.1.1"]
        {
            assert_eq!(DeliveryInfo::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_late_acknowledgement_names_the_message() {
        let info = DeliveryInfo::parse(&late_ack_subject("S", "c", 7, 3)).unwrap();
        assert_eq!((info.stream_sequence, info.deliveries), (7, 3));
    }
}
