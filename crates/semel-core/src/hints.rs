//! News about keys from other processes. A hint is never a fact: whoever hears one asks the store.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    future::pending,
    sync::{Arc, Weak},
};

use crate::{
    KeyHash,
    sync::{Mutex, Notify, watch},
};

/// Between a store that hears of changes and those who want to know. Clones are one.
///
/// A store calls [`Hints::hear`] once its server tells it of every change, [`Hints::tell`] when a key changed, and
/// [`Hints::tell_all`] when it may have missed something.
#[derive(Clone, Default)]
pub struct Hints(Arc<Inner>);

#[derive(Default)]
struct Inner {
    heeded: Notify,
    listeners: Mutex<HashMap<KeyHash, watch::Sender<()>>>,
    overhearing: Mutex<Vec<Weak<dyn Heard>>>,
    ears: Mutex<usize>,
    /// Those whose news these are, if they are not its own.
    sources: Mutex<Vec<Hints>>,
}

/// Every change is told while it lives. Dropped, any key may have changed unheard.
#[derive(Debug)]
#[must_use]
pub struct Hearing(Hints);

impl Drop for Hearing {
    fn drop(&mut self) {
        *self.0.0.ears.lock() -= 1;
        self.0.tell_all();
    }
}

/// Wants to hear about every key.
pub trait Heard: Send + Sync {
    /// This key changed; `None`: any may have.
    fn heard(&self, key: Option<&KeyHash>);
}

/// Waits for news about one key. Nothing told since it was made is missed.
#[derive(Debug)]
pub struct Listener {
    hints: Hints,
    key: KeyHash,
    /// Until it is dropped.
    news: Option<watch::Receiver<()>>,
}

impl Hints {
    /// Nobody listens yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens for `key` from now on.
    #[must_use]
    pub fn listen(&self, key: &KeyHash) -> Listener {
        let mut listeners = self.0.listeners.lock();
        let sender = listeners.entry(*key).or_insert_with(|| watch::Sender::new(()));
        let news = Some(sender.subscribe());
        drop(listeners);
        self.0.heeded.notify_one();
        Listener { hints: self.clone(), key: *key, news }
    }

    /// Tells `heard` about every key for as long as it lives.
    pub fn overhear(&self, heard: Weak<dyn Heard>) {
        self.0.overhearing.lock().push(heard);
        self.0.heeded.notify_one();
    }

    /// From now on every change is told. Whatever was missed before may be any key.
    pub fn hear(&self) -> Hearing {
        *self.0.ears.lock() += 1;
        self.tell_all();
        Hearing(self.clone())
    }

    /// True while every change is told; else what is held of a key may be out of date, and nobody will say so.
    #[must_use]
    pub fn is_hearing(&self) -> bool {
        let sources = self.0.sources.lock();
        match sources.is_empty() {
            true => *self.0.ears.lock() > 0,
            false => sources.iter().all(Self::is_hearing),
        }
    }

    /// True while somebody listens, to whichever key.
    #[must_use]
    pub fn is_heeded(&self) -> bool {
        !self.0.listeners.lock().is_empty()
            || self.0.overhearing.lock().iter().any(|heard| heard.strong_count() > 0)
    }

    /// Returns when somebody listens. For the one task that passes on what a server tells, which need not
    /// ask for it before; having asked, it calls [`Hints::hear`].
    pub async fn heeded(&self) {
        while !self.is_heeded() {
            self.0.heeded.notified().await;
        }
    }

    /// This key changed.
    pub fn tell(&self, key: &KeyHash) {
        self.tell_overhearing(Some(key));
        if let Some(sender) = self.0.listeners.lock().get(key) {
            sender.send_replace(());
        }
    }

    /// Any key may have changed.
    pub fn tell_all(&self) {
        self.tell_overhearing(None);
        for sender in self.0.listeners.lock().values() {
            sender.send_replace(());
        }
    }

    fn tell_overhearing(&self, key: Option<&KeyHash>) {
        let mut overhearing = self.0.overhearing.lock();
        overhearing.retain(|heard| heard.strong_count() > 0);
        let heard: Vec<_> = overhearing.iter().filter_map(Weak::upgrade).collect();
        drop(overhearing);
        heard.iter().for_each(|heard| heard.heard(key));
    }
}

/// Tells one what it hears from others, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Relay(Hints);

impl Relay {
    pub(crate) fn to(hints: &Hints) -> Arc<Self> {
        Arc::new(Self(hints.clone()))
    }

    pub(crate) fn overhear(self: &Arc<Self>, hints: &Hints) {
        self.0.0.sources.lock().push(hints.clone());
        let own: Arc<dyn Heard> = self.clone();
        hints.overhear(Arc::downgrade(&own));
    }
}

impl Heard for Relay {
    fn heard(&self, key: Option<&KeyHash>) {
        match key {
            Some(key) => self.0.tell(key),
            None => self.0.tell_all(),
        }
    }
}

impl Listener {
    /// Returns when there is news. Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) {
        if let Some(news) = &mut self.news
            && news.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Leaves under the lock that listening takes: the last one out takes the entry along.
        let mut listeners = self.hints.0.listeners.lock();
        self.news = None;
        if let Entry::Occupied(entry) = listeners.entry(self.key)
            && entry.get().receiver_count() == 0
        {
            entry.remove();
        }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listeners = self.0.listeners.lock().len();
        f.debug_struct("Hints").field("keys", &listeners).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::{future::Future, pin::pin};

    use super::*;

    fn is_told(listener: &mut Listener) -> bool {
        let changed = pin!(listener.changed());
        matches!(changed.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    fn key(byte: u8) -> KeyHash {
        KeyHash::from_bytes([byte; 32])
    }

    #[test]
    fn whoever_listens_to_a_key_hears_of_it_once_and_of_no_other() {
        let hints = Hints::new();
        let (mut one, mut twin, mut other) =
            (hints.listen(&key(1)), hints.listen(&key(1)), hints.listen(&key(2)));
        hints.tell(&key(1));
        assert!(is_told(&mut one) && is_told(&mut twin));
        assert!(!is_told(&mut one) && !is_told(&mut other));
        hints.tell_all();
        assert!(is_told(&mut one) && is_told(&mut twin) && is_told(&mut other));
    }

    #[test]
    fn they_hear_while_every_source_does_and_losing_one_may_be_any_key() {
        let (one, other, both) = (Hints::new(), Hints::new(), Hints::new());
        let relay = Relay::to(&both);
        [&one, &other].into_iter().for_each(|hints| relay.overhear(hints));
        let hearing = one.hear();
        assert!(one.is_hearing() && !both.is_hearing());
        let _other = other.hear();
        assert!(both.is_hearing());
        let mut listener = both.listen(&key(1));
        drop(hearing);
        assert!(is_told(&mut listener) && !both.is_hearing());
    }

    struct Deaf;

    impl Heard for Deaf {
        fn heard(&self, _: Option<&KeyHash>) {}
    }

    #[test]
    fn they_are_heeded_while_somebody_listens() {
        let hints = Hints::new();
        let is_heeded = || {
            let heeded = pin!(hints.heeded());
            heeded.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!is_heeded());
        let listener = hints.listen(&key(1));
        assert!(is_heeded());
        drop(listener);
        assert!(!is_heeded());
        let all: Arc<dyn Heard> = Arc::new(Deaf);
        hints.overhear(Arc::downgrade(&all));
        assert!(is_heeded());
        drop(all);
        assert!(!is_heeded());
    }

    #[test]
    fn nothing_is_left_of_those_who_stopped_listening() {
        let hints = Hints::new();
        let (one, mut twin) = (hints.listen(&key(1)), hints.listen(&key(1)));
        drop(one);
        hints.tell(&key(1));
        assert!(is_told(&mut twin));
        drop(twin);
        assert!(hints.0.listeners.lock().is_empty());
    }
}
