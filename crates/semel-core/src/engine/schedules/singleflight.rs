//! Singleflight alone, without an engine and a store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use shuttle::future::spawn;

use super::{LEASE, WAIT, fingerprint};
use crate::{
    ErrorKind, Fingerprint, KeyHash, Outcome, RawAnswer, RunError, StoreDown,
    background::poll_once,
    engine::{
        lease_lost::LeaseLost,
        singleflight::{
            CallResult, CallRole, FollowerLimits, InFlightCalls, Leader, ResultReceiver,
        },
    },
    sync::{TimeAdvances, assert_bug_found, explore, planted_bugs::ScheduleBug, yield_now},
};

const NO_LIMITS: FollowerLimits = FollowerLimits { per_key: 100, in_all: 100 };

fn id(n: u8) -> (KeyHash, Fingerprint) {
    (KeyHash::from_bytes([n; 32]), fingerprint())
}

/// The result of the n-th call.
fn answer(n: u32) -> CallResult {
    let value = Arc::new(Outcome::success("done"));
    Ok(RawAnswer { value, replayed: false, stored: true, attempt: n })
}

fn leader_of(role: CallRole) -> Leader {
    match role {
        CallRole::Leader(leader) => leader,
        CallRole::Follower(_) | CallRole::TooManyFollowers => {
            panic!("no other call is in flight: this caller leads")
        }
    }
}

/// `None`: too many callers follow already.
fn follower_of(role: CallRole) -> Option<ResultReceiver> {
    match role {
        CallRole::Follower(receiver) => Some(receiver),
        CallRole::TooManyFollowers => None,
        CallRole::Leader(_) => panic!("another caller leads already"),
    }
}

/// Finishes the call and ignores its result.
fn finish(leader: Leader, result: CallResult) {
    drop(leader.finish(result));
}

async fn calls_follow_each_other() {
    let calls = InFlightCalls::new(NO_LIMITS);
    let (numbers, leading) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let callers = (0..3).map(|_| {
        let (calls, numbers, leading) = (calls.clone(), numbers.clone(), leading.clone());
        spawn(async move {
            let mut last = 0;
            for _ in 0..2 {
                let result = match calls.join(id(1)) {
                    CallRole::Leader(leader) => {
                        assert!(!leading.swap(true, SeqCst), "two callers lead one call");
                        let result = answer(numbers.fetch_add(1, SeqCst) + 1);
                        leader.set_running(LEASE);
                        yield_now().await;
                        leading.store(false, SeqCst);
                        leader.finish(result)
                    }
                    CallRole::Follower(receiver) => receiver.result(WAIT).await,
                    CallRole::TooManyFollowers => panic!("the limits allow a follower"),
                };
                let number = result.expect("every call has a result").attempt;
                assert!(number > last, "a caller got a result from before it joined");
                last = number;
            }
        })
    });
    for caller in join_all(callers).await {
        caller.expect("the caller ends by itself");
    }
}

#[test]
fn one_caller_leads_and_a_caller_after_the_result_starts_the_next_call() {
    explore(TimeAdvances::WhenIdle, calls_follow_each_other);
}

#[test]
fn a_result_sent_before_its_entry_is_removed_is_found() {
    let message = "a caller got a result from before it joined";
    assert_bug_found(
        ScheduleBug::ResultSentBeforeEntryRemoved,
        TimeAdvances::WhenIdle,
        message,
        calls_follow_each_other,
    );
}

/// The lease of a call is lost: the next call starts while the old one finishes, or before that.
async fn an_old_call_finishes_while_the_next_one_is_in_flight() {
    let calls = InFlightCalls::new(NO_LIMITS);
    let old = leader_of(calls.join(id(1)));
    old.set_running(LEASE);
    let receiver = follower_of(calls.join(id(1))).expect("the limits allow a follower");
    let lost = LeaseLost::new(old.entry(), StoreDown::Refuse);
    let leading = Arc::new(AtomicBool::new(false));
    let loses_lease = spawn(async move { lost.fire() });
    let finishes = spawn(async move { finish(old, answer(1)) });
    let callers = (0..3).map(|_| {
        let (calls, leading) = (calls.clone(), leading.clone());
        spawn(async move {
            match calls.join(id(1)) {
                CallRole::Leader(leader) => {
                    assert!(!leading.swap(true, SeqCst), "two callers lead the next call");
                    leader.set_running(LEASE);
                    yield_now().await;
                    leading.store(false, SeqCst);
                    finish(leader, answer(2));
                }
                CallRole::Follower(receiver) => {
                    let result = receiver.result(WAIT).await;
                    assert!(result.is_ok(), "every call has a result: {result:?}");
                }
                CallRole::TooManyFollowers => panic!("the limits allow a follower"),
            }
        })
    });
    for task in callers.chain([loses_lease, finishes]).collect::<Vec<_>>() {
        task.await.expect("the task ends by itself");
    }
    let result = receiver.result(WAIT).await.expect("a follower of the old call gets its result");
    assert_eq!(result.attempt, 1);
    finish(leader_of(calls.join(id(1))), answer(3));
}

#[test]
fn an_old_call_that_finishes_leaves_the_entry_of_the_next_one() {
    explore(TimeAdvances::WhenIdle, an_old_call_finishes_while_the_next_one_is_in_flight);
}

#[test]
fn an_old_call_that_removes_the_entry_of_the_next_one_is_found() {
    let message = "two callers lead the next call";
    let scenario = an_old_call_finishes_while_the_next_one_is_in_flight;
    assert_bug_found(
        ScheduleBug::EntryOfNextCallRemoved,
        TimeAdvances::WhenIdle,
        message,
        scenario,
    );
}

#[test]
fn followers_of_a_dropped_leader_learn_whether_the_work_ran() {
    explore(TimeAdvances::WhenIdle, || async {
        let calls = InFlightCalls::new(NO_LIMITS);
        let leader = leader_of(calls.join(id(1)));
        let ran = Arc::new(AtomicBool::new(false));
        let followers = (0..3).map(|_| {
            let (calls, ran) = (calls.clone(), ran.clone());
            spawn(async move {
                let receiver = match calls.join(id(1)) {
                    CallRole::Follower(receiver) => receiver,
                    CallRole::Leader(leader) => return finish(leader, answer(2)),
                    CallRole::TooManyFollowers => panic!("the limits allow a follower"),
                };
                match receiver.result(WAIT).await {
                    Err(RunError::Interrupted) => assert!(ran.load(SeqCst)),
                    Err(RunError::Store(error)) => {
                        assert_eq!(error.kind(), ErrorKind::Closed);
                        assert!(!ran.load(SeqCst), "the error says that no work ran");
                    }
                    Ok(next) => assert_eq!(next.attempt, 2),
                    Err(other) => panic!("{other:?}"),
                }
            })
        });
        let followers: Vec<_> = followers.collect();
        let runs = shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
        let leader = spawn(async move {
            leader.set_owned_elsewhere(LEASE);
            if runs {
                ran.store(true, SeqCst);
                leader.set_running(LEASE);
            }
            drop(leader);
        });
        for task in followers.into_iter().chain([leader]) {
            task.await.expect("the task ends by itself");
        }
        finish(leader_of(calls.join(id(1))), answer(3));
    });
}

/// The leader checks whether a caller still waits, while another caller joins.
async fn joining_a_call_that_is_abandoned() {
    let calls = InFlightCalls::new(NO_LIMITS);
    let leader = leader_of(calls.join(id(1)));
    leader.set_owned_elsewhere(LEASE);
    let leader = spawn(async move {
        let mut leader = leader;
        for _ in 0..2 {
            leader = match leader.finish_if_abandoned() {
                Some(leader) => leader,
                None => return,
            };
        }
        finish(leader, answer(1));
    });
    let followers = (0..2).map(|_| {
        let calls = calls.clone();
        spawn(async move {
            let result = match calls.join(id(1)) {
                CallRole::Leader(leader) => return finish(leader, answer(2)),
                CallRole::Follower(receiver) => receiver.result(WAIT).await,
                CallRole::TooManyFollowers => panic!("the limits allow a follower"),
            };
            assert!(result.is_ok(), "a call with a follower was abandoned: {result:?}");
        })
    });
    for task in followers.chain([leader]).collect::<Vec<_>>() {
        task.await.expect("the task ends by itself");
    }
}

#[test]
fn a_call_is_abandoned_only_while_no_caller_waits_for_it() {
    explore(TimeAdvances::WhenIdle, joining_a_call_that_is_abandoned);
}

#[test]
fn a_call_abandoned_without_the_lock_is_found() {
    let message = "a call with a follower was abandoned";
    assert_bug_found(
        ScheduleBug::AbandonedCheckedWithoutLock,
        TimeAdvances::WhenIdle,
        message,
        joining_a_call_that_is_abandoned,
    );
}

#[test]
fn exactly_as_many_callers_follow_one_key_as_allowed() {
    explore(TimeAdvances::WhenIdle, || async {
        let calls = InFlightCalls::new(FollowerLimits { per_key: 2, ..NO_LIMITS });
        let leader = leader_of(calls.join(id(1)));
        let joining: Vec<_> = (0..4)
            .map(|_| {
                let calls = calls.clone();
                spawn(async move { follower_of(calls.join(id(1))) })
            })
            .collect();
        // A receiver of the leader itself does not count as a follower.
        drop(leader.subscribe());
        let receivers =
            join_all(joining).await.into_iter().filter_map(|receiver| receiver.expect("joins"));
        let receivers: Vec<_> = receivers.collect();
        assert_eq!(receivers.len(), 2);
        let waiting =
            receivers.into_iter().map(|receiver| spawn(receiver.result(WAIT))).collect::<Vec<_>>();
        finish(leader, answer(1));
        for result in join_all(waiting).await {
            assert_eq!(result.expect("the waiter ends by itself").expect("finished").attempt, 1);
        }
    });
}

async fn as_many_callers_follow_all_keys_as_allowed() {
    let calls = InFlightCalls::new(FollowerLimits { in_all: 2, ..NO_LIMITS });
    let leaders: Vec<_> = (1..=4).map(|n| leader_of(calls.join(id(n)))).collect();
    let joining: Vec<_> = (1..=4)
        .map(|n| {
            let calls = calls.clone();
            spawn(async move { follower_of(calls.join(id(n))) })
        })
        .collect();
    let receivers: Vec<_> = join_all(joining).await;
    let waiting = receivers.iter().filter(|receiver| matches!(receiver, Ok(Some(_)))).count();
    assert_eq!(waiting, 2, "as many callers follow as allowed");
    drop(leaders);
}

#[test]
fn exactly_as_many_callers_follow_all_keys_as_allowed() {
    explore(TimeAdvances::WhenIdle, as_many_callers_follow_all_keys_as_allowed);
}

#[test]
fn a_limit_that_is_checked_before_counting_is_found() {
    let message = "as many callers follow as allowed";
    assert_bug_found(
        ScheduleBug::FollowerLimitCheckedBeforeCounting,
        TimeAdvances::WhenIdle,
        message,
        as_many_callers_follow_all_keys_as_allowed,
    );
}

#[test]
fn no_caller_is_refused_while_the_limits_allow_it() {
    explore(TimeAdvances::WhenIdle, || async {
        let calls = InFlightCalls::new(FollowerLimits { in_all: 1, ..NO_LIMITS });
        let _leaders = [1, 2].map(|n| leader_of(calls.join(id(n))));
        let stays = spawn({
            let calls = calls.clone();
            async move { follower_of(calls.join(id(1))) }
        });
        let comes_and_goes = spawn({
            let calls = calls.clone();
            async move {
                drop(follower_of(calls.join(id(2))));
                // If this caller is refused now, the slot belongs to the other one.
                follower_of(calls.join(id(2)))
            }
        });
        let receivers = [stays.await.expect("joins"), comes_and_goes.await.expect("joins")];
        assert_eq!(receivers.iter().flatten().count(), 1, "one slot for two callers");
        drop(receivers);
        let [one, other] = [1, 2].map(|n| follower_of(calls.join(id(n))));
        assert!(one.is_some() && other.is_none(), "a returned slot can be used again");
    });
}

/// Two callers, two slots for their key: a caller that leaves and joins again gets a slot.
async fn leaving_and_joining_again() {
    let calls = InFlightCalls::new(FollowerLimits { per_key: 2, ..NO_LIMITS });
    let _lead = leader_of(calls.join(id(1)));
    let callers = (0..2).map(|_| {
        let calls = calls.clone();
        spawn(async move {
            for _ in 0..3 {
                let receiver = follower_of(calls.join(id(1))).expect("as many slots as before");
                let mut result = Box::pin(receiver.result(WAIT));
                assert!(poll_once(&mut result).await.is_pending(), "this call does not finish");
            }
        })
    });
    for caller in join_all(callers.collect::<Vec<_>>()).await {
        caller.expect("the caller ends by itself");
    }
    let receivers = [(); 3].map(|()| follower_of(calls.join(id(1))));
    assert_eq!(receivers.iter().flatten().count(), 2, "as many slots as before");
}

#[test]
fn a_follower_that_leaves_returns_its_slot() {
    explore(TimeAdvances::WhenIdle, leaving_and_joining_again);
}

#[test]
fn a_slot_that_is_not_returned_is_found() {
    let message = "as many slots as before";
    assert_bug_found(
        ScheduleBug::FollowerSlotNotReturned,
        TimeAdvances::WhenIdle,
        message,
        leaving_and_joining_again,
    );
}

#[test]
fn a_slot_that_is_returned_in_two_steps_is_found() {
    let message = "as many slots as before";
    assert_bug_found(
        ScheduleBug::FollowerSlotReturnedInTwoSteps,
        TimeAdvances::WhenIdle,
        message,
        leaving_and_joining_again,
    );
}

#[test]
fn a_follower_waits_no_longer_than_its_limit() {
    explore(TimeAdvances::AtAnyTime, || async {
        let calls = InFlightCalls::new(NO_LIMITS);
        let leader = leader_of(calls.join(id(1)));
        let follower = spawn({
            let receiver = follower_of(calls.join(id(1))).expect("the limits allow a follower");
            receiver.result(WAIT)
        });
        let leader = spawn(async move {
            crate::sync::time::sleep(WAIT - Duration::from_secs(1)).await;
            leader.set_running(LEASE);
            crate::sync::time::sleep(Duration::from_secs(1)).await;
            finish(leader, answer(1));
        });
        match follower.await.expect("the follower ends by itself") {
            Ok(answer) => assert!(answer.attempt == 1 && answer.replayed),
            Err(RunError::Busy { retry_after }) => assert!(retry_after <= LEASE),
            Err(other) => panic!("{other:?}"),
        }
        leader.await.expect("the leader ends by itself");
    });
}
