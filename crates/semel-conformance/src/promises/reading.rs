//! `get`, `list` and `stats`, for operators.

use std::collections::BTreeMap;

use semel_core::{Effect, KeyHash, Labels, ListQuery, Record, State, Store};

use crate::{
    RETENTION, Time,
    operation::{TestOperation, expect_ok, success},
};

/// A namespace that no other test uses.
fn namespace() -> String {
    format!("conformance-{:016x}", rand::random::<u64>())
}

fn labelled<'a>(store: &'a dyn Store, namespace: &str) -> TestOperation<'a> {
    TestOperation::new(store).labels(Labels::new(namespace, "me", "charge", "order-42"))
}

/// The key before `key`. There is no other key between the two.
pub(super) fn just_before(key: &KeyHash) -> KeyHash {
    let mut bytes = *key.as_bytes();
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != 0xff {
            break;
        }
    }
    KeyHash::from_bytes(bytes)
}

async fn list(store: &dyn Store, query: &ListQuery) -> Vec<Record> {
    let page = expect_ok("list", store.list(query).await);
    assert!(page.len() <= query.limit, "a page is longer than its limit");
    assert!(page.is_sorted_by(|a, b| a.key < b.key), "a page is in the order of its keys");
    page
}

/// All pages of a query, `limit` records each.
async fn pages(store: &dyn Store, mut query: ListQuery, limit: usize) -> Vec<Record> {
    query.limit = limit;
    let mut all: Vec<Record> = Vec::new();
    loop {
        let mut page = list(store, &query).await;
        let Some(last) = page.last() else { return all };
        assert!(query.after < Some(last.key), "a page does not go on after the one before");
        query.after = Some(last.key);
        all.append(&mut page);
    }
}

/// Six records of one namespace, one in each state, by key.
async fn one_in_each_state(store: &dyn Store, namespace: &str) -> BTreeMap<KeyHash, State> {
    let new = || labelled(store, namespace);
    let [open, live, done, unknown, dead] = [new(), new(), new(), new().hold(), new().cap(1)];
    open.released(Effect::None).await;
    live.owned().await;
    done.completed(&success("done")).await;
    unknown.unknown().await;
    dead.dead().await;
    BTreeMap::from([
        (open.key, State::Open),
        (live.key, State::InProgress),
        (done.key, State::Completed),
        (unknown.key, State::Unknown),
        (dead.key, State::Dead),
    ])
}

/// Reading a key without a record returns none and makes none.
pub async fn an_absent_key_has_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    assert_eq!(operation.get().await, None, "a record without a claim");
    assert_eq!(operation.get().await, None, "reading made a record");
    assert_eq!(operation.granted().await.owner.token, 1, "reading counts as nothing");
}

/// A record comes with the store's time, which rises.
pub async fn a_sighting_has_store_time(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.owned().await;
    let sight = async || {
        expect_ok("get", store.get(&operation.key).await).expect("a claimed key has a record")
    };
    let first = sight().await;
    time.pass(RETENTION).await;
    let second = sight().await;
    assert_eq!(first.record, second.record, "reading changes nothing");
    assert!(first.record.is_leased(first.at), "a long lease is live in store time");
    let passed = second.at.since(first.at);
    assert!(passed >= RETENTION / 2, "store time stood still: {passed:?}");
}

/// Pages of any size cover every record of a namespace once, in the order of their keys.
pub async fn pages_cover_everything_once(store: &dyn Store, _: &dyn Time) {
    let namespace = namespace();
    let made = one_in_each_state(store, &namespace).await;
    let query = ListQuery { namespace: Some(namespace), ..ListQuery::default() };
    for limit in [1, 2, 3, 5, 100] {
        let seen: Vec<_> = pages(store, query.clone(), limit).await;
        let seen: Vec<_> = seen.iter().map(|record| (record.key, record.state)).collect();
        assert_eq!(seen, made.clone().into_iter().collect::<Vec<_>>(), "pages of {limit}");
    }
}

/// A list can be filtered by state.
pub async fn a_list_filters_by_state(store: &dyn Store, _: &dyn Time) {
    let namespace = namespace();
    let made = one_in_each_state(store, &namespace).await;
    for (key, state) in made {
        let query = ListQuery {
            state: Some(state),
            namespace: Some(namespace.clone()),
            ..ListQuery::default()
        };
        let keys: Vec<_> = list(store, &query).await.iter().map(|record| record.key).collect();
        assert_eq!(keys, [key], "records in {state:?}");
    }
}

/// A list can be filtered by a whole namespace, not by prefix, case or pattern.
pub async fn a_list_filters_by_namespace(store: &dyn Store, _: &dyn Time) {
    let namespace = namespace();
    let mine = labelled(store, &namespace);
    mine.owned().await;
    for other in [format!("{namespace}x"), namespace.to_uppercase(), namespace.replace('-', "_")] {
        labelled(store, &other).owned().await;
    }
    TestOperation::new(store).owned().await;
    let query = ListQuery { namespace: Some(namespace), ..ListQuery::default() };
    let keys: Vec<_> = list(store, &query).await.iter().map(|record| record.key).collect();
    assert_eq!(keys, [mine.key], "records of one namespace");
    let query = ListQuery { namespace: Some("conformance-%".to_owned()), ..query };
    assert_eq!(list(store, &query).await, [], "a namespace is no pattern");
}

/// A list without filters has every record, with and without labels, after a given key.
pub async fn a_list_without_filters_has_everything(store: &dyn Store, _: &dyn Time) {
    let operations = [TestOperation::new(store), labelled(store, &namespace())];
    for operation in operations {
        operation.owned().await;
        let after = Some(just_before(&operation.key));
        let page = list(store, &ListQuery { after, limit: 1, ..ListQuery::default() }).await;
        assert_eq!(page, [operation.record().await], "the next record is ours, and whole");
        let after = Some(operation.key);
        let page = list(store, &ListQuery { after, limit: 1, ..ListQuery::default() }).await;
        assert!(
            page.iter().all(|record| record.key > operation.key),
            "a page begins after its key"
        );
    }
}

/// A page with a limit of zero is empty.
pub async fn a_limit_of_zero_lists_nothing(store: &dyn Store, _: &dyn Time) {
    TestOperation::new(store).owned().await;
    let page = list(store, &ListQuery { limit: 0, ..ListQuery::default() }).await;
    assert_eq!(page, [], "a page of at most nothing");
}

/// Expired records are not listed.
pub async fn expired_records_are_not_listed(store: &dyn Store, time: &dyn Time) {
    let namespace = namespace();
    let (kept, expired) = (labelled(store, &namespace), labelled(store, &namespace));
    kept.completed(&success("done")).await;
    expired.retention(RETENTION).completed(&success("done")).await;
    time.pass(RETENTION).await;
    let query = ListQuery { namespace: Some(namespace), ..ListQuery::default() };
    let keys: Vec<_> = list(store, &query).await.iter().map(|record| record.key).collect();
    assert_eq!(keys, [kept.key], "an expired record was listed");
}

/// A tombstone has no labels, so it is in no namespace. It is still listed.
pub async fn a_tombstone_leaves_its_namespace(store: &dyn Store, _: &dyn Time) {
    let namespace = namespace();
    let operation = labelled(store, &namespace);
    operation.completed(&success("secret")).await;
    operation.erase().await;
    let query = ListQuery { namespace: Some(namespace), ..ListQuery::default() };
    assert_eq!(list(store, &query).await, [], "an erased record is still in its namespace");
    let after = Some(just_before(&operation.key));
    let page = list(store, &ListQuery { after, limit: 1, ..ListQuery::default() }).await;
    assert_eq!(page, [operation.record().await], "a tombstone is listed");
}

/// Statistics count at least the records of the test.
pub async fn statistics_count_our_records(store: &dyn Store, _: &dyn Time) {
    let namespace = namespace();
    for _ in 0..2 {
        one_in_each_state(store, &namespace).await;
    }
    let stats = expect_ok("stats", store.stats().await);
    assert!(stats.records >= 10, "ten records are of this test, {} are counted", stats.records);
    assert!(stats.unknown >= 2, "two unknown ones are of this test, {} are counted", stats.unknown);
    assert!(stats.dead >= 2, "two dead ones are of this test, {} are counted", stats.dead);
}
