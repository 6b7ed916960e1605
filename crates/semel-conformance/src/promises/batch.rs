//! The steps in batches: as if called one after the other, each key on its own.

use std::{collections::HashSet, iter, time::Duration};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, Current, Effect, Owner, Release,
    ReleaseRequest, RenewRequest, Renewal, Result, State, Store,
};

use crate::{
    Time,
    work::{LONG, Work, other_nonce, said, sure},
};

fn all<T>(step: &str, answers: Vec<Result<T>>) -> Vec<T> {
    answers.into_iter().map(|answer| sure(step, answer)).collect()
}

async fn claim_many(store: &dyn Store, requests: &[ClaimRequest]) -> Vec<Claim> {
    let answers = all("claim_many", store.claim_many(requests).await);
    assert_eq!(answers.len(), requests.len(), "one answer for each request");
    answers
}

async fn owners(works: &[Work<'_>]) -> Vec<Owner> {
    let mut owners = Vec::new();
    for work in works {
        owners.push(work.owned().await);
    }
    owners
}

fn works(store: &dyn Store, count: usize) -> Vec<Work<'_>> {
    iter::repeat_with(|| Work::new(store)).take(count).collect()
}

/// Claims are answered in the order they were asked, whatever their keys' order is.
pub async fn claims_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let works = works(store, 300);
    let requests: Vec<_> = works.iter().map(Work::request).collect();
    for (request, answer) in requests.iter().zip(claim_many(store, &requests).await) {
        let Claim::Granted(lease) = answer else { panic!("a first claim was {answer:?}") };
        assert_eq!(lease.owner.key, request.key, "an answer went to another key's claim");
        assert_eq!(lease.owner.nonce, request.nonce, "an answer went to another claim");
    }
    for work in &works[..10] {
        assert_eq!(work.record().await.state, State::InProgress, "granted, but not written");
    }
}

/// In one batch each key is answered for itself; a refusal does not spoil its neighbours.
pub async fn a_refused_claim_spoils_no_neighbour(store: &dyn Store, _: &dyn Time) {
    let [done, busy, unknown, fresh, pinned] = [
        Work::new(store),
        Work::new(store),
        Work::new(store).hold(),
        Work::new(store),
        Work::new(store),
    ];
    done.completed(&said("done")).await;
    busy.owned().await;
    unknown.unknown().await;
    pinned.owned().await;
    let requests = [
        done.request(),
        pinned.other().request(),
        fresh.request(),
        busy.request(),
        unknown.request(),
    ];
    let answers = claim_many(store, &requests).await;
    assert!(matches!(answers[0], Claim::Replay(_)), "completed: {:?}", answers[0]);
    assert_eq!(answers[1], Claim::Mismatch, "pinned to something else");
    assert!(matches!(answers[2], Claim::Granted(_)), "fresh: {:?}", answers[2]);
    assert!(matches!(answers[3], Claim::Busy { .. }), "owned: {:?}", answers[3]);
    assert_eq!(answers[4], Claim::Unknown, "on hold");
}

/// Two claims of one key in one batch: the first is granted, the second waits.
pub async fn of_twins_in_a_batch_one_is_granted(store: &dyn Store, _: &dyn Time) {
    let (work, between) = (Work::new(store), Work::new(store));
    let requests = [work.request(), between.request(), work.request(), work.other().request()];
    let answers = claim_many(store, &requests).await;
    let Claim::Granted(lease) = &answers[0] else { panic!("the first twin: {:?}", answers[0]) };
    assert_eq!(lease.owner.nonce, requests[0].nonce, "the first twin is the owner");
    assert!(matches!(answers[1], Claim::Granted(_)), "between twins: {:?}", answers[1]);
    assert!(matches!(answers[2], Claim::Busy { .. }), "the second twin: {:?}", answers[2]);
    assert_eq!(answers[3], Claim::Mismatch, "a twin that asks for something else");
    assert_eq!(work.record().await.attempts, 1, "one twin ran");
}

/// One claim twice in one batch is one grant.
pub async fn a_claim_twice_in_a_batch_is_one_grant(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let request = work.request();
    let answers = claim_many(store, &[request.clone(), request]).await;
    assert!(matches!(answers[0], Claim::Granted(_)), "the first copy: {:?}", answers[0]);
    assert_eq!(answers[0], answers[1], "two copies of one claim are one grant");
    assert_eq!(work.record().await.attempts, 1, "a copy is no attempt");
}

/// Claims of one key in one batch: each meets what those before it left behind.
pub async fn a_claim_meets_what_its_twin_left(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store).cap(1);
    let owner = work.owned().await;
    work.abandon(owner, Duration::ZERO).await;
    let late = ClaimRequest { nonce: owner.nonce, ..work.request() };
    let answers = claim_many(store, &[work.request(), late]).await;
    assert_eq!(answers, [Claim::Dead, Claim::Dead], "the first twin used up the last attempt");
    let work = Work::new(store);
    let owner = work.released(Effect::None).await;
    let late = ClaimRequest { nonce: owner.nonce, ..work.request() };
    let answers = claim_many(store, &[work.request(), late]).await;
    assert!(matches!(answers[0], Claim::Granted(_)), "a released key: {:?}", answers[0]);
    assert!(matches!(answers[1], Claim::Busy { .. }), "behind its new owner: {:?}", answers[1]);
}

/// Renewals in a batch: owners are extended, strangers are not.
pub async fn renewals_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let works = works(store, 4);
    let mut owners = owners(&works).await;
    owners[1] = other_nonce(owners[1]);
    owners[2].key = Work::new(store).key;
    owners.push(owners[0]);
    let renew = |&owner: &Owner| RenewRequest { owner, max_run: LONG };
    let requests: Vec<_> = owners.iter().map(renew).collect();
    let answers = all("renew_many", store.renew_many(&requests).await);
    let (extended, lost) = (Renewal::Extended, Renewal::Lost);
    assert_eq!(answers, [extended, lost, lost, extended, extended], "answers in order");
}

/// Completions in a batch: each key for itself, the first outcome of a key stands.
pub async fn completions_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let works = works(store, 3);
    let mut owners = owners(&works).await;
    owners[1] = other_nonce(owners[1]);
    owners.push(owners[0]);
    owners.push(Owner { key: Work::new(store).key, ..owners[0] });
    let texts = ["first", "stranger", "other", "second", "nobody"];
    let complete = |(&owner, text)| CompleteRequest { owner, outcome: said(text) };
    let requests: Vec<_> = owners.iter().zip(texts).map(complete).collect();
    let answers = all("complete_many", store.complete_many(&requests).await);
    assert_eq!(answers.len(), requests.len(), "one answer for each request");
    let superseded = matches!(answers[1], Completion::Superseded(Current::InProgress { .. }));
    assert!(superseded, "a stranger: {:?}", answers[1]);
    for recorded in [0, 2, 3] {
        assert_eq!(answers[recorded], Completion::Recorded, "answer {recorded}");
    }
    assert_eq!(answers[4], Completion::Missing, "a key without a record");
    assert_eq!(works[0].record().await.outcome, Some(said("first")), "the first outcome stands");
    assert_eq!(works[1].record().await.outcome, None, "a stranger's outcome was recorded");
    assert_eq!(works[2].record().await.outcome, Some(said("other")), "a neighbour's outcome");
}

/// Releases in a batch: each key for itself, and each with its own effect.
pub async fn releases_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let works = [Work::new(store), Work::new(store), Work::new(store).hold(), Work::new(store)];
    let mut owners = owners(&works).await;
    owners[3] = other_nonce(owners[3]);
    owners.push(owners[0]);
    let effects =
        [Effect::None, Effect::Possible, Effect::Possible, Effect::None, Effect::Possible];
    let release = |(&owner, effect)| ReleaseRequest { owner, effect };
    let requests: Vec<_> = owners.iter().zip(effects).map(release).collect();
    let answers = all("release_many", store.release_many(&requests).await);
    assert_eq!(answers.len(), requests.len(), "one answer for each request");
    assert_eq!(answers[..3], [Release::Open, Release::Open, Release::Unknown], "the owners");
    let superseded = matches!(answers[3], Release::Superseded(Current::InProgress { .. }));
    assert!(superseded, "a stranger: {:?}", answers[3]);
    assert_eq!(answers[4], Release::Superseded(Current::Open), "released already");
    assert_eq!(works[0].record().await.fingerprint, None, "no effect unpins");
    assert!(works[1].record().await.fingerprint.is_some(), "a retry stays pinned");
}

/// An empty batch has no answers.
pub async fn an_empty_batch_is_answered(store: &dyn Store, _: &dyn Time) {
    assert!(store.claim_many(&[]).await.is_empty(), "answers to no claims");
    assert!(store.renew_many(&[]).await.is_empty(), "answers to no renewals");
    assert!(store.complete_many(&[]).await.is_empty(), "answers to no completions");
    assert!(store.release_many(&[]).await.is_empty(), "answers to no releases");
}

/// A whole life in batches: claimed, renewed, completed, replayed.
pub async fn a_batch_lives_like_single_steps(store: &dyn Store, _: &dyn Time) {
    let works = works(store, 50);
    let claims: Vec<_> = works.iter().map(Work::request).collect();
    let owner = |claim| match claim {
        Claim::Granted(lease) => lease.owner,
        answer => panic!("a first claim was {answer:?}"),
    };
    let owners: Vec<Owner> = claim_many(store, &claims).await.into_iter().map(owner).collect();
    let renew = |&owner: &Owner| RenewRequest { owner, max_run: LONG };
    let renewals: Vec<_> = owners.iter().map(renew).collect();
    let renewed = all("renew_many", store.renew_many(&renewals).await);
    assert_eq!(HashSet::from_iter(renewed), HashSet::from([Renewal::Extended]), "all renewed");
    let complete = |&owner: &Owner| CompleteRequest { owner, outcome: said("done") };
    let completions: Vec<_> = owners.iter().map(complete).collect();
    for answer in all("complete_many", store.complete_many(&completions).await) {
        assert_eq!(answer, Completion::Recorded, "all recorded");
    }
    let again: Vec<_> = works.iter().map(Work::request).collect();
    for answer in claim_many(store, &again).await {
        assert!(matches!(answer, Claim::Replay(_)), "completed, but {answer:?}");
    }
}
