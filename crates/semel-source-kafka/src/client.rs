//! How every client of a cluster is configured, and what it reports.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use rdkafka::{
    ClientConfig, ClientContext, config::RDKafkaLogLevel, consumer::ConsumerContext,
    error::KafkaError, types::RDKafkaErrorCode,
};
use semel_core::{Error, Result};

use crate::{error, url::KafkaAddress};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    address: KafkaAddress,
}

impl Cluster {
    pub(crate) const fn new(address: KafkaAddress) -> Self {
        Self { address }
    }

    /// Sets a setting of librdkafka.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if crate::url::is_ours(name) {
            return Err(Error::invalid(format!("kafka: semel sets {name} itself; leave it out")));
        }
        self.address.settings.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// A setting of librdkafka, if it is set.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.address.settings.get(name).map(String::as_str)
    }

    /// The settings that every client has.
    pub(crate) fn client_config(&self) -> Result<ClientConfig> {
        let KafkaAddress { brokers, tls, ca_file, login, settings } = &self.address;
        let brokers = brokers.iter().map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
        let protocol = match (tls, login) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers.collect::<Vec<_>>().join(","));
        config.set("security.protocol", protocol);
        if let Some((user, password)) = login {
            config.set("sasl.mechanism", "PLAIN");
            config.set("sasl.username", user).set("sasl.password", password);
        }
        if let Some(file) = ca_file {
            let found = std::fs::File::open(file).and_then(|_| file.to_str().ok_or_else(no_text));
            let file = found.map_err(|error| {
                let what = format!("kafka: cannot read the certificates in {}", file.display());
                Error::invalid(what).with_source(error)
            })?;
            config.set("ssl.ca.location", file);
        }
        for (name, value) in settings {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Info);
        Ok(config)
    }
}

fn no_text() -> std::io::Error {
    std::io::Error::other("the path is no text")
}

/// What the driver has reported about one client since its last success. Clones are of the same client.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<Option<RDKafkaErrorCode>>>);

impl Reports {
    /// A request has succeeded: what was reported before is no reason for a later silence. One interrupted handshake is
    /// enough for a report.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = None;
    }

    /// The error for a request that failed. The driver says only that no broker answers; why, it has reported before.
    pub(crate) fn explain(&self, subject: &str, failed: &KafkaError) -> Error {
        let reported = *self.0.lock();
        match (error::code(failed), reported) {
            (Some(code), Some(reported)) if is_silence(code) => error::of_code(subject, reported),
            (Some(code), None) if is_silence(code) => error::unreachable(),
            _ => error::about(subject, failed),
        }
    }
}

/// True if the code says that there was no answer, and not why.
const fn is_silence(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::RequestTimedOut
    )
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => {
                tracing::warn!(facility, "kafka: the driver reports: {message}");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::debug!(facility, "kafka: the driver reports: {message}");
            }
        }
    }

    fn error(&self, failed: KafkaError, reason: &str) {
        let Some(code) = error::code(&failed) else { return };
        // A listener without TLS closes the connection, which alone is no error of TLS for the driver.
        let code =
            if reason.contains("SSL handshake failed") { RDKafkaErrorCode::SSL } else { code };
        if matches!(
            code,
            RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::SSL
        ) {
            *self.0.lock() = Some(code);
        }
        tracing::warn!(%code, "kafka: the driver reports: {reason}");
    }
}

/// For a consumer that is no member of a group.
impl ConsumerContext for Reports {}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").field(&*self.0.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use semel_core::ErrorKind;

    use super::*;

    #[test]
    fn a_report_explains_silence_until_a_request_succeeds() {
        let reports = Reports::default();
        let silence = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        let kind = || reports.explain("topic t", &silence).kind();
        assert_eq!(kind(), ErrorKind::Unavailable);
        reports.error(KafkaError::Global(RDKafkaErrorCode::SSL), "SSL handshake failed");
        assert_eq!(kind(), ErrorKind::Invalid);
        assert_eq!(kind(), ErrorKind::Invalid, "it did not change");
        reports.succeeded();
        assert_eq!(kind(), ErrorKind::Unavailable);
    }
}
