//! The change feed: messages from other processes about changed keys.
//!
//! A message is never proof of anything: its receiver reads the store.

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

/// Connects a store that receives messages about changes with the waiters and caches of this process. Clones share
/// one feed.
///
/// A store calls [`ChangeFeed::connected`] once its server sends every change, [`ChangeFeed::notify`] when a key
/// changed, and [`ChangeFeed::notify_all`] when it may have missed a change.
#[derive(Clone, Default)]
pub struct ChangeFeed(Arc<FeedState>);

#[derive(Default)]
struct FeedState {
    /// Wakes the task that waits in [`ChangeFeed::until_subscribed`].
    subscribed: Notify,
    keys: Mutex<HashMap<KeyHash, watch::Sender<()>>>,
    observers: Mutex<Vec<Weak<dyn ChangeObserver>>>,
    /// How many connections bring every change.
    connections: Mutex<usize>,
    /// The feeds that this one forwards. Empty for the feed of a single store.
    sources: Mutex<Vec<ChangeFeed>>,
}

/// Exists while a store receives every change. Dropped, it notifies all subscribers: any key may have changed.
#[derive(Debug)]
#[must_use]
pub struct FeedConnection(ChangeFeed);

impl Drop for FeedConnection {
    fn drop(&mut self) {
        *self.0.0.connections.lock() -= 1;
        self.0.notify_all();
    }
}

/// Is notified of the changes of every key.
pub trait ChangeObserver: Send + Sync {
    /// This key changed. `None`: any key may have changed.
    fn changed(&self, key: Option<&KeyHash>);
}

/// Waits for changes of one key. It misses no notification since it was made.
#[derive(Debug)]
pub struct KeySubscription {
    feed: ChangeFeed,
    key: KeyHash,
    /// `None` only while this is dropped.
    changes: Option<watch::Receiver<()>>,
}

impl ChangeFeed {
    /// A feed without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes to the changes of `key`.
    #[must_use]
    pub fn subscribe(&self, key: &KeyHash) -> KeySubscription {
        let mut keys = self.0.keys.lock();
        let sender = keys.entry(*key).or_insert_with(|| watch::Sender::new(()));
        let changes = Some(sender.subscribe());
        drop(keys);
        self.0.subscribed.notify_one();
        KeySubscription { feed: self.clone(), key: *key, changes }
    }

    /// Notifies `observer` of the changes of every key for as long as it lives.
    pub fn subscribe_all(&self, observer: Weak<dyn ChangeObserver>) {
        self.0.observers.lock().push(observer);
        self.0.subscribed.notify_one();
    }

    /// Declares that every change is notified from now on. Changes before that may have been missed, so all
    /// subscribers are notified.
    pub fn connected(&self) -> FeedConnection {
        *self.0.connections.lock() += 1;
        self.notify_all();
        FeedConnection(self.clone())
    }

    /// True while every change is notified. While it is false, a copy of a record may be out of date without notice.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let sources = self.0.sources.lock();
        match sources.is_empty() {
            true => *self.0.connections.lock() > 0,
            false => sources.iter().all(Self::is_connected),
        }
    }

    /// True while there is a subscriber, of any key.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        !self.0.keys.lock().is_empty()
            || self.0.observers.lock().iter().any(|observer| observer.strong_count() > 0)
    }

    /// Returns when there is a subscriber. For the one task of a store that forwards the server's messages: it need
    /// not request them earlier. It calls [`ChangeFeed::connected`] once it has requested them.
    pub async fn until_subscribed(&self) {
        while !self.has_subscribers() {
            self.0.subscribed.notified().await;
        }
    }

    /// Notifies the subscribers that this key changed.
    pub fn notify(&self, key: &KeyHash) {
        self.notify_observers(Some(key));
        if let Some(sender) = self.0.keys.lock().get(key) {
            sender.send_replace(());
        }
    }

    /// Notifies all subscribers that any key may have changed.
    pub fn notify_all(&self) {
        self.notify_observers(None);
        for sender in self.0.keys.lock().values() {
            sender.send_replace(());
        }
    }

    fn notify_observers(&self, key: Option<&KeyHash>) {
        let mut observers = self.0.observers.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        let live: Vec<_> = observers.iter().filter_map(Weak::upgrade).collect();
        drop(observers);
        live.iter().for_each(|observer| observer.changed(key));
    }
}

/// Forwards the changes of other feeds to one feed, for as long as it lives.
#[derive(Debug)]
pub(crate) struct FeedRelay(ChangeFeed);

impl FeedRelay {
    pub(crate) fn to(feed: &ChangeFeed) -> Arc<Self> {
        Arc::new(Self(feed.clone()))
    }

    pub(crate) fn forward(self: &Arc<Self>, source: &ChangeFeed) {
        self.0.0.sources.lock().push(source.clone());
        let relay: Arc<dyn ChangeObserver> = self.clone();
        source.subscribe_all(Arc::downgrade(&relay));
    }
}

impl ChangeObserver for FeedRelay {
    fn changed(&self, key: Option<&KeyHash>) {
        match key {
            Some(key) => self.0.notify(key),
            None => self.0.notify_all(),
        }
    }
}

impl KeySubscription {
    /// Returns when the key may have changed. Cancel safe: a dropped future loses no notification.
    pub async fn changed(&mut self) {
        if let Some(changes) = &mut self.changes
            && changes.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

impl Drop for KeySubscription {
    fn drop(&mut self) {
        // Under the lock that `subscribe` takes: the last subscription of a key removes its entry.
        let mut keys = self.feed.0.keys.lock();
        self.changes = None;
        if let Entry::Occupied(entry) = keys.entry(self.key)
            && entry.get().receiver_count() == 0
        {
            entry.remove();
        }
    }
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.keys.lock().len();
        f.debug_struct("ChangeFeed").field("keys", &keys).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::{future::Future, pin::pin};

    use super::*;

    fn is_notified(subscription: &mut KeySubscription) -> bool {
        let changed = pin!(subscription.changed());
        matches!(changed.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    fn key(byte: u8) -> KeyHash {
        KeyHash::from_bytes([byte; 32])
    }

    #[test]
    fn a_change_notifies_the_subscriptions_of_its_key_once_and_no_other() {
        let feed = ChangeFeed::new();
        let (mut one, mut twin, mut other) =
            (feed.subscribe(&key(1)), feed.subscribe(&key(1)), feed.subscribe(&key(2)));
        feed.notify(&key(1));
        assert!(is_notified(&mut one) && is_notified(&mut twin));
        assert!(!is_notified(&mut one) && !is_notified(&mut other));
        feed.notify_all();
        assert!(is_notified(&mut one) && is_notified(&mut twin) && is_notified(&mut other));
    }

    #[test]
    fn a_relayed_feed_is_connected_while_every_source_is_and_a_lost_source_notifies_all() {
        let (one, other, both) = (ChangeFeed::new(), ChangeFeed::new(), ChangeFeed::new());
        let relay = FeedRelay::to(&both);
        [&one, &other].into_iter().for_each(|source| relay.forward(source));
        let connection = one.connected();
        assert!(one.is_connected() && !both.is_connected());
        let _other = other.connected();
        assert!(both.is_connected());
        let mut subscription = both.subscribe(&key(1));
        drop(connection);
        assert!(is_notified(&mut subscription) && !both.is_connected());
    }

    struct IdleObserver;

    impl ChangeObserver for IdleObserver {
        fn changed(&self, _: Option<&KeyHash>) {}
    }

    #[test]
    fn until_subscribed_returns_only_while_there_is_a_subscriber() {
        let feed = ChangeFeed::new();
        let is_subscribed = || {
            let subscribed = pin!(feed.until_subscribed());
            subscribed.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!is_subscribed());
        let subscription = feed.subscribe(&key(1));
        assert!(is_subscribed());
        drop(subscription);
        assert!(!is_subscribed());
        let observer: Arc<dyn ChangeObserver> = Arc::new(IdleObserver);
        feed.subscribe_all(Arc::downgrade(&observer));
        assert!(is_subscribed());
        drop(observer);
        assert!(!is_subscribed());
    }

    #[test]
    fn the_last_dropped_subscription_of_a_key_removes_its_entry() {
        let feed = ChangeFeed::new();
        let (one, mut twin) = (feed.subscribe(&key(1)), feed.subscribe(&key(1)));
        drop(one);
        feed.notify(&key(1));
        assert!(is_notified(&mut twin));
        drop(twin);
        assert!(feed.0.keys.lock().is_empty());
    }
}
