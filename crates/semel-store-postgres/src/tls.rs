//! TLS by rustls with ring, which needs no C toolchain beyond a compiler.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use semel_core::{Error, Result};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::TlsTrust;

/// A connector that accepts the certificates that `trust` describes.
pub(crate) fn connector(trust: &TlsTrust) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("TLS cannot be set up: {error}")))?;
    let config = match trust {
        TlsTrust::Unchecked => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        TlsTrust::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
        TlsTrust::File(path) => {
            builder.with_root_certificates(roots_of_file(path)?).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    not_empty(
        roots,
        "the system has no certificates; install ca-certificates, or give sslrootcert=FILE",
    )
}

fn roots_of_file(path: &Path) -> Result<RootCertStore> {
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

/// Accepts any certificate, as `sslmode=prefer` of libpq does: this protects against eavesdropping only.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
