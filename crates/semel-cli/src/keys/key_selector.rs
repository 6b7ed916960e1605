//! How a command names the key that it is about.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use semel::{Engine, KeyHash, ListQuery, Principal, Record, Scope, Store};
use semel_service::settings::{StoreConfig, secrets};

use crate::{show, store_command::UsageError};

/// A key by its hash, or by what it was made from.
#[derive(Args, Debug)]
pub(super) struct KeySelector {
    /// The key's hash or its first digits, 8 or more, as lists and logs show them; or, with --operation, the
    /// caller's id: its Idempotency-Key
    #[arg(value_name = "KEY")]
    key: String,
    /// The operation, such as 'POST /orders'; `semel keys list` shows those of other keys
    #[arg(long, value_name = "OPERATION", requires = "principal")]
    operation: Option<String>,
    /// The caller: anonymous | NAME | name:NAME | credential:FILE, a file with the credential as it was sent
    #[arg(long, value_name = "PRINCIPAL", requires = "operation")]
    principal: Option<String>,
}

/// The fewest digits that name a key: as many as logs show.
const DIGITS: usize = 8;

impl KeySelector {
    /// The hash of the key. Where only its first digits are given, the store is searched.
    pub(super) async fn find(&self, config: &StoreConfig, engine: &Engine) -> Result<KeyHash> {
        if let (Some(operation), Some(caller)) = (&self.operation, &self.principal) {
            let scope = Scope::new(namespace(config)?, principal(caller)?, operation);
            let key = scope.key(&self.key).map_err(|error| UsageError(error.to_string()))?;
            return Ok(engine.key_hash(&key));
        }
        self.check()?;
        match hash(&self.key) {
            Some(key) => Ok(key),
            None => find_by_prefix(engine.store(), &self.key.to_ascii_lowercase()).await,
        }
    }

    fn check(&self) -> Result<()> {
        let is_hex = self.key.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex && (DIGITS..=64).contains(&self.key.len()) {
            return Ok(());
        }
        bail!(UsageError(format!(
            "KEY is no hash; write {DIGITS} to 64 hex digits, as logs and `semel keys list` show them, or name \
             the key by what it was made from: --namespace, --principal, --operation and the caller's id"
        )))
    }
}

/// How many keys an error lists when several begin with the digits.
const MATCHES: usize = 10;

/// The only key that begins with these digits.
async fn find_by_prefix(store: &dyn Store, digits: &str) -> Result<KeyHash> {
    let (_, after) = range(digits);
    let query = ListQuery { after, limit: MATCHES + 1, ..ListQuery::default() };
    let mut found = store.list(&query).await?;
    found.retain(|record| record.key.to_hex().starts_with(digits));
    match &found[..] {
        [record] => Ok(record.key),
        [] => Err(anyhow!("no key begins with {digits}; it may have expired")),
        several => {
            let line = |record: &Record| {
                format!("\n  {} {}", record.key.to_hex(), show::state(record.state))
            };
            let lines: String = several.iter().take(MATCHES).map(line).collect();
            let more = if several.len() > MATCHES { "\n  …" } else { "" };
            bail!(UsageError(format!(
                "several keys begin with {digits}; write more digits of one of them:{lines}{more}"
            )))
        }
    }
}

/// A hash that is written in full.
pub(super) fn hash(text: &str) -> Option<KeyHash> {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| range(text).0)
}

/// The first key that begins with these digits, and the last one before it.
fn range(digits: &str) -> (KeyHash, Option<KeyHash>) {
    let mut bytes = [0; 32];
    for (at, digit) in digits.chars().take(64).enumerate() {
        let nibble = u8::try_from(digit.to_digit(16).unwrap_or_default()).unwrap_or_default();
        bytes[at / 2] |= nibble << if at % 2 == 0 { 4 } else { 0 };
    }
    let first = KeyHash::from_bytes(bytes);
    let Some(last) = bytes.iter().rposition(|byte| *byte > 0) else { return (first, None) };
    bytes[last] -= 1;
    bytes[last + 1..].fill(0xff);
    (first, Some(KeyHash::from_bytes(bytes)))
}

fn namespace(config: &StoreConfig) -> Result<String> {
    match (&config.namespace, config.url.is_shared()) {
        (Some(name), _) => Ok(name.clone()),
        (None, false) => Ok(semel_service::settings::GatewayConfig::NAMESPACE.to_owned()),
        (None, true) => bail!(UsageError("no namespace; add --namespace NAME".to_owned())),
    }
}

/// The setting of the gateway is refused as a caller's name: it would find no record, as if there were none.
const NOT_A_CALLER: &str = "--principal takes the caller, not how the gateway finds it: for `authorization` write \
    credential:FILE, a file with the value of the header; for `header:` and `jwt:` write the name in the header or \
    token; write name:NAME for a name that looks like these";

fn principal(text: &str) -> Result<Principal> {
    match text.split_once(':') {
        None if text == "anonymous" => Ok(Principal::Anonymous),
        Some(("name", name)) => Ok(Principal::from(name)),
        Some(("credential", file)) => {
            let bytes = secrets::read(Path::new(file)).map_err(UsageError)?;
            let text = String::from_utf8(bytes).map_err(|_| {
                UsageError(format!("{file} is not text; write the credential as it was sent"))
            })?;
            Ok(Principal::credential(text))
        }
        None if text == "authorization" => bail!(UsageError(NOT_A_CALLER.to_owned())),
        Some(("header" | "jwt" | "jwt-secret", _)) => bail!(UsageError(NOT_A_CALLER.to_owned())),
        _ => Ok(Principal::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_the_gateway_finds_the_caller_is_not_a_callers_name() {
        for text in ["authorization", "header:x-user", "jwt:keys.json", "jwt-secret:secret"] {
            let error = principal(text).unwrap_err();
            assert!(
                error.is::<UsageError>() && error.to_string().contains("credential:FILE"),
                "{error}"
            );
        }
        for (text, name) in [("user-7", "user-7"), ("name:jwt:x", "jwt:x"), ("a:b", "a:b")] {
            assert_eq!(principal(text).unwrap(), Principal::from(name));
        }
    }

    /// Digits never pick one of several keys: the error lists them.
    #[tokio::test]
    async fn digits_name_one_key_or_none() {
        let store = semel::MemoryStore::new();
        let key = |last: u8| {
            let mut bytes = [0xab; 32];
            bytes[31] = last;
            KeyHash::from_bytes(bytes)
        };
        let claim = async |key| {
            let request = semel::ClaimRequest {
                key,
                fingerprint: semel::Fingerprint::of_bytes(b"x"),
                nonce: semel::Nonce::random(),
                terms: semel::Policy::api().terms(),
                labels: None,
            };
            store.claim(&request).await.unwrap();
        };
        assert!(
            find_by_prefix(&store, "abababab")
                .await
                .unwrap_err()
                .to_string()
                .contains("no key begins")
        );
        claim(key(0)).await;
        assert_eq!(find_by_prefix(&store, "abababab").await.unwrap(), key(0));
        claim(key(1)).await;
        let error = find_by_prefix(&store, "abababab").await.unwrap_err();
        let text = error.to_string();
        assert!(error.is::<UsageError>() && text.contains("more digits"), "{text}");
        for key in [key(0), key(1)] {
            assert!(text.contains(&format!("{} in-progress", key.to_hex())), "{text}");
        }
        for last in 2..20 {
            claim(key(last)).await;
        }
        let text = find_by_prefix(&store, "abababab").await.unwrap_err().to_string();
        assert_eq!(text.lines().count(), 1 + MATCHES + 1, "{text}");
    }

    #[test]
    fn digits_are_a_range_of_keys() {
        let (first, before) = range("0a");
        assert_eq!(first.to_hex(), format!("0a{}", "0".repeat(62)));
        assert_eq!(before.unwrap().to_hex(), format!("09{}", "f".repeat(62)));
        let (first, before) = range(&"0".repeat(8));
        assert!(first.to_hex().chars().all(|it| it == '0') && before.is_none());
        assert_eq!(range("AB").0, range("ab").0);
    }
}
