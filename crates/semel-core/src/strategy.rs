//! Key strategies: how the caller's id is made from a message.

use std::{fmt, sync::Arc};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result, hash::write_hex};

/// The parts of a message from which a key strategy can make an id.
#[derive(Clone, Copy, Default)]
pub struct KeySource<'a> {
    /// The id the producer gave the message.
    pub message_id: Option<&'a str>,
    /// The conversation or process that the message belongs to.
    pub correlation_id: Option<&'a str>,
    /// The user that caused it.
    pub user_id: Option<&'a str>,
    /// Headers or other metadata, name and value. Names are compared without case.
    pub metadata: &'a [(&'a str, &'a str)],
    /// The payload.
    pub body: &'a [u8],
}

impl fmt::Debug for KeySource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySource([redacted])")
    }
}

/// The rule that makes the caller's id. It fails if the message lacks what the rule needs: an id made from a position
/// in a queue, for example, would differ between two deliveries of one message.
///
/// ```
/// use semel_core::{KeySource, KeyStrategy};
/// let message = KeySource { message_id: Some("m-1"), user_id: Some("u-7"), ..Default::default() };
/// assert_eq!(KeyStrategy::message_id().render(&message)?, "idempotency:m-1");
/// assert!(KeyStrategy::composite().render(&message).is_err()); // no correlation id
/// # Ok::<(), semel_core::Error>(())
/// ```
#[derive(Clone)]
pub struct KeyStrategy(StrategyRule);

type Custom = Arc<dyn Fn(&KeySource<'_>) -> Option<String> + Send + Sync>;

#[derive(Clone)]
enum StrategyRule {
    MessageId,
    ContentHash(Content),
    Composite,
    Metadata(Arc<str>),
    JsonPointer(Arc<str>),
    Custom(Custom),
    FirstOf(Arc<[KeyStrategy]>),
    Join(Arc<[KeyStrategy]>),
}

/// What a content hash is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Canonical JSON (RFC 8785): field order and spacing do not matter. Numbers are doubles there:
    /// fractions beyond their precision are one, and integers beyond 2^53 are refused.
    CanonicalJson,
    /// The bytes as they are.
    Raw,
}

impl KeyStrategy {
    /// The conventional name of the metadata entry for [`KeyStrategy::metadata`].
    pub const METADATA_NAME: &'static str = "IdempotencyKey";

    /// `idempotency:{MessageId}`. The default.
    #[must_use]
    pub const fn message_id() -> Self {
        Self(StrategyRule::MessageId)
    }

    /// `idempotency:hash:{SHA256}` of the body.
    #[must_use]
    pub const fn content_hash(content: Content) -> Self {
        Self(StrategyRule::ContentHash(content))
    }

    /// `idempotency:{MessageId}:{CorrelationId}:{UserId}`. A `:` or `%` inside a part is escaped, so
    /// that two different triples never give the same text.
    #[must_use]
    pub const fn composite() -> Self {
        Self(StrategyRule::Composite)
    }

    /// The value of a metadata entry, such as [`KeyStrategy::METADATA_NAME`].
    pub fn metadata(name: impl Into<Arc<str>>) -> Self {
        Self(StrategyRule::Metadata(name.into()))
    }

    /// The string or 64-bit integer at a JSON pointer (RFC 6901) in the body, such as `/event_id`.
    pub fn json_pointer(pointer: impl Into<Arc<str>>) -> Self {
        Self(StrategyRule::JsonPointer(pointer.into()))
    }

    /// What the closure returns; `None` is an error.
    pub fn custom(rule: impl Fn(&KeySource<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(StrategyRule::Custom(Arc::new(rule)))
    }

    /// The first of several strategies that finds an id.
    pub fn first_of(strategies: impl Into<Arc<[Self]>>) -> Self {
        Self(StrategyRule::FirstOf(strategies.into()))
    }

    /// The ids of several strategies, joined by `:`. A `:` or `%` inside of one is escaped, so that two different lists
    /// never give the same text. All of them must find an id.
    ///
    /// ```
    /// # use semel_core::{KeySource, KeyStrategy};
    /// let strategy = KeyStrategy::join([KeyStrategy::message_id(), KeyStrategy::metadata("tenant")]);
    /// let message = KeySource { message_id: Some("m-1"), metadata: &[("tenant", "t-7")], ..Default::default() };
    /// assert_eq!(strategy.render(&message)?, "idempotency%3Am-1:t-7");
    /// # Ok::<(), semel_core::Error>(())
    /// ```
    pub fn join(strategies: impl Into<Arc<[Self]>>) -> Self {
        Self(StrategyRule::Join(strategies.into()))
    }

    /// The caller's id for this message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the message lacks what the rule needs.
    pub fn render(&self, source: &KeySource<'_>) -> Result<String> {
        match &self.0 {
            StrategyRule::MessageId => {
                part("message id", source.message_id).map(|id| format!("idempotency:{id}"))
            }
            StrategyRule::ContentHash(content) => content_hash(*content, source.body),
            StrategyRule::Composite => composite(source),
            StrategyRule::Metadata(name) => part(name, metadata(source, name)).map(str::to_owned),
            StrategyRule::JsonPointer(pointer) => json_pointer(pointer, source.body),
            StrategyRule::Custom(rule) => {
                let id = rule(source);
                part("custom id", id.as_deref()).map(str::to_owned)
            }
            StrategyRule::FirstOf(rules) => first_of(rules, source),
            StrategyRule::Join(rules) => join(rules, source),
        }
    }
}

impl Default for KeyStrategy {
    fn default() -> Self {
        Self::message_id()
    }
}

impl fmt::Debug for KeyStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            StrategyRule::MessageId => f.write_str("MessageId"),
            StrategyRule::ContentHash(content) => write!(f, "ContentHash({content:?})"),
            StrategyRule::Composite => f.write_str("Composite"),
            StrategyRule::Metadata(name) => write!(f, "Metadata({name})"),
            StrategyRule::JsonPointer(pointer) => write!(f, "JsonPointer({pointer})"),
            StrategyRule::Custom(_) => f.write_str("Custom"),
            StrategyRule::FirstOf(rules) => write!(f, "FirstOf({rules:?})"),
            StrategyRule::Join(rules) => write!(f, "Join({rules:?})"),
        }
    }
}

fn part<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| {
        Error::invalid(format!(
            "key strategy: the message has no {name}; set one, or use another strategy"
        ))
    })
}

fn content_hash(content: Content, body: &[u8]) -> Result<String> {
    let digest = match content {
        Content::Raw => Sha256::digest(body),
        Content::CanonicalJson => Sha256::digest(canonical(body)?),
    };
    let mut id = String::from("idempotency:hash:");
    write_hex(&mut id, &digest).expect("writing to a String cannot fail");
    Ok(id)
}

fn canonical(body: &[u8]) -> Result<Vec<u8>> {
    let value = json(body)?;
    if has_inexact_number(&value) {
        return Err(Error::invalid(
            "key strategy: the body has a number beyond 2^53, which canonical JSON does not distinguish \
             from its neighbours; send it as a string",
        ));
    }
    serde_jcs::to_vec(&value)
        .map_err(|_| Error::invalid("key strategy: the body has no canonical JSON form"))
}

/// RFC 8785 writes every number as a double: beyond 2^53, two ids would become one key.
fn has_inexact_number(value: &Value) -> bool {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => number.as_f64().is_none_or(|number| number.abs() >= EXACT),
        Value::Array(items) => items.iter().any(has_inexact_number),
        Value::Object(fields) => fields.values().any(has_inexact_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn json(body: &[u8]) -> Result<Value> {
    // The parser's message may quote the payload.
    serde_json::from_slice(body).map_err(|_| Error::invalid("key strategy: the body is not JSON"))
}

fn composite(source: &KeySource<'_>) -> Result<String> {
    let message = escape(part("message id", source.message_id)?);
    let correlation = escape(part("correlation id", source.correlation_id)?);
    let user = escape(part("user id", source.user_id)?);
    Ok(format!("idempotency:{message}:{correlation}:{user}"))
}

fn escape(part: &str) -> String {
    part.replace('%', "%25").replace(':', "%3A")
}

fn metadata<'a>(source: &KeySource<'a>, name: &str) -> Option<&'a str> {
    let entry = source.metadata.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    entry.map(|(_, value)| *value)
}

fn json_pointer(pointer: &str, body: &[u8]) -> Result<String> {
    let id = match json(body)?.pointer(pointer) {
        Some(Value::String(text)) => Some(text.clone()),
        // A number that is not a 64-bit integer was rounded when it was read.
        Some(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        Some(
            Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_),
        )
        | None => None,
    };
    part(&format!("string or 64-bit integer at {pointer}"), id.as_deref()).map(str::to_owned)
}

fn first_of(rules: &[KeyStrategy], source: &KeySource<'_>) -> Result<String> {
    rules.iter().find_map(|rule| rule.render(source).ok()).ok_or_else(|| {
        Error::invalid(format!("key strategy: none of {rules:?} found an id in the message"))
    })
}

fn join(rules: &[KeyStrategy], source: &KeySource<'_>) -> Result<String> {
    if rules.is_empty() {
        return Err(Error::invalid("key strategy: join needs at least one strategy"));
    }
    let ids = rules.iter().map(|rule| rule.render(source).map(|id| escape(&id)));
    Ok(ids.collect::<Result<Vec<_>>>()?.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(body: &[u8]) -> KeySource<'_> {
        KeySource {
            message_id: Some("m:1"),
            correlation_id: Some("c"),
            user_id: Some("u"),
            metadata: &[("idempotencykey", "k-9")],
            body,
        }
    }

    #[test]
    fn each_strategy_renders_its_published_form() {
        let body = br#"{ "b": 1, "event_id": "e-1", "n": 7 }"#;
        let render = |strategy: KeyStrategy| strategy.render(&source(body)).unwrap();
        assert_eq!(render(KeyStrategy::message_id()), "idempotency:m:1");
        assert_eq!(render(KeyStrategy::composite()), "idempotency:m%3A1:c:u");
        assert_eq!(render(KeyStrategy::metadata(KeyStrategy::METADATA_NAME)), "k-9");
        assert_eq!(render(KeyStrategy::json_pointer("/event_id")), "e-1");
        assert_eq!(render(KeyStrategy::json_pointer("/n")), "7");
        assert_eq!(render(KeyStrategy::custom(|s| s.user_id.map(str::to_owned))), "u");
    }

    #[test]
    fn a_content_hash_is_sha256_of_what_it_says() {
        let raw = KeyStrategy::content_hash(Content::Raw).render(&source(b"")).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(raw, format!("idempotency:hash:{empty}"));

        let canonical = KeyStrategy::content_hash(Content::CanonicalJson);
        let one = canonical.render(&source(br#"{"a":1.0,"b":[2]}"#)).unwrap();
        let same = canonical.render(&source(b"{ \"b\" : [2], \"a\" : 1 }")).unwrap();
        assert_eq!(one, same);
    }

    #[test]
    fn numbers_that_would_be_rounded_into_one_key_are_refused() {
        for body in [&br#"{"id":1234567890123456789}"#[..], br#"{"id":123456789012345678901}"#] {
            let error = KeyStrategy::content_hash(Content::CanonicalJson).render(&source(body));
            assert!(error.unwrap_err().to_string().contains("send it as a string"));
        }
        let pointer = KeyStrategy::json_pointer("/id");
        let large = pointer.render(&source(br#"{"id":1234567890123456789}"#)).unwrap();
        assert_eq!(large, "1234567890123456789");
        for body in [&br#"{"id":123456789012345678901}"#[..], br#"{"id":7.0}"#] {
            assert!(pointer.render(&source(body)).is_err());
        }
    }

    #[test]
    fn different_composite_parts_never_give_the_same_id() {
        let one = KeySource { message_id: Some("a:b"), correlation_id: Some("c"), ..source(b"") };
        let other = KeySource { message_id: Some("a"), correlation_id: Some("b:c"), ..source(b"") };
        let render = |s: &KeySource<'_>| KeyStrategy::composite().render(s).unwrap();
        assert_ne!(render(&one), render(&other));
    }

    #[test]
    fn joined_strategies_need_all_ids_and_keep_them_apart() {
        let joined = |names: [&'static str; 2]| KeyStrategy::join(names.map(KeyStrategy::metadata));
        let render = |one, other| {
            let metadata = [("a", one), ("b", other)];
            joined(["a", "b"]).render(&KeySource { metadata: &metadata, ..Default::default() })
        };
        assert_eq!(render("x:y", "z").unwrap(), "x%3Ay:z");
        assert_ne!(render("x:y", "z").unwrap(), render("x", "y:z").unwrap());
        assert!(render("x", "").unwrap_err().to_string().contains("no b"));
        assert!(KeyStrategy::join([]).render(&KeySource::default()).is_err());
    }

    #[test]
    fn a_missing_part_is_named_in_the_error() {
        let none = KeySource::default();
        for (strategy, missing) in [
            (KeyStrategy::message_id(), "message id"),
            (KeyStrategy::composite(), "message id"),
            (KeyStrategy::metadata("IdempotencyKey"), "IdempotencyKey"),
            (KeyStrategy::json_pointer("/event_id"), "not JSON"),
            (KeyStrategy::custom(|_| None), "custom id"),
        ] {
            let error = strategy.render(&none).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn first_of_takes_the_first_that_finds_one() {
        let strategies = [KeyStrategy::metadata("absent"), KeyStrategy::message_id()];
        let strategy = KeyStrategy::first_of(strategies);
        assert_eq!(strategy.render(&source(b"")).unwrap(), "idempotency:m:1");
        assert!(strategy.render(&KeySource::default()).is_err());
    }
}
