//! Reads a public key in PEM.

use anyhow::{Context, bail};
use jsonwebtoken::DecodingKey;

use super::keys::JwtKey;

pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<JwtKey> {
    let text = std::str::from_utf8(bytes).context("the PEM file is no text")?;
    let tags: Vec<_> = text
        .split("-----BEGIN ")
        .skip(1)
        .map(|rest| rest.split("-----").next().unwrap_or_default())
        .collect();
    // Checked first, anywhere in the file: a gateway does not need a private key, and its readers can sign.
    if tags.iter().any(|tag| tag.contains("PRIVATE KEY")) {
        bail!(
            "this is a private key; give the gateway the public one: \
             `openssl pkey -in PRIVATE.pem -pubout -out PUBLIC.pem`"
        );
    }
    match tags[..] {
        ["PUBLIC KEY" | "RSA PUBLIC KEY"] => public(bytes),
        ["CERTIFICATE", ..] => bail!(
            "this is a certificate; take the public key out of it: \
             `openssl x509 -in CERT.pem -pubkey -noout -out PUBLIC.pem`"
        ),
        [tag] => bail!("{tag:?} is not supported; a PUBLIC KEY is"),
        _ => bail!("there are {} keys in the PEM file; several keys go in a JWKS", tags.len()),
    }
}

/// Each reader checks the key's own algorithm, so at most one of them succeeds.
fn public(bytes: &[u8]) -> anyhow::Result<JwtKey> {
    let key = DecodingKey::from_ec_pem(bytes)
        .or_else(|_| DecodingKey::from_ed_pem(bytes))
        .or_else(|_| DecodingKey::from_rsa_pem(bytes))
        .context("the public key cannot be read; RSA, P-256, P-384 and Ed25519 are supported")?;
    JwtKey::new(None, key)
}

/// True for a public key as DER, as bare base64, or in the format of SSH.
pub(super) fn looks_public(bytes: &[u8]) -> bool {
    // The base64 of SubjectPublicKeyInfo begins so: RSA or a certificate, P-256, P-384, Ed25519.
    const STARTS: [&[u8]; 7] = [
        b"MII",
        b"MFkwEwYHKoZIzj0",
        b"MHYwEAYHKoZIzj0",
        b"MCowBQYDK2Vw",
        b"ssh-",
        b"ecdsa-sha2-",
        b"sk-",
    ];
    STARTS.iter().any(|start| bytes.trim_ascii_start().starts_with(start)) || is_der(bytes)
}

/// True for a DER SEQUENCE that is as long as the whole content.
fn is_der(bytes: &[u8]) -> bool {
    match bytes {
        [0x30, length @ ..=0x7f, rest @ ..] => usize::from(*length) == rest.len(),
        [0x30, 0x81, length, rest @ ..] => usize::from(*length) == rest.len(),
        [0x30, 0x82, high, low, rest @ ..] => {
            usize::from(u16::from_be_bytes([*high, *low])) == rest.len()
        }
        _ => false,
    }
}
