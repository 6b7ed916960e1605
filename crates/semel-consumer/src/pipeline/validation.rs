//! The first stage: a message becomes an event with a key, or is refused.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use semel_core::{
    DownstreamKey, Engine, Error, ErrorClass, Fingerprint, Key, KeyHash, KeyStrategy, Scope,
};
use serde::de::IgnoredAny;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    dead_letter::DeadLetterReason,
    event::Event,
    message::Message,
    request::{EventRequest, ProcessError, Processed, Refusal},
};

/// What happens to events that no handler takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownType {
    /// They become dead letters.
    #[default]
    DeadLetter,
    /// They are acknowledged and counted.
    Skip,
    /// The consumer stops with an error, and the event stays in the broker.
    Stop,
}

/// What happens to an event that has the id of an earlier event and another payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// It becomes a dead letter.
    #[default]
    DeadLetter,
    /// It counts as a duplicate of the earlier event: it is acknowledged and not run.
    Skip,
    /// Payloads are not compared.
    Ignore,
}

/// Makes an [`EventRequest`] of a message, and refuses what can be none.
#[derive(Clone)]
pub struct ValidationLayer(pub(crate) Arc<ValidationRules>);

/// What an event must be like.
pub(crate) struct ValidationRules {
    pub(crate) scope: Scope,
    pub(crate) strategy: KeyStrategy,
    /// Hashes keys with the engine's secret. Without one, keys are hashed without a secret.
    pub(crate) engine: Option<Engine>,
    pub(crate) max_bytes: usize,
    pub(crate) unknown_type: UnknownType,
    pub(crate) on_mismatch: OnMismatch,
    /// Reads data that is declared to be JSON. For handlers that do not read it themselves.
    pub(crate) check_json: bool,
    pub(crate) accepts: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ValidationLayer {
    /// The largest payload that is accepted by default: 1 MiB.
    pub const MAX_BYTES: usize = 1024 * 1024;

    pub(crate) fn new(rules: ValidationRules) -> Self {
        Self(Arc::new(rules))
    }

    /// Events are identified by `strategy` in `scope`. Keys are hashed as `engine` does it. Every type of event passes.
    #[must_use]
    pub fn with_keys(scope: Scope, strategy: KeyStrategy, engine: Engine) -> Self {
        Self::new(ValidationRules {
            scope,
            strategy,
            engine: Some(engine),
            max_bytes: Self::MAX_BYTES,
            unknown_type: UnknownType::default(),
            on_mismatch: OnMismatch::default(),
            check_json: false,
            accepts: Box::new(|_| true),
        })
    }
}

impl std::fmt::Debug for ValidationLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidationLayer")
            .field("strategy", &self.0.strategy)
            .field("max_bytes", &self.0.max_bytes)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ValidationLayer {
    type Service = Validation<S>;

    fn layer(&self, inner: S) -> Validation<S> {
        Validation { inner, rules: self.0.clone() }
    }
}

/// Made by [`ValidationLayer`].
#[derive(Clone)]
pub struct Validation<S> {
    inner: S,
    rules: Arc<ValidationRules>,
}

impl<S> std::fmt::Debug for Validation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Validation")
    }
}

impl<S> Service<Arc<Message>> for Validation<S>
where
    S: Service<EventRequest, Response = Processed, Error = ProcessError>,
{
    type Response = Processed;
    type Error = ProcessError;
    type Future = Either<S::Future, Ready<Result<Processed, ProcessError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, message: Arc<Message>) -> Self::Future {
        match self.rules.request(message) {
            Ok(request) => Either::Left(self.inner.call(request)),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}

impl ValidationRules {
    pub(crate) fn request(&self, message: Arc<Message>) -> Result<EventRequest, ProcessError> {
        if message.body.len() > self.max_bytes {
            let (length, max) = (message.body.len(), self.max_bytes);
            let what = format!(
                "the payload has {length} bytes, {max} are allowed; raise the limit, or send a \
                                reference to the data"
            );
            return Err(invalid(what));
        }
        let event = Event::from_message(message).map_err(|error| invalid(error.to_string()))?;
        let identified = event.id_by(&self.strategy).and_then(|id| Ok((self.scope.key(&id)?, id)));
        let (key, id) = identified.map_err(|error| invalid(no_key(&error, &event)))?;
        let key_hash = self.hash(&key);
        let fingerprint = match self.on_mismatch {
            OnMismatch::DeadLetter | OnMismatch::Skip => event.fingerprint(),
            OnMismatch::Ignore => Fingerprint::of_bytes(b""),
        };
        let request = EventRequest {
            event,
            id: id.into(),
            failed_attempts: 0,
            counted_attempt: None,
            key,
            key_hash,
            fingerprint,
        };
        self.check(&request)?;
        Ok(request)
    }

    fn check(&self, request: &EventRequest) -> Result<(), ProcessError> {
        let (event, class) = (&request.event, ErrorClass::Validation);
        let refuse = |reason, error: String| {
            Err(ProcessError::Refused(request.refusal(reason, class, error)))
        };
        if self.check_json
            && event.attributes.is_json()
            && serde_json::from_slice::<IgnoredAny>(&event.data).is_err()
        {
            let what = "the data is not JSON, as its content type says it is".to_owned();
            return refuse(DeadLetterReason::Invalid, what);
        }
        let event_type = event.event_type();
        if (self.accepts)(event_type) {
            return Ok(());
        }
        match self.unknown_type {
            UnknownType::DeadLetter => {
                let shown: String = event_type.chars().take(100).collect();
                refuse(
                    DeadLetterReason::UnknownType,
                    format!("no handler takes events of type {shown:?}"),
                )
            }
            UnknownType::Skip => Err(ProcessError::Skipped),
            UnknownType::Stop => {
                Err(ProcessError::UnknownType { event_type: event_type.to_owned() })
            }
        }
    }

    fn hash(&self, key: &Key) -> KeyHash {
        match &self.engine {
            Some(engine) => engine.key_hash(key),
            None => key.hash(None),
        }
    }
}

fn no_key(error: &Error, event: &Event) -> String {
    match event.event_id() {
        Some(_) => error.to_string(),
        None => "the message has no id; set CloudEvents id and source, the header IdempotencyKey or event_id, the \
                 broker's message id, or event_id in a JSON body"
            .to_owned(),
    }
}

/// A message that has no key.
fn invalid(error: String) -> ProcessError {
    ProcessError::Refused(Refusal {
        reason: DeadLetterReason::Invalid,
        class: ErrorClass::Validation,
        error,
        attempts: 0,
        key: None,
        event_id: None,
    })
}

/// The id of the dead letter of a message: the same for every copy of its event or, without a key, for every delivery
/// of the message.
pub(crate) fn dead_letter_id(key: Option<&KeyHash>, source: &str, message: &Message) -> String {
    let of_position = || {
        let digest =
            Fingerprint::of_parts(&[source.as_bytes(), message.position.as_bytes(), &message.body]);
        KeyHash::from_bytes(*digest.as_bytes())
    };
    DownstreamKey::new(&key.copied().unwrap_or_else(of_position), "").to_string()
}
