//! What servers do to the store: lost replies, markers, news, crashes.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;
mod jetstream;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use semel_core::{
    Claim, ClaimRequest, Completion, Decision, Effect, Erasure, Error, ErrorKind, Forgetting,
    HashSecret, KeyHash, Nonce, OnLostOwner, Outcome, Release, ReleaseRequest, RenewRequest,
    Renewal, Resolution, ResolveRequest, State, Store, Terms,
};
use semel_servers::{NATS, Running};
use semel_store_nats::NatsStore;
use serde_json::json;
use tokio::time::timeout;

use self::{
    common::{LONG, at, completion, granted, proxy::Proxy, request, shared, unique, until},
    jetstream::{ask, make_bucket},
};

const SOON: Duration = Duration::from_secs(10);

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
    let got = ask(url, &api, json!({ "last_by_subj": subject })).await;
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

/// What a call says whose reply was lost, after the server took it.
async fn said_after_a_lost_reply<T: Send + 'static>(
    proxy: &Proxy,
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
    said_without_a_reply(proxy, meanwhile, call).await
}

/// What a call says that hears no reply to its write until `meanwhile` is over.
async fn said_without_a_reply<T: Send + 'static>(
    proxy: &Proxy,
    meanwhile: impl AsyncFnOnce(),
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    proxy.swallow_replies();
    let call = tokio::spawn(call);
    meanwhile().await;
    proxy.cut();
    timeout(SOON, call).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_write_is_recognised_after_a_lost_reply() {
    let server = own();
    let proxy = Proxy::to(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = Arc::new(NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap());
    let is = |state: State| move |now: Option<State>| now == Some(state);

    let first = request(LONG);
    let (claim, claiming) = (first.clone(), store.clone());
    let call = async move { claiming.claim(&claim).await };
    let said =
        said_after_a_lost_reply(&proxy, &direct, first.key, is(State::InProgress), call).await;
    let Claim::Granted(lease) = said.unwrap() else { panic!("its own claim was not recognised") };
    assert_eq!((lease.owner.token, lease.attempt), (1, 1));

    let (giving, released) = (store.clone(), lease.owner);
    let call = async move {
        giving.release(&ReleaseRequest { owner: released, effect: Effect::None }).await
    };
    let said = said_after_a_lost_reply(&proxy, &direct, first.key, is(State::Open), call).await;
    assert_eq!(said.unwrap(), Release::Open);

    let again = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    let (completing, owner) = (store.clone(), granted(&*store, &again).await.owner);
    let call = async move { completing.complete(&completion(owner, "done")).await };
    let said =
        said_after_a_lost_reply(&proxy, &direct, first.key, is(State::Completed), call).await;
    assert_eq!(said.unwrap(), Completion::Recorded);

    let (forgetting, key) = (store.clone(), first.key);
    let call = async move { forgetting.forget(&key).await };
    let said = said_after_a_lost_reply(&proxy, &direct, first.key, |now| now.is_none(), call).await;
    assert_eq!(said.unwrap(), Forgetting::Forgotten);
}

/// A claim that was taken, whose reply was lost, and that others ended before it was heard of again.
struct Ended {
    first: ClaimRequest,
    /// What another was told of it.
    told: Option<Claim>,
    then: &'static [Then],
}

#[derive(Clone, Copy)]
enum Then {
    Erased,
    Forgotten,
    Resolved,
    /// It expired, and another claimed the key.
    ClaimedAnew,
}

impl Ended {
    fn new(change: impl FnOnce(&mut Terms)) -> Self {
        let mut first = request(Duration::from_millis(100));
        change(&mut first.terms);
        Self { first, told: None, then: &[] }
    }

    /// Ends it, once it is there.
    async fn end(&self, store: &NatsStore) {
        let key = &self.first.key;
        until("it is taken", async || store.get(key).await.unwrap().is_some()).await;
        if let Some(told) = &self.told {
            let other = self.other();
            until("another is told", async || store.claim(&other).await.unwrap() == *told).await;
        }
        for then in self.then {
            self.go_on(store, *then).await;
        }
    }

    async fn go_on(&self, store: &NatsStore, then: Then) {
        let ClaimRequest { key, nonce, .. } = self.first;
        match then {
            Then::Erased => assert_eq!(store.erase(&key).await.unwrap(), Erasure::Erased),
            Then::Forgotten => {
                assert_eq!(store.forget(&key).await.unwrap(), Forgetting::Forgotten);
            }
            Then::Resolved => {
                let decision = Decision::Complete(Arc::new(Outcome::success("done")));
                let seen_nonce = Some(nonce);
                let resolved = ResolveRequest { key, seen_nonce, seen_token: 1, decision };
                assert_eq!(store.resolve(&resolved).await.unwrap(), Resolution::Done);
            }
            Then::ClaimedAnew => {
                until("it expires", async || store.get(&key).await.unwrap().is_none()).await;
                assert_eq!(granted(store, &self.other()).await.owner.token, 1);
            }
        }
    }

    fn other(&self) -> ClaimRequest {
        ClaimRequest { nonce: Nonce::random(), ..self.first.clone() }
    }
}

/// Others saw it own the key: an answer made of what came after that would deny it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_others_ended_before_its_reply_says_that_nobody_knows() {
    let server = own();
    let proxy = Proxy::to(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let once = |terms: &mut Terms| terms.max_attempts = NonZeroU32::new(1);
    let hold = |terms: &mut Terms| terms.on_lost_owner = OnLostOwner::Hold;
    let brief = |terms: &mut Terms| terms.retention = Duration::from_millis(100).into();
    let dead = || Some(Claim::Dead);
    let mut denied = Vec::new();
    for (name, ended) in [
        ("erased", Ended { then: &[Then::Erased], ..Ended::new(|_| {}) }),
        ("dead", Ended { told: dead(), ..Ended::new(once) }),
        ("forgotten", Ended { told: dead(), then: &[Then::Forgotten], ..Ended::new(once) }),
        ("unknown", Ended { told: Some(Claim::Unknown), ..Ended::new(hold) }),
        ("resolved", Ended { told: dead(), then: &[Then::Resolved], ..Ended::new(once) }),
        ("claimed anew", Ended { then: &[Then::ClaimedAnew], ..Ended::new(brief) }),
    ] {
        let (claiming, first) = (store.clone(), ended.first.clone());
        let call = async move { claiming.claim(&first).await };
        let said = said_without_a_reply(&proxy, async || ended.end(&direct).await, call).await;
        if !is_unsettled(&said) {
            denied.push((name, said));
        }
    }
    assert!(denied.is_empty(), "{denied:?}");
}

/// Others saw the key dead before its owner completed: an answer made of that would deny it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_put_an_end_to_a_key_unheard_says_that_nobody_knows() {
    let server = own();
    let proxy = Proxy::to(server.port()).await;
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let store = NatsStore::connect(&format!("{}/ids", proxy.url)).await.unwrap();
    let mut first = request(Duration::from_millis(100));
    first.terms.max_attempts = NonZeroU32::new(1);
    let owner = granted(&direct, &first).await.owner;
    let last = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    let said = store.claim(&last).await.unwrap();
    assert!(matches!(said, Claim::Busy { .. }), "{said:?}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.swallow_replies_to_changes();
    let call = tokio::spawn(async move { store.claim(&last).await });
    let state = async || direct.get(&owner.key).await.unwrap().unwrap().record.state;
    until("it is dead", async || state().await == State::Dead).await;
    let said = direct.complete(&completion(owner, "done")).await.unwrap();
    assert_eq!(said, Completion::Recorded);
    proxy.cut();
    let said = timeout(SOON, call).await.unwrap().unwrap();
    assert!(is_unsettled(&said), "{said:?}");
}

/// Told that nobody knows, and not because no answer came in time.
fn is_unsettled(said: &Result<Claim, Error>) -> bool {
    matches!(said, Err(error) if error.kind() == ErrorKind::Unavailable && error.to_string().contains("changed since"))
}

#[tokio::test]
async fn a_deleted_key_is_absent_and_its_next_record_keeps_its_ttl() {
    let (bucket, prefix) = (unique("markers"), "semel");
    make_bucket(&shared(), &bucket, json!({ "subject_delete_marker_ttl": 3_600_000_000_000_u64 }))
        .await;
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let mut first = request(LONG);
    let place = stream_of(&first.key, &bucket, prefix);
    let owner = granted(&store, &first).await.owner;
    store.complete(&completion(owner, "done")).await.unwrap();
    assert_eq!(store.forget(&first.key).await.unwrap(), Forgetting::Forgotten);
    assert!(headers(&shared(), &place).await.unwrap().contains("KV-Operation"));
    assert_eq!(store.get(&first.key).await.unwrap(), None);

    // Over the marker of a deletion, then over the marker of a TTL that ended.
    first.nonce = Nonce::random();
    first.terms.lease = Duration::from_millis(10).into();
    first.terms.retention = Duration::from_millis(900).into();
    let lease = granted(&store, &first).await;
    assert_eq!(lease.owner.token, 1, "a key that is gone begins anew");
    assert!(headers(&shared(), &place).await.unwrap().contains("Nats-TTL: 1s"));
    until("the server ends the TTL", async || {
        headers(&shared(), &place).await.is_some_and(|it| it.contains("Nats-Marker-Reason"))
    })
    .await;
    first.nonce = Nonce::random();
    assert_eq!(granted(&store, &first).await.owner.token, 1);
    assert!(headers(&shared(), &place).await.unwrap().contains("Nats-TTL"));
}

#[tokio::test]
async fn what_must_not_expire_has_no_ttl() {
    let bucket = unique("hold");
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let mut held = request(LONG);
    held.terms.on_lost_owner = OnLostOwner::Hold;
    granted(&store, &held).await;
    let headers = headers(&shared(), &stream_of(&held.key, &bucket, "semel")).await.unwrap();
    assert!(!headers.contains("Nats-TTL"), "{headers}");
}

#[tokio::test]
async fn another_process_takes_over_only_what_it_has_seen_long_enough() {
    let builder = at(&shared(), "takeover");
    let (owner, other) =
        (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let lease = Duration::from_millis(400);
    let first = request(lease);
    granted(&owner, &first).await;
    tokio::time::sleep(lease * 2).await;
    let contender = ClaimRequest { nonce: Nonce::random(), ..first.clone() };
    let said = other.claim(&contender).await.unwrap();
    assert!(matches!(said, Claim::Busy { remaining } if remaining <= lease), "{said:?}");
    let seen = std::time::Instant::now();
    until("it takes over", async || {
        matches!(other.claim(&contender).await.unwrap(), Claim::Granted(lease) if lease.takeover)
    })
    .await;
    assert!(seen.elapsed() >= lease, "it took over early");
}

#[tokio::test]
async fn the_server_tells_of_writes_only_while_somebody_listens() {
    let (bucket, first) = (unique("heeded"), request(LONG));
    let store = NatsStore::connect(&format!("{}/{bucket}", shared())).await.unwrap();
    let consumers = async || {
        let api = format!("STREAM.INFO.KV_{bucket}");
        ask(&shared(), &api, json!({})).await["state"]["consumer_count"].as_u64().unwrap()
    };
    granted(&store, &first).await;
    until("nobody listens", async || consumers().await == 0).await;
    let listener = store.info().change_feed.unwrap().subscribe(&first.key);
    until("it listens", async || consumers().await == 1).await;
    drop(listener);
    let stopped = async {
        while consumers().await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON * 6, stopped).await.expect("it still listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn news_wake_who_listens_in_another_process() {
    let builder = at(&shared(), "news");
    let (one, other) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let first = request(LONG);
    let owner = granted(&one, &first).await.owner;
    let mut listener = other.info().change_feed.unwrap().subscribe(&first.key);
    // The claim itself may still be on its way.
    while timeout(Duration::from_millis(300), listener.changed()).await.is_ok() {}
    one.complete(&completion(owner, "done")).await.unwrap();
    timeout(SOON, listener.changed()).await.expect("nobody was woken");
    let said = other.claim(&ClaimRequest { nonce: Nonce::random(), ..first }).await.unwrap();
    assert!(matches!(said, Claim::Replay(_)), "news came before what they tell: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_subscription_all_are_told() {
    let mut server = own();
    let store = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let mut listener = store.info().change_feed.unwrap().subscribe(&request(LONG).key);
    timeout(SOON, listener.changed()).await.expect("the subscription is told of");
    server.kill().unwrap();
    server.restart().unwrap();
    timeout(Duration::from_secs(30), listener.changed()).await.expect("nobody was told");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_a_crash_under_load() {
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
    assert!(all.len() > 16, "hardly anything was done");
    until("the store works again", async || store.claim(&request(LONG)).await.is_ok()).await;
    for done in all {
        let said = store.claim(&ClaimRequest { nonce: Nonce::random(), ..done }).await.unwrap();
        assert!(matches!(said, Claim::Replay(_)), "an answered completion is gone: {said:?}");
    }
}

/// A reply that was long on its way says how a key stood, not how it stands when it arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_does_not_make_a_renewed_claim_expire() {
    const LATE: Duration = Duration::from_millis(300);
    let server = own();
    let direct = NatsStore::connect(&format!("{}/ids", server.url())).await.unwrap();
    let slow = semel_faults::FaultProxy::start(server.port()).unwrap();
    let far = NatsStore::connect(&format!("nats://127.0.0.1:{}/ids", slow.port())).await.unwrap();
    let mut renewed_in_time = 0;
    for _ in 0..10 {
        let mut brief = request(Duration::from_millis(200));
        brief.terms.retention = Duration::from_millis(300).into();
        let owner = granted(&direct, &brief).await.owner;
        slow.set(semel_faults::Fault::Slow(LATE));
        // Read after 300 ms, heard after 600; it would have expired after 500.
        let heard = tokio::spawn({
            let far = far.clone();
            async move { far.get(&brief.key).await.unwrap() }
        });
        tokio::time::sleep(LATE + LATE / 3).await;
        let renewal = RenewRequest { owner, max_run: LONG };
        let renewal = direct.renew(&renewal).await.unwrap();
        let heard = heard.await.unwrap();
        slow.set(semel_faults::Fault::None);
        if renewal == Renewal::Extended {
            assert!(heard.is_some(), "a claim that was always live was said to be gone");
            renewed_in_time += 1;
        }
        if renewed_in_time == 3 {
            return;
        }
    }
    panic!("this machine is too busy to renew a claim in time");
}

#[tokio::test]
async fn an_unreachable_server_is_said_in_time() {
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
    assert!(one.lead(term).await.unwrap(), "one that asks again in time stays");
    until("the other leads", async || other.lead(term).await.unwrap()).await;
    assert!(!one.lead(term).await.unwrap());
}
