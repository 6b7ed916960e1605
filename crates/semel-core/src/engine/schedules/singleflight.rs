//! Single flight, without engine and store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use shuttle::future::spawn;

use super::{LEASE, WAIT, asked};
use crate::{
    ErrorKind, Fingerprint, KeyHash, Outcome, RawAnswer, RunError, StoreDown,
    background::poll_once,
    engine::{
        lease_lost::Lost,
        singleflight::{Boarding, Flights, Landing, Lead, Limits, Seat},
    },
    sync::{Pace, caught, explore, planted_bugs::Bug, yield_now},
};

const ROOMY: Limits = Limits { per_key: 100, in_all: 100 };

fn id(n: u8) -> (KeyHash, Fingerprint) {
    (KeyHash::from_bytes([n; 32]), asked())
}

/// The answer of the n-th flight.
fn answer(n: u32) -> Landing {
    let value = Arc::new(Outcome::success("done"));
    Ok(RawAnswer { value, replayed: false, stored: true, attempt: n })
}

fn led(boarding: Boarding) -> Lead {
    match boarding {
        Boarding::Lead(lead) => lead,
        Boarding::Follow(_) | Boarding::Full => panic!("nobody else is there: this one leads"),
    }
}

fn seated(boarding: Boarding) -> Option<Seat> {
    match boarding {
        Boarding::Follow(seat) => Some(seat),
        Boarding::Full => None,
        Boarding::Lead(_) => panic!("somebody leads already"),
    }
}

/// For those who do not want to hear it again.
fn land(lead: Lead, landing: Landing) {
    drop(lead.land(landing));
}

async fn flights_follow_each_other() {
    let flights = Flights::new(ROOMY);
    let (numbers, leading) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let callers = (0..3).map(|_| {
        let (flights, numbers, leading) = (flights.clone(), numbers.clone(), leading.clone());
        spawn(async move {
            let mut last = 0;
            for _ in 0..2 {
                let landing = match flights.board(id(1)) {
                    Boarding::Lead(lead) => {
                        assert!(!leading.swap(true, SeqCst), "two lead one flight");
                        let landing = answer(numbers.fetch_add(1, SeqCst) + 1);
                        lead.running(LEASE);
                        yield_now().await;
                        leading.store(false, SeqCst);
                        lead.land(landing)
                    }
                    Boarding::Follow(seat) => seat.landing(WAIT).await,
                    Boarding::Full => panic!("there is room"),
                };
                let number = landing.expect("every flight lands").attempt;
                assert!(number > last, "an answer was told to somebody who came after it");
                last = number;
            }
        })
    });
    for caller in join_all(callers).await {
        caller.expect("the caller ends by itself");
    }
}

#[test]
fn one_leads_and_whoever_comes_after_the_answer_starts_the_next_flight() {
    explore(Pace::WhenIdle, flights_follow_each_other);
}

#[test]
fn an_answer_told_before_the_flight_is_off_the_map_is_caught() {
    let says = "an answer was told to somebody who came after it";
    caught(Bug::ToldBeforeOffTheMap, Pace::WhenIdle, says, flights_follow_each_other);
}

/// The lease of a flight is lost: the next one leads while the old one lands, or before it ever does.
async fn an_old_flight_lands_while_the_next_one_leads() {
    let flights = Flights::new(ROOMY);
    let old = led(flights.board(id(1)));
    old.running(LEASE);
    let seat = seated(flights.board(id(1))).expect("there is room");
    let lost = Lost::of(old.listing(), StoreDown::Refuse);
    let leading = Arc::new(AtomicBool::new(false));
    let loses = spawn(async move { lost.fire() });
    let lands = spawn(async move { land(old, answer(1)) });
    let callers = (0..3).map(|_| {
        let (flights, leading) = (flights.clone(), leading.clone());
        spawn(async move {
            match flights.board(id(1)) {
                Boarding::Lead(lead) => {
                    assert!(!leading.swap(true, SeqCst), "two lead the next flight");
                    lead.running(LEASE);
                    yield_now().await;
                    leading.store(false, SeqCst);
                    land(lead, answer(2));
                }
                Boarding::Follow(seat) => {
                    let landing = seat.landing(WAIT).await;
                    assert!(landing.is_ok(), "every flight lands: {landing:?}");
                }
                Boarding::Full => panic!("there is room"),
            }
        })
    });
    for task in callers.chain([loses, lands]).collect::<Vec<_>>() {
        task.await.expect("the task ends by itself");
    }
    let seated = seat.landing(WAIT).await.expect("who is on the old flight stays on it");
    assert_eq!(seated.attempt, 1);
    land(led(flights.board(id(1))), answer(3));
}

#[test]
fn an_old_flight_that_lands_leaves_the_next_one_on_the_map() {
    explore(Pace::WhenIdle, an_old_flight_lands_while_the_next_one_leads);
}

#[test]
fn an_old_flight_that_takes_the_next_one_off_the_map_is_caught() {
    let says = "two lead the next flight";
    let story = an_old_flight_lands_while_the_next_one_leads;
    caught(Bug::NextFlightTakenOff, Pace::WhenIdle, says, story);
}

#[test]
fn everybody_on_a_flight_whose_leader_is_dropped_is_told_whether_work_ran() {
    explore(Pace::WhenIdle, || async {
        let flights = Flights::new(ROOMY);
        let lead = led(flights.board(id(1)));
        let ran = Arc::new(AtomicBool::new(false));
        let followers = (0..3).map(|_| {
            let (flights, ran) = (flights.clone(), ran.clone());
            spawn(async move {
                let seat = match flights.board(id(1)) {
                    Boarding::Follow(seat) => seat,
                    Boarding::Lead(lead) => return land(lead, answer(2)),
                    Boarding::Full => panic!("there is room"),
                };
                match seat.landing(WAIT).await {
                    Err(RunError::Interrupted) => assert!(ran.load(SeqCst)),
                    Err(RunError::Store(error)) => {
                        assert_eq!(error.kind(), ErrorKind::Closed);
                        assert!(!ran.load(SeqCst), "told that nothing ran");
                    }
                    Ok(next) => assert_eq!(next.attempt, 2),
                    Err(other) => panic!("{other:?}"),
                }
            })
        });
        let followers: Vec<_> = followers.collect();
        let runs = shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
        let leader = spawn(async move {
            lead.elsewhere(LEASE);
            if runs {
                ran.store(true, SeqCst);
                lead.running(LEASE);
            }
            drop(lead);
        });
        for task in followers.into_iter().chain([leader]) {
            task.await.expect("the task ends by itself");
        }
        land(led(flights.board(id(1))), answer(3));
    });
}

/// The leader of a flight looks whether anybody is still on it, while somebody boards.
async fn boarding_a_flight_that_is_given_up() {
    let flights = Flights::new(ROOMY);
    let lead = led(flights.board(id(1)));
    lead.elsewhere(LEASE);
    let leader = spawn(async move {
        let mut lead = lead;
        for _ in 0..2 {
            lead = match lead.land_if_empty() {
                Some(lead) => lead,
                None => return,
            };
        }
        land(lead, answer(1));
    });
    let followers = (0..2).map(|_| {
        let flights = flights.clone();
        spawn(async move {
            let landing = match flights.board(id(1)) {
                Boarding::Lead(lead) => return land(lead, answer(2)),
                Boarding::Follow(seat) => seat.landing(WAIT).await,
                Boarding::Full => panic!("there is room"),
            };
            assert!(landing.is_ok(), "a flight was given up with somebody on it: {landing:?}");
        })
    });
    for task in followers.chain([leader]).collect::<Vec<_>>() {
        task.await.expect("the task ends by itself");
    }
}

#[test]
fn a_flight_is_given_up_only_while_nobody_is_on_it() {
    explore(Pace::WhenIdle, boarding_a_flight_that_is_given_up);
}

#[test]
fn a_flight_given_up_without_the_lock_is_caught() {
    let says = "a flight was given up with somebody on it";
    caught(Bug::DesertedWithoutLock, Pace::WhenIdle, says, boarding_a_flight_that_is_given_up);
}

#[test]
fn exactly_as_many_wait_for_one_key_as_may() {
    explore(Pace::WhenIdle, || async {
        let flights = Flights::new(Limits { per_key: 2, ..ROOMY });
        let lead = led(flights.board(id(1)));
        let boarding: Vec<_> = (0..4)
            .map(|_| {
                let flights = flights.clone();
                spawn(async move { seated(flights.board(id(1))) })
            })
            .collect();
        // The leader takes its own seat later, or has left already: neither makes or takes room.
        drop(lead.seat());
        let seats = join_all(boarding).await.into_iter().filter_map(|seat| seat.expect("boards"));
        let seats: Vec<_> = seats.collect();
        assert_eq!(seats.len(), 2);
        let waiting = seats.into_iter().map(|seat| spawn(seat.landing(WAIT))).collect::<Vec<_>>();
        land(lead, answer(1));
        for landing in join_all(waiting).await {
            assert_eq!(landing.expect("the waiter ends by itself").expect("landed").attempt, 1);
        }
    });
}

async fn as_many_wait_in_all_as_may() {
    let flights = Flights::new(Limits { in_all: 2, ..ROOMY });
    let leads: Vec<_> = (1..=4).map(|n| led(flights.board(id(n)))).collect();
    let boarding: Vec<_> = (1..=4)
        .map(|n| {
            let flights = flights.clone();
            spawn(async move { seated(flights.board(id(n))) })
        })
        .collect();
    let seats: Vec<_> = join_all(boarding).await;
    let waiting = seats.iter().filter(|seat| matches!(seat, Ok(Some(_)))).count();
    assert_eq!(waiting, 2, "as many wait as may");
    drop(leads);
}

#[test]
fn exactly_as_many_wait_in_all_as_may() {
    explore(Pace::WhenIdle, as_many_wait_in_all_as_may);
}

#[test]
fn a_cap_that_is_checked_before_counting_is_caught() {
    let says = "as many wait as may";
    caught(Bug::CapCheckedBeforeCounting, Pace::WhenIdle, says, as_many_wait_in_all_as_may);
}

#[test]
fn nobody_is_turned_away_while_there_is_room() {
    explore(Pace::WhenIdle, || async {
        let flights = Flights::new(Limits { in_all: 1, ..ROOMY });
        let _leads = [1, 2].map(|n| led(flights.board(id(n))));
        let stays = spawn({
            let flights = flights.clone();
            async move { seated(flights.board(id(1))) }
        });
        let comes_and_goes = spawn({
            let flights = flights.clone();
            async move {
                drop(seated(flights.board(id(2))));
                // Whoever is there now is the one that stays.
                seated(flights.board(id(2)))
            }
        });
        let seats = [stays.await.expect("boards"), comes_and_goes.await.expect("boards")];
        assert_eq!(seats.iter().flatten().count(), 1, "one place, two who want it");
        drop(seats);
        let [one, other] = [1, 2].map(|n| seated(flights.board(id(n))));
        assert!(one.is_some() && other.is_none(), "the place that was left is there again");
    });
}

/// Two callers, two places for their key: whoever leaves finds its place again.
async fn leaving_and_boarding_again() {
    let flights = Flights::new(Limits { per_key: 2, ..ROOMY });
    let _lead = led(flights.board(id(1)));
    let callers = (0..2).map(|_| {
        let flights = flights.clone();
        spawn(async move {
            for _ in 0..3 {
                let seat = seated(flights.board(id(1))).expect("as many places as before");
                let mut landing = Box::pin(seat.landing(WAIT));
                assert!(poll_once(&mut landing).await.is_pending(), "nobody lands this flight");
            }
        })
    });
    for caller in join_all(callers.collect::<Vec<_>>()).await {
        caller.expect("the caller ends by itself");
    }
    let seats = [(); 3].map(|()| seated(flights.board(id(1))));
    assert_eq!(seats.iter().flatten().count(), 2, "as many places as before");
}

#[test]
fn whoever_leaves_a_flight_makes_room_for_one() {
    explore(Pace::WhenIdle, leaving_and_boarding_again);
}

#[test]
fn a_place_that_is_not_given_back_is_caught() {
    let says = "as many places as before";
    caught(Bug::PlaceNotGivenBack, Pace::WhenIdle, says, leaving_and_boarding_again);
}

#[test]
fn a_place_that_is_given_back_in_two_steps_is_caught() {
    let says = "as many places as before";
    caught(Bug::PlaceGivenBackInTwoSteps, Pace::WhenIdle, says, leaving_and_boarding_again);
}

#[test]
fn a_follower_waits_no_longer_than_it_may() {
    explore(Pace::AtAnyTime, || async {
        let flights = Flights::new(ROOMY);
        let lead = led(flights.board(id(1)));
        let follower = spawn({
            let seat = seated(flights.board(id(1))).expect("there is room");
            seat.landing(WAIT)
        });
        let leader = spawn(async move {
            crate::sync::time::sleep(WAIT - Duration::from_secs(1)).await;
            lead.running(LEASE);
            crate::sync::time::sleep(Duration::from_secs(1)).await;
            land(lead, answer(1));
        });
        match follower.await.expect("the follower ends by itself") {
            Ok(landed) => assert!(landed.attempt == 1 && landed.replayed),
            Err(RunError::Busy { retry_after }) => assert!(retry_after <= LEASE),
            Err(other) => panic!("{other:?}"),
        }
        leader.await.expect("the leader ends by itself");
    });
}
