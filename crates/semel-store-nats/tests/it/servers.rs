//! Behaviour of servers: lost replies, tombstones, change feed and crashes.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use semel_core::{
    Claim, ClaimRequest, Completion, Decision, Effect, Erasure, Error, ErrorKind, Forgetting,
    HashSecret, KeyHash, Nonce, OnLostOwner, Outcome, Release, ReleaseRequest, RenewRequest,
    Renewal, Resolution, ResolveRequest, State, Store, Terms,
};
use semel_servers::{NATS, Running};
use semel_store_nats::{NatsStore, NatsStoreBuilder};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    common::{LONG, at, completion, granted, request, shared, unique, until},
    jetstream::{api_request, make_bucket},
    reply_proxy::ReplyProxy,
};

const SOON: Duration = Duration::from_secs(10);

/// A server that no other test uses.
fn own() -> Running {
    Running::start(&NATS).unwrap()
}

fn stream_of(key: &KeyHash, bucket: &str, prefix: &str) -> (String, String) {
    let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("KV_{bucket}"), format!("$KV.{bucket}.{prefix}.k.{hex}"))
}

/// The headers of a key's last message.
async fn headers(url: &str, (stream, subject): &(String, String)) -> Option<String> {
    use base64ct::{Base64, Encoding};
    let api = format!("STREAM.MSG.GET.{stream}");
    let got = api_request(url, &api, json!({ "last_by_subj": subject })).await;
    let headers = Base64::decode_vec(got["message"]["hdrs"].as_str()?).unwrap();
    Some(String::from_utf8(headers).unwrap())
}

#[tokio::test]
async fn processes_agree_on_the_hash_secret() {
    let builder = at(&shared(), "secret");
    let secret = |text: &[u8]| HashSecret::from_bytes(text).unwrap();
    builder.clone().hash_secret(secret(b"0123456789abcdef")).connect().await.unwrap();
    builder.clone().hash_secret(secret(b"0123456789abcdef")).connect().await.unwrap();
    for other in [builder.clone(), builder.hash_secret(secret(b"fedcba9876543210"))] {
        let error = other.connect().await.unwrap_err();
        assert!(error.to_string().contains("--hash-secret-file"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_needed_and_never_shown() {
    let server = Running::start(&NATS.args(["--user", "semel", "--pass", "right"])).unwrap();
    let url = format!("nats://semel:right@127.0.0.1:{}/ids", server.port());
    granted(&NatsStore::connect(&url).await.unwrap(), &request(LONG)).await;
    let url = format!("nats://semel:canary@127.0.0.1:{}/ids", server.port());
    let error = NatsStore::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("password") && !error.to_string().contains("canary"));
}

/// The result of a call whose acknowledgement was lost after the server had stored its write.
async fn reply_after_a_lost_ack<T: Send + 'static>(
    proxy: &ReplyProxy,
    direct: &NatsStore,
    key: KeyHash,
    taken: impl Fn(Option<State>) -> bool,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let meanwhile = async || {
        until("the server took it", async || {
            taken(direct.get(&key).await.unwrap().map(|sighting| sighting.record.state))
        })
        .await;
    };
    reply_without_an_ack(proxy, meanwhile, call).await
}

/// The result of a call that gets no acknowledgement of its write until `meanwhile` has ended.
async fn reply_without_an_ack<T: Send + 'static>(
    proxy: &ReplyProxy,
    meanwhile: impl AsyncFnOnce(),
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    proxy.drop_replies_after_a_write();
    let call = tokio::spawn(call);
    meanwhile().await;
    proxy.cut();
    timeout(SOON, call).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_recognises_its_own_write_after_a_lost_reply() {
    let server = own();
    let proxy = ReplyProxy::start(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = Arc::new(NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap());
    let is = |state: State| move |now: Option<State>| now == Some(state);

    let first = request(LONG);
    let (claim, claiming) = (first.clone(), store.clone());
    let call = async move { claiming.claim(&claim).await };
    let reply =
        reply_after_a_lost_ack(&proxy, &direct, first.key, is(State::InProgress), call).await;
    let Claim::Granted(lease) = reply.unwrap() else {
        panic!("the claim did not recognise itself")
    };
    assert_eq!((lease.owner.token, lease.attempt), (1, 1));

    let (giving, released) = (store.clone(), lease.owner);
    let call = async move {
        giving.release(&ReleaseRequest { owner: released, effect: Effect::None }).await
    };
    let reply = reply_after_a_lost_ack(&proxy, &direct, first.key, is(State::Open), call).await;
    assert_eq!(reply.unwrap(), Release::Open);

    let again = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    let (completing, owner) = (store.clone(), granted(&*store, &again).await.owner);
    let call = async move { completing.complete(&completion(owner, "done")).await };
    let reply =
        reply_after_a_lost_ack(&proxy, &direct, first.key, is(State::Completed), call).await;
    assert_eq!(reply.unwrap(), Completion::Recorded);

    let (forgetting, key) = (store.clone(), first.key);
    let call = async move { forgetting.forget(&key).await };
    let reply = reply_after_a_lost_ack(&proxy, &direct, first.key, |now| now.is_none(), call).await;
    assert_eq!(reply.unwrap(), Forgetting::Forgotten);
}

/// A claim that was stored, whose reply was lost, and that another request ended before the claim could read the key.
struct EndedClaim {
    first: ClaimRequest,
    /// The reply that another claim gets.
    other_reply: Option<Claim>,
    ended_by: &'static [EndedBy],
}

#[derive(Clone, Copy)]
enum EndedBy {
    Erased,
    Forgotten,
    Resolved,
    /// It expired, and another owner claimed the key.
    ClaimedAnew,
}

impl EndedClaim {
    fn new(change: impl FnOnce(&mut Terms)) -> Self {
        let mut first = request(Duration::from_millis(100));
        change(&mut first.terms);
        Self { first, other_reply: None, ended_by: &[] }
    }

    /// Ends the claim once it is stored.
    async fn end(&self, store: &NatsStore) {
        let key = &self.first.key;
        until("the claim is stored", async || store.get(key).await.unwrap().is_some()).await;
        if let Some(expected) = &self.other_reply {
            let other = self.other();
            until("another claim gets the reply", async || {
                store.claim(&other).await.unwrap() == *expected
            })
            .await;
        }
        for step in self.ended_by {
            self.end_by(store, *step).await;
        }
    }

    async fn end_by(&self, store: &NatsStore, step: EndedBy) {
        let ClaimRequest { key, nonce, .. } = self.first;
        match step {
            EndedBy::Erased => assert_eq!(store.erase(&key).await.unwrap(), Erasure::Erased),
            EndedBy::Forgotten => {
                assert_eq!(store.forget(&key).await.unwrap(), Forgetting::Forgotten);
            }
            EndedBy::Resolved => {
                let decision = Decision::Complete(Arc::new(Outcome::success("done")));
                let seen_nonce = Some(nonce);
                let resolved = ResolveRequest { key, seen_nonce, seen_token: 1, decision };
                assert_eq!(store.resolve(&resolved).await.unwrap(), Resolution::Done);
            }
            EndedBy::ClaimedAnew => {
                until("it expires", async || store.get(&key).await.unwrap().is_none()).await;
                assert_eq!(granted(store, &self.other()).await.owner.token, 1);
            }
        }
    }

    fn other(&self) -> ClaimRequest {
        ClaimRequest { nonce: Nonce::random(), ..self.first.clone() }
    }
}

/// Other callers have seen that it owned the key: a reply made from the later record would contradict that.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_ended_before_its_reply_arrives_reports_an_unknown_result() {
    let server = own();
    let proxy = ReplyProxy::start(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let once = |terms: &mut Terms| terms.max_attempts = NonZeroU32::new(1);
    let hold = |terms: &mut Terms| terms.on_lost_owner = OnLostOwner::Hold;
    let brief = |terms: &mut Terms| terms.retention = Duration::from_millis(100).into();
    let dead = || Some(Claim::Dead);
    let mut wrong = Vec::new();
    for (name, ended) in [
        ("erased", EndedClaim { ended_by: &[EndedBy::Erased], ..EndedClaim::new(|_| {}) }),
        ("dead", EndedClaim { other_reply: dead(), ..EndedClaim::new(once) }),
        (
            "forgotten",
            EndedClaim {
                other_reply: dead(),
                ended_by: &[EndedBy::Forgotten],
                ..EndedClaim::new(once)
            },
        ),
        ("unknown", EndedClaim { other_reply: Some(Claim::Unknown), ..EndedClaim::new(hold) }),
        (
            "resolved",
            EndedClaim {
                other_reply: dead(),
                ended_by: &[EndedBy::Resolved],
                ..EndedClaim::new(once)
            },
        ),
        (
            "claimed anew",
            EndedClaim { ended_by: &[EndedBy::ClaimedAnew], ..EndedClaim::new(brief) },
        ),
    ] {
        let (claiming, first) = (store.clone(), ended.first.clone());
        let call = async move { claiming.claim(&first).await };
        let reply = reply_without_an_ack(&proxy, async || ended.end(&direct).await, call).await;
        if !is_unknown_result(&reply) {
            wrong.push((name, reply));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Other callers have seen that the key was dead before its owner completed: a reply made from the outcome would
/// contradict that.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_made_a_key_dead_without_a_reply_reports_an_unknown_result() {
    let server = own();
    let proxy = ReplyProxy::start(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let mut first = request(Duration::from_millis(100));
    first.terms.max_attempts = NonZeroU32::new(1);
    let owner = granted(&direct, &first).await.owner;
    let last = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    // The lease ends, then the grace period.
    for _ in 0..2 {
        let reply = store.claim(&last).await.unwrap();
        assert!(matches!(reply, Claim::Busy { .. }), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    proxy.drop_replies_after_a_change();
    let call = tokio::spawn(async move { store.claim(&last).await });
    let state = async || direct.get(&owner.key).await.unwrap().unwrap().record.state;
    until("the key is dead", async || state().await == State::Dead).await;
    let reply = direct.complete(&completion(owner, "done")).await.unwrap();
    assert_eq!(reply, Completion::Recorded);
    proxy.cut();
    let reply = timeout(SOON, call).await.unwrap().unwrap();
    assert!(is_unknown_result(&reply), "{reply:?}");
}

/// True for the error of an unknown result, and not for a timeout.
fn is_unknown_result(reply: &Result<Claim, Error>) -> bool {
    matches!(reply, Err(error) if error.kind() == ErrorKind::Unavailable && error.to_string().contains("changed since"))
}

#[tokio::test]
async fn a_deleted_key_is_absent_and_its_next_record_keeps_its_ttl() {
    let (bucket, prefix) = (unique("markers"), "semel");
    make_bucket(&shared(), &bucket, json!({ "subject_delete_marker_ttl": 3_600_000_000_000_u64 }))
        .await;
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let mut first = request(LONG);
    let subject = stream_of(&first.key, &bucket, prefix);
    let owner = granted(&store, &first).await.owner;
    store.complete(&completion(owner, "done")).await.unwrap();
    assert_eq!(store.forget(&first.key).await.unwrap(), Forgetting::Forgotten);
    assert!(headers(&shared(), &subject).await.unwrap().contains("KV-Operation"));
    assert_eq!(store.get(&first.key).await.unwrap(), None);

    // A claim replaces the tombstone of a deletion, then the tombstone of an ended TTL.
    first.nonce = Nonce::random();
    first.terms.lease = Duration::from_millis(10).into();
    first.terms.retention = Duration::from_millis(900).into();
    let lease = granted(&store, &first).await;
    assert_eq!(lease.owner.token, 1, "a deleted key begins again");
    assert!(headers(&shared(), &subject).await.unwrap().contains("Nats-TTL: 1s"));
    until("the server ends the TTL", async || {
        headers(&shared(), &subject).await.is_some_and(|it| it.contains("Nats-Marker-Reason"))
    })
    .await;
    first.nonce = Nonce::random();
    assert_eq!(granted(&store, &first).await.owner.token, 1);
    assert!(headers(&shared(), &subject).await.unwrap().contains("Nats-TTL"));
}

#[tokio::test]
async fn a_claim_in_hold_mode_has_no_ttl() {
    let bucket = unique("hold");
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let mut held = request(LONG);
    held.terms.on_lost_owner = OnLostOwner::Hold;
    granted(&store, &held).await;
    let headers = headers(&shared(), &stream_of(&held.key, &bucket, "semel")).await.unwrap();
    assert!(!headers.contains("Nats-TTL"), "{headers}");
}

#[tokio::test]
async fn another_process_takes_a_key_over_only_after_it_has_seen_the_claim_for_a_lease() {
    let builder = at(&shared(), "takeover");
    let (owner, other) =
        (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let lease = Duration::from_millis(400);
    let first = request(lease);
    granted(&owner, &first).await;
    tokio::time::sleep(lease * 2).await;
    let contender = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    let reply = other.claim(&contender).await.unwrap();
    assert!(matches!(reply, Claim::Busy { remaining } if remaining <= lease), "{reply:?}");
    let seen = std::time::Instant::now();
    until("it takes over", async || {
        matches!(other.claim(&contender).await.unwrap(), Claim::Granted(lease) if lease.takeover)
    })
    .await;
    assert!(seen.elapsed() >= lease, "it took over early");
}

#[tokio::test]
async fn there_is_a_consumer_only_while_the_change_feed_has_subscribers() {
    let (bucket, first) = (unique("consumer"), request(LONG));
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let consumers = async || {
        let api = format!("STREAM.INFO.KV_{bucket}");
        api_request(&shared(), &api, json!({})).await["state"]["consumer_count"].as_u64().unwrap()
    };
    granted(&store, &first).await;
    until("there is no consumer", async || consumers().await == 0).await;
    let subscriber = store.info().change_feed.unwrap().subscribe(&first.key);
    until("there is a consumer", async || consumers().await == 1).await;
    drop(subscriber);
    let stopped = async {
        while consumers().await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON * 6, stopped).await.expect("the consumer is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_in_another_process_is_notified_after_the_change() {
    let builder = at(&shared(), "feed");
    let (one, other) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let first = request(LONG);
    let owner = granted(&one, &first).await.owner;
    let mut subscriber = other.info().change_feed.unwrap().subscribe(&first.key);
    // The notification of the claim itself may still arrive.
    while timeout(Duration::from_millis(300), subscriber.changed()).await.is_ok() {}
    one.complete(&completion(owner, "done")).await.unwrap();
    timeout(SOON, subscriber.changed()).await.expect("the subscriber is notified");
    let reply = other.claim(&ClaimRequest { nonce: Nonce::random(), ..first }).await.unwrap();
    assert!(
        matches!(reply, Claim::Replay(_)),
        "the notification came before the change: {reply:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_subscribers_are_notified_after_a_lost_subscription() {
    let mut server = own();
    let store = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let mut subscriber = store.info().change_feed.unwrap().subscribe(&request(LONG).key);
    timeout(SOON, subscriber.changed())
        .await
        .expect("the subscriber is notified of the subscription");
    server.kill().unwrap();
    server.restart().unwrap();
    timeout(Duration::from_secs(30), subscriber.changed())
        .await
        .expect("the subscriber is notified");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_outcomes_survive_a_crash_under_load() {
    let mut server = own();
    let store = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let mut callers = Vec::new();
    for _ in 0..16 {
        let store = store.clone();
        callers.push(tokio::spawn(async move {
            let (mut done, deadline) = (Vec::new(), std::time::Instant::now() + SOON / 2);
            while std::time::Instant::now() < deadline {
                let first = request(LONG);
                let Ok(Claim::Granted(lease)) = store.claim(&first).await else { continue };
                let recorded = store.complete(&completion(lease.owner, "done")).await;
                if matches!(recorded, Ok(Completion::Recorded)) {
                    done.push(first);
                }
            }
            done
        }));
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.kill().unwrap();
        server.restart().unwrap();
    }
    let mut all = Vec::new();
    for caller in callers {
        all.extend(caller.await.unwrap());
    }
    assert!(all.len() > 16, "too few operations were done");
    until("the store works again", async || store.claim(&request(LONG)).await.is_ok()).await;
    for done in all {
        let reply = store.claim(&ClaimRequest { nonce: Nonce::random(), ..done }).await.unwrap();
        assert!(matches!(reply, Claim::Replay(_)), "an answered completion is gone: {reply:?}");
    }
}

/// A reply that arrives late shows the key as it was when it was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_does_not_make_a_renewed_claim_expire() {
    let server = own();
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let slow = semel_faults::FaultProxy::start(server.port()).unwrap();
    let far = NatsStore::builder(&format!("nats://127.0.0.1:{}/ids", slow.port()));
    let far = far.call_timeout(NatsStoreBuilder::MAX_CALL_TIMEOUT).connect().await.unwrap();
    let mut renewed_in_time = 0;
    // All times grow, until this machine renews the claim in time.
    for attempt in 0..12 {
        let unit = Duration::from_millis(100) * (1 + attempt / 2);
        let mut brief = request(unit * 2);
        brief.terms.retention = (unit * 3).into();
        let owner = granted(&direct, &brief).await.owner;
        slow.set(semel_faults::Fault::Slow(unit * 3));
        // The server reads the key after 3 units, and the reply arrives after 6. Without a renewal, the record would
        // have expired after 5.
        let reading = tokio::spawn({
            let far = far.clone();
            async move { far.get(&brief.key).await.unwrap() }
        });
        tokio::time::sleep(unit * 4).await;
        let renewal = RenewRequest::new(owner, LONG);
        let renewal = direct.renew(&renewal).await.unwrap();
        let found = reading.await.unwrap();
        slow.set(semel_faults::Fault::None);
        if renewal == Renewal::Extended {
            assert!(found.is_some(), "the claim was live all the time");
            renewed_in_time += 1;
        }
        if renewed_in_time == 3 {
            return;
        }
    }
    panic!("this machine is too busy to renew a claim in time");
}

#[tokio::test]
async fn a_call_to_an_unreachable_server_fails_in_time() {
    let mut server = own();
    let store = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    server.kill().unwrap();
    let error = timeout(SOON, store.claim(&request(LONG))).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart().unwrap();
    until("the store works again", async || store.claim(&request(LONG)).await.is_ok()).await;
}

#[tokio::test]
async fn one_process_leads_at_a_time() {
    let builder = at(&shared(), "lead");
    let (one, other) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let term = Duration::from_millis(500);
    assert!(one.lead(term).await.unwrap());
    assert!(!other.lead(term).await.unwrap());
    assert!(one.lead(term).await.unwrap(), "the leader renews its term");
    until("the other leads", async || other.lead(term).await.unwrap()).await;
    assert!(!one.lead(term).await.unwrap());
}
