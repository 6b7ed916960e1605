//! The keys of a file, each with the algorithms it is good for. A token picks a key by its `kid`, never
//! what a key is used for: a public key cannot become an HMAC secret.

use anyhow::{Context, bail};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation,
    crypto::rust_crypto::DEFAULT_PROVIDER,
};

use super::{jwks, pem};
use crate::settings::secrets::without_newline;

/// What a file holds.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// The `kid` of a token says nothing, there is nothing to choose.
    One(Box<Key>),
    /// A JWKS.
    Set(Vec<Key>),
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(super) kid: Option<String>,
    pub(super) key: DecodingKey,
    /// Its algorithms are the key's.
    pub(super) validation: Validation,
}

impl Keys {
    /// Reads what a key file holds: a public key in PEM, a JWKS, or else a shared secret.
    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match bytes.trim_ascii_start().first() {
            Some(b'{' | b'[') => jwks::parse(bytes).map(Self::Set),
            _ if bytes.windows(11).any(|part| part == b"-----BEGIN ") => {
                pem::parse(bytes).map(Self::one)
            }
            _ => secret(bytes).map(Self::one),
        }
    }

    fn one(key: Key) -> Self {
        Self::One(Box::new(key))
    }

    /// The same keys, for tokens that pass `claims`.
    pub(super) fn expecting(mut self, claims: &Validation) -> Self {
        let keys = match &mut self {
            Self::One(key) => std::slice::from_mut(&mut **key),
            Self::Set(keys) => keys,
        };
        for Key { validation, .. } in keys {
            let algorithms = std::mem::take(&mut validation.algorithms);
            *validation = Validation { algorithms, ..claims.clone() };
        }
        self
    }

    /// The one key that may have signed this.
    pub(super) fn find(&self, kid: Option<&str>, alg: Algorithm) -> Result<&Key, &'static str> {
        let set = match self {
            Self::One(key) if key.fits(alg) => return Ok(key),
            Self::One(_) => return Err("another algorithm than the key's"),
            Self::Set(set) => set,
        };
        let named = |key: &&Key| kid.is_none() || key.kid.as_deref() == kid;
        let mut fitting = set.iter().filter(named).filter(|key| key.fits(alg));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err("no key of the JWKS has this kid and algorithm"),
            (Some(_), Some(_)) => Err("the token has no kid, and several keys fit"),
        }
    }
}

impl Key {
    /// Shorter secrets can be guessed from one token.
    const MIN_SECRET_BYTES: usize = 32;
    /// RFC 7518 §3.3 asks for no less, and the backend takes no more.
    const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

    /// Checks a key once, so that nothing but signatures is left to fail later.
    pub(super) fn new(kid: Option<String>, key: DecodingKey) -> anyhow::Result<Self> {
        match (key.family(), key.kind()) {
            (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                check_rsa(n, e)?
            }
            (AlgorithmFamily::Rsa, DecodingKeyKind::SecretOrDer(der)) => {
                let (n, e) = (DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(der)
                    .context("the RSA key cannot be read, or has more than 4096 bits")?;
                check_rsa(&n, &e)?;
            }
            (AlgorithmFamily::Hmac, DecodingKeyKind::SecretOrDer(secret))
                if secret.len() < Self::MIN_SECRET_BYTES =>
            {
                bail!(
                    "a secret of {} bytes can be guessed, {} are needed; make one with \
                     `openssl rand -base64 48`",
                    secret.len(),
                    Self::MIN_SECRET_BYTES
                )
            }
            // The backend would panic.
            (AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(der)) if der.len() != 32 => {
                bail!("an Ed25519 key has 32 bytes, not {}", der.len())
            }
            _ => {}
        }
        let works = |alg: &&Algorithm| (DEFAULT_PROVIDER.verifier_factory)(alg, &key).is_ok();
        let algorithms: Vec<_> = key.family().algorithms().iter().filter(works).copied().collect();
        if algorithms.is_empty() {
            bail!("the key is broken or on another curve; P-256, P-384 and Ed25519 are supported");
        }
        Ok(Self { kid, key, validation: Validation { algorithms, ..Validation::default() } })
    }

    fn fits(&self, alg: Algorithm) -> bool {
        self.validation.algorithms.contains(&alg)
    }
}

fn check_rsa(n: &[u8], e: &[u8]) -> anyhow::Result<()> {
    let bits = n
        .iter()
        .position(|byte| *byte != 0)
        .map_or(0, |zeros| (n.len() - zeros) * 8 - n[zeros].leading_zeros() as usize);
    if !Key::RSA_BITS.contains(&bits) {
        bail!("the RSA key has {bits} bits; 2048 to 4096 are supported");
    }
    // RFC 8017 §3.1: odd and at least 3. With 1, everybody can sign.
    let e = e.iter().fold(0_u64, |sum, byte| (sum.min(u64::MAX >> 9) << 8) | u64::from(*byte));
    match e % 2 == 1 && (3..1 << 33).contains(&e) {
        true => Ok(()),
        false => bail!("the RSA key has a public exponent that no sound key has"),
    }
}

/// What is neither PEM nor JSON. Other forms of public keys are refused: as a secret, everybody has it.
fn secret(bytes: &[u8]) -> anyhow::Result<Key> {
    let bytes = without_newline(bytes);
    if pem::looks_public(bytes) {
        bail!(
            "this looks like a public key without PEM armour, not like a secret; write it as \
             -----BEGIN PUBLIC KEY-----, or as a JWKS"
        );
    }
    Key::new(None, DecodingKey::from_secret(bytes))
}
