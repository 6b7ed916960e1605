//! A counterexample as a story: one line per action, with what the store keeps afterwards.

use std::fmt::Write;

use semel_core::{Record, State};

use crate::{
    Rule,
    action::{Action, Delivery},
    request,
    world::{Message, Verb, World},
};

const NAMES: [&str; 3] = ["A", "B", "C"];

pub(crate) fn tell(path: &[(World, Option<Action>)]) -> String {
    let mut story = String::new();
    for ((before, action), (world, _)) in path.iter().zip(path.iter().skip(1)) {
        let Some(action) = action else { continue };
        let record = world.record.as_ref().map_or("no record".into(), |it| standing(it, world));
        let _ = writeln!(story, "  {:>2}  {:<50} {record}", world.now, words(*action, before));
    }
    if let Some((world, _)) = path.last() {
        for rule in Rule::ALL.iter().filter(|rule| world.broken.has(**rule)) {
            let _ = writeln!(story, "  broken: {rule}");
        }
    }
    story
}

fn words(action: Action, before: &World) -> String {
    match action {
        Action::Tick => "a tick passes".into(),
        Action::Claim(worker, way) => format!("{} claims{}", NAMES[worker], fate(way)),
        Action::Run(worker) => format!("{} does the work", NAMES[worker]),
        Action::Owner(worker, verb, way) => {
            format!("{} {}{}", NAMES[worker], verb_words(verb), fate(way))
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

fn late(message: Message) -> String {
    let (worker, what) = match message {
        Message::Claim { worker, .. } => (worker, "claims"),
        Message::Owner { worker, verb, .. } => (worker, verb_words(verb)),
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

const fn fate(way: Delivery) -> &'static str {
    match way {
        Delivery::Answered => "",
        Delivery::Unanswered => ", the answer is lost",
        Delivery::Late => ", the message is late",
    }
}

fn standing(record: &Record, world: &World) -> String {
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
