//! Prints a counterexample: one line per action, with the record afterwards.

use std::fmt::Write;

use semel_core::{Record, State};

use crate::{
    ProtocolRule,
    action::{Action, MessageDelivery},
    request,
    world::{LateMessage, Verb, WorldState},
};

const NAMES: [&str; 3] = ["A", "B", "C"];

pub(crate) fn describe(path: &[(WorldState, Option<Action>)]) -> String {
    let mut text = String::new();
    for ((before, action), (world, _)) in path.iter().zip(path.iter().skip(1)) {
        let Some(action) = action else { continue };
        let record =
            world.record.as_ref().map_or("no record".into(), |it| describe_record(it, world));
        let _ =
            writeln!(text, "  {:>2}  {:<50} {record}", world.now, describe_action(*action, before));
    }
    if let Some((world, _)) = path.last() {
        for rule in ProtocolRule::ALL.iter().filter(|rule| world.broken.has(**rule)) {
            let _ = writeln!(text, "  broken: {rule}");
        }
    }
    text
}

fn describe_action(action: Action, before: &WorldState) -> String {
    match action {
        Action::Tick => "a tick passes".into(),
        Action::Claim(worker, delivery) => {
            format!("{} claims{}", NAMES[worker], delivery_suffix(delivery))
        }
        Action::Run(worker) => format!("{} does the work", NAMES[worker]),
        Action::Owner(worker, verb, delivery) => {
            format!("{} {}{}", NAMES[worker], verb_words(verb), delivery_suffix(delivery))
        }
        Action::Crash(worker) => format!("{} crashes", NAMES[worker]),
        Action::Arrive(place) => before.wire[place].map_or("nothing arrives".into(), late),
        Action::Look => "the operator looks".into(),
        Action::Decide(choice) => format!("the operator decides: {choice:?}"),
        Action::Erase => "the operator erases".into(),
        Action::Forget => "the operator forgets".into(),
        Action::Purge => "purge".into(),
        Action::Lose => "the store loses the record".into(),
    }
}

fn late(message: LateMessage) -> String {
    let (worker, what) = match message {
        LateMessage::Claim { worker, .. } => (worker, "claims"),
        LateMessage::Owner { worker, verb, .. } => (worker, verb_words(verb)),
    };
    format!("arrives late: {} {what}", NAMES[usize::from(worker)])
}

const fn verb_words(verb: Verb) -> &'static str {
    match verb {
        Verb::Renew => "renews",
        Verb::Complete => "completes",
        Verb::NoEffect => "releases: nothing happened",
        Verb::Retry => "releases: try again",
        Verb::Abandon => "abandons",
    }
}

const fn delivery_suffix(delivery: MessageDelivery) -> &'static str {
    match delivery {
        MessageDelivery::Answered => "",
        MessageDelivery::Unanswered => ", the answer is lost",
        MessageDelivery::Late => ", the message is late",
    }
}

fn describe_record(record: &Record, world: &WorldState) -> String {
    let nonce = record.nonce.map_or("-".into(), |nonce| request::from_nonce(nonce).to_string());
    let mut text = format!("{:?} nonce {nonce} token {}", record.state, record.token);
    if record.state == State::InProgress {
        let _ = write!(text, " until {}", record.lease_until.as_millis());
    }
    if record.is_expired(world.time()) {
        text.push_str(", expired");
    }
    text
}
