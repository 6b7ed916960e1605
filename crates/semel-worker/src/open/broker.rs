//! The brokers of this build, by the schemes of their URLs. A new one is an entry here, a module beside this one, a
//! feature, and its schemes in the settings of `semel-service`.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use semel::Finding;
use semel_consumer::{
    ConsumerPlan, ExaminedSource, Source,
    dead_letter::{DeadLetterQueue, MessagePublisher},
};

use super::OnMissing;

/// What a broker opens by URL. Errors name neither the setting nor the URL.
#[async_trait]
pub(super) trait Broker: Sync {
    /// Checks the URL of a source without a connection.
    fn check_source(&self, url: &str) -> Result<()>;

    /// Checks the URL of dead letters without a connection.
    fn check_dead_letters(&self, url: &str) -> Result<()>;

    async fn source(&self, url: &str) -> Result<Arc<dyn Source>>;

    async fn dead_letters(
        &self,
        url: &str,
        on_missing: OnMissing,
    ) -> Result<Arc<dyn DeadLetterQueue>>;

    async fn publisher(&self, url: &str) -> Result<Arc<dyn MessagePublisher>>;

    /// Looks at a source. Receives, creates and changes nothing.
    async fn examine_source(&self, url: &str, plan: &ConsumerPlan) -> Result<ExaminedSource>;

    /// Looks at dead letters. Creates and changes nothing.
    async fn examine_dead_letters(&self, url: &str) -> Result<Vec<Finding>>;
}

/// A broker that the settings know. `None`: it is not in this build.
struct KnownBroker {
    name: &'static str,
    schemes: &'static [&'static str],
    broker: Option<&'static dyn Broker>,
}

const BROKERS: [KnownBroker; 2] = [
    KnownBroker {
        name: "NATS",
        schemes: &["nats", "nats+tls"],
        #[cfg(feature = "nats")]
        broker: Some(&super::nats::Nats),
        #[cfg(not(feature = "nats"))]
        broker: None,
    },
    KnownBroker {
        name: "Kafka",
        schemes: &["kafka", "kafka+tls"],
        #[cfg(feature = "kafka")]
        broker: Some(&super::kafka::Kafka),
        #[cfg(not(feature = "kafka"))]
        broker: None,
    },
];

/// The broker that a URL names.
pub(super) fn broker_of(url: &str) -> Result<&'static dyn Broker> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let known = BROKERS.iter().find(|known| known.schemes.contains(&scheme));
    let known = known.ok_or_else(|| {
        anyhow!("names no broker; write nats://HOST:PORT/STREAM/CONSUMER or kafka://HOST:PORT/TOPIC?group=GROUP")
    })?;
    known.broker.ok_or_else(|| {
        anyhow!(
            "{} is not in this build of semel; build it with --features full, or use another broker",
            known.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_not_built_in_is_named_with_the_feature() {
        for known in &BROKERS {
            let scheme = known.schemes[0];
            let found = broker_of(&format!("{scheme}://u:canary@h/x"));
            match (known.broker, found) {
                (Some(_), found) => assert!(found.is_ok(), "{scheme}"),
                (None, Ok(_)) => panic!("{scheme} is not in this build"),
                (None, Err(error)) => {
                    let error = error.to_string();
                    assert!(
                        error.contains(known.name) && error.contains("--features full"),
                        "{error}"
                    );
                    assert!(!error.contains("canary"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_url_without_a_broker_is_refused_and_not_shown() {
        for url in ["file:canary", "postgres://canary@h/d", "canary"] {
            let Err(error) = broker_of(url) else { panic!("{url} names no broker") };
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
