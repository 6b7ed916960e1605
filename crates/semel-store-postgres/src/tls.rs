//! TLS by rustls with ring: no C toolchain beyond a compiler is needed.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use semel_core::{Error, Result};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::Trust;

/// A connector that believes whom `trust` says.
pub(crate) fn connector(trust: &Trust) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("TLS cannot be set up: {error}")))?;
    let config = match trust {
        Trust::Nobody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
        Trust::System => builder.with_root_certificates(system()?).with_no_client_auth(),
        Trust::File(path) => builder.with_root_certificates(file(path)?).with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    not_empty(
        roots,
        "the system has no certificates; install ca-certificates, or give sslrootcert=FILE",
    )
}

fn file(path: &Path) -> Result<RootCertStore> {
    let name = path.display();
    let pem = fs::read(path).map_err(|error| invalid(format!("sslrootcert {name}: {error}")))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates =
        certificates.map_err(|error| invalid(format!("sslrootcert {name} is not PEM: {error}")))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    not_empty(roots, &format!("sslrootcert {name} has no certificate"))
}

fn not_empty(roots: RootCertStore, otherwise: &str) -> Result<RootCertStore> {
    if roots.is_empty() { Err(invalid(otherwise)) } else { Ok(roots) }
}

fn invalid(what: impl AsRef<str>) -> Error {
    Error::invalid(format!("postgres: {}", what.as_ref()))
}

/// Believes anybody: what `sslmode=prefer` has always meant. It keeps out who only listens.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
