//! Reads a JSON Web Key Set, or a single JSON Web Key (RFC 7517).

use std::collections::HashSet;

use anyhow::{Context, bail};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::{JwtKey, JwtKeyKind};

type JwkMembers = Map<String, Value>;

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<JwkMembers>,
}

pub(super) fn parse(bytes: &[u8], kind: JwtKeyKind) -> anyhow::Result<Vec<JwtKey>> {
    let mut keys = Vec::new();
    for (at, members) in members(bytes)?.into_iter().enumerate() {
        keys.extend(key(members, kind).with_context(|| format!("key {} of the JWKS", at + 1))?);
    }
    let mut seen = HashSet::new();
    if let Some(twice) =
        keys.iter().filter_map(|key| key.kid.as_deref()).find(|kid| !seen.insert(*kid))
    {
        bail!("two keys of the JWKS have the kid {twice:?}; each needs its own");
    }
    match keys.is_empty() {
        true => {
            bail!("no key of the JWKS can verify signatures; RSA, P-256, P-384 and Ed25519 can")
        }
        false => Ok(keys),
    }
}

/// The keys of a set, or the single key of the file.
fn members(bytes: &[u8]) -> anyhow::Result<Vec<JwkMembers>> {
    match serde_json::from_slice::<JwkMembers>(bytes) {
        Ok(members) if members.contains_key("kty") => return Ok(vec![members]),
        Ok(_) | Err(_) => {}
    }
    let set: JwkSet = serde_json::from_slice(bytes)
        .map_err(|error| anyhow::anyhow!("{}", place(&error)))
        .context("this is JSON, but no JWKS; a JWKS looks like {\"keys\": [{\"kty\": …}]}")?;
    Ok(set.keys)
}

/// The place of a JSON error, without the text, which may be a secret.
fn place(error: &serde_json::Error) -> String {
    format!("line {} column {}", error.line(), error.column())
}

/// The key, or `None` for one that has another use or an unsupported type: a set may hold such keys.
fn key(members: JwkMembers, kind: JwtKeyKind) -> anyhow::Result<Option<JwtKey>> {
    // The private members of RSA, EC and OKP keys; `oct` keys have none of them.
    if ["d", "p", "q", "dp", "dq", "qi", "oth"].iter().any(|private| members.contains_key(*private))
    {
        bail!("this is a private key; leave out its private members (d, p, q, dp, dq, qi)");
    }
    let Ok(jwk) = serde_json::from_value::<Jwk>(Value::Object(members)) else {
        bail!("a member is not as RFC 7517 has it");
    };
    // Whatever the key's use is: a secret in a file of public keys may have been read by others.
    match (&jwk.algorithm, kind) {
        (AlgorithmParameters::OctetKey(_), JwtKeyKind::Public) => bail!(
            "this is a shared secret (oct), and jwt:FILE takes public keys only; leave it out, or \
             write jwt-secret:FILE for a set of secrets"
        ),
        (AlgorithmParameters::OctetKey(_), JwtKeyKind::Secret) | (_, JwtKeyKind::Public) => {}
        (_, JwtKeyKind::Secret) => bail!(
            "this is no shared secret (oct), and jwt-secret:FILE takes nothing else; write jwt:FILE \
             for public keys"
        ),
    }
    if !verifies(&jwk) || !supported(&jwk.algorithm) {
        return Ok(None);
    }
    let key =
        DecodingKey::from_jwk(&jwk).map_err(|_| anyhow::anyhow!("a member is no base64url"))?;
    let mut key = JwtKey::new(jwk.common.key_id, key)?;
    if let Some(alg) = jwk.common.key_algorithm {
        // `alg` may restrict the algorithms of a key, never extend them.
        key.validation
            .algorithms
            .retain(|own| Algorithm::try_from(alg).is_ok_and(|alg| alg == *own));
    }
    Ok((!key.validation.algorithms.is_empty()).then_some(key))
}

fn verifies(jwk: &Jwk) -> bool {
    let used = jwk.common.public_key_use.as_ref();
    let operations = jwk.common.key_operations.as_ref();
    used.is_none_or(|used| *used == PublicKeyUse::Signature)
        && operations.is_none_or(|all| all.contains(&KeyOperations::Verify))
}

fn supported(parameters: &AlgorithmParameters) -> bool {
    match parameters {
        AlgorithmParameters::EllipticCurve(key) => {
            matches!(key.curve, EllipticCurve::P256 | EllipticCurve::P384)
        }
        AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519,
        AlgorithmParameters::RSA(_) | AlgorithmParameters::OctetKey(_) => true,
        _ => false,
    }
}
