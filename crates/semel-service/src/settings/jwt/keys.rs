//! The keys of a file, each with the algorithms it may verify. A token chooses a key by its `kid`, never the use of
//! a key: a public key cannot become an HMAC secret.

use anyhow::{Context, bail};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation,
    crypto::rust_crypto::DEFAULT_PROVIDER,
};

use super::{jwks, pem};
use crate::settings::secrets::without_newline;

/// What a key file has to hold. The operator decides that, not the file: if some text were taken for a secret by
/// mistake, every reader of that text could sign tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtKeyKind {
    /// `jwt:FILE`: public keys.
    Public,
    /// `jwt-secret:FILE`: shared secrets.
    Secret,
}

impl JwtKeyKind {
    /// The scheme in front of the file.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Public => "jwt",
            Self::Secret => "jwt-secret",
        }
    }

    /// Reads the content of a key file.
    ///
    /// # Errors
    ///
    /// What the file holds instead, with the fix.
    pub fn parse(self, bytes: &[u8]) -> anyhow::Result<JwtKeys> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match (KeyFileContent::of(bytes), self) {
            (KeyFileContent::Json, kind) => jwks::parse(bytes, kind).map(JwtKeys::Set),
            (KeyFileContent::Pem, Self::Public) => pem::parse(bytes).map(JwtKeys::one),
            (KeyFileContent::Other, Self::Secret) => secret(bytes).map(JwtKeys::one),
            (KeyFileContent::Pem, Self::Secret) => {
                bail!("this is PEM, not a shared secret; write jwt:FILE for a public key")
            }
            (KeyFileContent::Markup, Self::Public) => {
                bail!("this is HTML or XML, such as a saved error page; {WANTS_PUBLIC}")
            }
            (KeyFileContent::Markup, Self::Secret) => bail!(
                "this is HTML or XML, such as a saved error page, not a shared secret; {MAKE_ONE}, \
                 or write jwt:FILE for a JWKS or a public key"
            ),
            (KeyFileContent::Armourless, Self::Public) => bail!(
                "this looks like a public key without PEM armour; write it as -----BEGIN PUBLIC \
                 KEY-----, or as a JWKS"
            ),
            (KeyFileContent::Armourless, Self::Secret) => bail!(
                "this looks like a public key without PEM armour, not like a shared secret; write it \
                 as -----BEGIN PUBLIC KEY----- or as a JWKS, with jwt:FILE"
            ),
            (KeyFileContent::Token, Self::Public) => {
                bail!("this is a token, not a key; {WANTS_PUBLIC}")
            }
            (KeyFileContent::Token, Self::Secret) => {
                bail!("this is a token, not a shared secret; {MAKE_ONE}")
            }
            (KeyFileContent::Other, Self::Public) if bytes.trim_ascii().is_empty() => {
                bail!("the file is empty; {WANTS_PUBLIC}")
            }
            (KeyFileContent::Other, Self::Public) => bail!(
                "this is neither a JWKS nor PEM, but {} bytes of something else; {WANTS_PUBLIC}; a \
                 shared secret (HS256) is jwt-secret:FILE",
                bytes.len()
            ),
        }
    }
}

const WANTS_PUBLIC: &str = "jwt:FILE takes a JWKS or a public key in PEM";
const MAKE_ONE: &str = "make one with `openssl rand -base64 48`";

/// What the content of a file looks like.
enum KeyFileContent {
    Json,
    Pem,
    /// HTML or XML.
    Markup,
    /// A public key as DER, bare base64, or of SSH.
    Armourless,
    /// A JWT.
    Token,
    /// A shared secret, or anything else.
    Other,
}

impl KeyFileContent {
    fn of(bytes: &[u8]) -> Self {
        let text = bytes.trim_ascii_start();
        match text {
            [b'{' | b'[', ..] => Self::Json,
            _ if bytes.windows(11).any(|part| part == b"-----BEGIN ") => Self::Pem,
            [b'<', b'!' | b'?' | b'/' | b'a'..=b'z' | b'A'..=b'Z', ..] if text.contains(&b'>') => {
                Self::Markup
            }
            // The base64 of `{"`, and two dots.
            [b'e', b'y', b'J', ..] if text.iter().filter(|byte| **byte == b'.').count() == 2 => {
                Self::Token
            }
            _ if pem::looks_public(without_newline(bytes)) => Self::Armourless,
            _ => Self::Other,
        }
    }
}

/// The keys of one file.
#[derive(Clone, Debug)]
pub enum JwtKeys {
    /// One key. The `kid` of a token does not matter.
    One(Box<JwtKey>),
    /// A JWKS.
    Set(Vec<JwtKey>),
}

/// A key that verifies tokens.
#[derive(Clone, Debug)]
pub struct JwtKey {
    /// Its name in a JWKS.
    pub kid: Option<String>,
    /// The key itself.
    pub key: DecodingKey,
    /// What a token must pass. Its algorithms are the key's.
    pub validation: Validation,
}

impl JwtKeys {
    fn one(key: JwtKey) -> Self {
        Self::One(Box::new(key))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Set(keys) => keys.len(),
        }
    }

    /// The same keys, for tokens whose claims pass `claims`.
    pub fn expecting(mut self, claims: &Validation) -> Self {
        let keys = match &mut self {
            Self::One(key) => std::slice::from_mut(&mut **key),
            Self::Set(keys) => keys,
        };
        for JwtKey { validation, .. } in keys {
            let algorithms = std::mem::take(&mut validation.algorithms);
            *validation = Validation { algorithms, ..claims.clone() };
        }
        self
    }

    /// The one key that may have signed a token with this header.
    ///
    /// # Errors
    ///
    /// Why there is no such key. The text has nothing of the token in it.
    pub fn find(&self, kid: Option<&str>, alg: Algorithm) -> Result<&JwtKey, &'static str> {
        let set = match self {
            Self::One(key) if key.fits(alg) => return Ok(key),
            Self::One(_) => return Err("another algorithm than the key's"),
            Self::Set(set) => set,
        };
        let named = |key: &&JwtKey| kid.is_none() || key.kid.as_deref() == kid;
        let mut fitting = set.iter().filter(named).filter(|key| key.fits(alg));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err("no key of the JWKS has this kid and algorithm"),
            (Some(_), Some(_)) => Err("the token has no kid, and several keys fit"),
        }
    }
}

impl JwtKey {
    /// Shorter secrets can be guessed from one token.
    const MIN_SECRET_BYTES: usize = 32;
    /// RFC 7518 §3.3 requires at least 2048, and the backend accepts at most 4096.
    const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

    /// Checks a key when it is read, so that later only a signature can be wrong.
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
                    "a secret of {} bytes can be guessed, {} are needed; {MAKE_ONE}",
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
    if !JwtKey::RSA_BITS.contains(&bits) {
        bail!("the RSA key has {bits} bits; 2048 to 4096 are supported");
    }
    // RFC 8017 §3.1: odd and at least 3. With 1, a signature needs no private key.
    let e = e.iter().fold(0_u64, |sum, byte| (sum.min(u64::MAX >> 9) << 8) | u64::from(*byte));
    match e % 2 == 1 && (3..1 << 33).contains(&e) {
        true => Ok(()),
        false => bail!("the RSA key has a public exponent that no sound key has"),
    }
}

fn secret(bytes: &[u8]) -> anyhow::Result<JwtKey> {
    let secret = without_newline(bytes);
    if let Some(found) = readable(secret) {
        bail!("this {found}, so it is no random secret; {MAKE_ONE}, in one line");
    }
    JwtKey::new(None, DecodingKey::from_secret(secret))
}

/// Why this is text for people and no secret, such as an error message that was saved in its place: readers of that
/// text could sign tokens. Base64 and hex have no white space inside, and raw bytes are no text.
fn readable(secret: &[u8]) -> Option<&'static str> {
    let is_ascii_text = |byte: &&u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let ascii = secret.iter().filter(is_ascii_text).count();
    let is_text = str::from_utf8(secret).is_ok() || ascii * 4 >= secret.len() * 3;
    let has_space = String::from_utf8_lossy(secret).contains(char::is_whitespace);
    match secret {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("is text in UTF-16"),
        [b'H', b'T', b'T', b'P', b'/', ..] => Some("is the head of an HTTP answer"),
        _ if is_text && secret.contains(&0) => Some("is text with NUL bytes, such as UTF-16"),
        _ if is_text && has_space => Some("is text with white space inside"),
        _ => None,
    }
}
