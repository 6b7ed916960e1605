//! Parses URLs of a Kafka cluster: `kafka://` or `kafka+tls://`, brokers, a path, and options.
//!
//! Options with a dot in their name are settings of librdkafka, such as `sasl.mechanism`. The others are ours.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use semel_core::{Error, Result};

const PORT: u16 = 9092;

/// Settings that decide whether a message can be lost, or that the URL has in another place.
const OURS: [&str; 13] = [
    "acks",
    "auto.commit.enable",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "metadata.broker.list",
    "offset.store.method",
    "rebalance_cb",
    "request.required.acks",
];

/// A parsed URL.
#[derive(Clone, Debug)]
pub(crate) struct KafkaUrl {
    pub(crate) address: KafkaAddress,
    /// The parts of the path.
    pub(crate) path: Vec<String>,
    /// Our options, in their order.
    pub(crate) options: Vec<(String, String)>,
}

/// How to reach and log in to a cluster.
#[derive(Clone)]
pub(crate) struct KafkaAddress {
    pub(crate) brokers: Vec<(String, u16)>,
    pub(crate) tls: bool,
    pub(crate) ca_file: Option<PathBuf>,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// Settings for librdkafka.
    pub(crate) settings: BTreeMap<String, String>,
}

impl KafkaUrl {
    /// Parses `url`. An error names `example`, and never shows the URL: it may hold a password.
    pub(crate) fn parse(url: &str, example: &str) -> Result<Self> {
        Self::read(url).map_err(|why| not_understood(&why, example))
    }

    fn read(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        let tls = match scheme {
            "kafka" => false,
            "kafka+tls" => true,
            _ => return Err("its scheme is unknown".to_owned()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(l, p)| (Some(l), p));
        let (brokers, path) = rest.split_once('/').unwrap_or((rest, ""));
        let brokers = brokers.split(',').map(|it| semel_remote::host_and_port(it, PORT));
        let path = path.split('/').filter(|part| !part.is_empty()).map(semel_remote::decoded);
        let address = KafkaAddress {
            brokers: brokers.collect::<Result<_, _>>()?,
            tls,
            ca_file: None,
            login: login.map(login_of).transpose()?,
            settings: BTreeMap::new(),
        };
        let path = path.collect::<Result<_, _>>()?;
        let mut parsed = Self { address, path, options: Vec::new() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.option(name, semel_remote::decoded(value)?)?;
        }
        if parsed.address.ca_file.is_some() && !tls {
            return Err("?ca= is of use with kafka+tls:// only".to_owned());
        }
        Ok(parsed)
    }

    fn option(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "ca" if !value.is_empty() => self.address.ca_file = Some(value.into()),
            name if is_ours(name) => {
                return Err(format!("semel sets {name} itself; leave it out"));
            }
            name if name.contains('.') => {
                self.address.settings.insert(name.to_owned(), value);
            }
            _ => self.options.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

fn login_of(login: &str) -> Result<(String, String), &'static str> {
    let (user, password) = login.split_once(':').ok_or("a login is USER:PASSWORD@")?;
    if user.is_empty() {
        return Err("a login is USER:PASSWORD@");
    }
    Ok((semel_remote::decoded(user)?, semel_remote::decoded(password)?))
}

/// True for a setting of librdkafka that only semel may set.
pub(crate) fn is_ours(setting: &str) -> bool {
    OURS.contains(&setting)
}

/// The error for a URL that is wrong in this way.
pub(crate) fn not_understood(why: &str, example: &str) -> Error {
    Error::invalid(format!("kafka: the URL is not understood: {why}; it is like {example}"))
}

/// Prints neither login nor settings.
impl fmt::Debug for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brokers, tls, .. } = self;
        f.debug_struct("KafkaAddress")
            .field("brokers", brokers)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

/// True for the name of a topic.
pub(crate) fn is_topic(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty()
        && name.len() <= 249
        && name.bytes().all(is_allowed)
        && name != "."
        && name != ".."
}

/// Parses `true` or `false`; an option without a value is set.
pub(crate) fn flag(value: &str) -> Option<bool> {
    match value {
        "" | "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Parses `500ms`, `30s`, `5m` or `36h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "kafka://HOST/TOPIC?group=GROUP";

    #[test]
    fn every_kind_of_url_is_understood() {
        let parse = |url| KafkaUrl::parse(url, EXAMPLE).unwrap();
        let plain = parse("kafka://localhost/orders?group=billing");
        assert_eq!(plain.address.brokers, [("localhost".to_owned(), 9092)]);
        assert_eq!(plain.path, ["orders"]);
        assert_eq!(plain.options, [("group".to_owned(), "billing".to_owned())]);
        assert_eq!(parse("kafka://a:1,[::1]:2,c/t").address.brokers[1], ("::1".into(), 2));
        let tls = parse("kafka+tls://u:p%40ss@h/t?ca=/x/ca.pem&sasl.mechanism=SCRAM-SHA-512");
        assert_eq!(tls.address.login, Some(("u".to_owned(), "p@ss".to_owned())));
        assert_eq!(tls.address.settings["sasl.mechanism"], "SCRAM-SHA-512");
        assert!(tls.address.tls && tls.options.is_empty());
    }

    #[test]
    fn a_bad_url_is_refused_and_not_shown() {
        for url in [
            "localhost",
            "http://u:canary@a/t",
            "kafka://canary@a/t",
            "kafka://:canary@a/t",
            "kafka://u:canary@/t",
            "kafka://u:canary@a:x/t",
            "kafka://u:canary@a/t?ca=x",
            "kafka://u:canary%@a/t",
            "kafka://u:canary@a/t?enable.auto.commit=true",
        ] {
            let error = KafkaUrl::parse(url, EXAMPLE).unwrap_err();
            assert!(error.to_string().contains(EXAMPLE), "{url}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
        }
        let url = KafkaUrl::parse("kafka://u:canary@a/t?sasl.password=canary", EXAMPLE).unwrap();
        assert!(!format!("{url:?}").contains("canary"));
    }

    #[test]
    fn names_of_topics_are_those_that_kafka_allows() {
        assert!(is_topic("orders.v1_new-2"));
        for wrong in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(!is_topic(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(duration("2h"), Some(Duration::from_secs(7200)));
        for wrong in ["", "5", "s", "-5s", "99999999999999999999s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
