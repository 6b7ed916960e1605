//! Everything that is known about one key.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{Evidence, Rules, TOLERANCE, Violation, invariant::Invariant};
use crate::{
    event::{Answer, Detail, Event, Hex, Kind, Op, SERVER_KILL},
    key::KeyId,
    ledger::Entry,
    load::Dumped,
};

/// A call and how it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) begin: &'a Event,
    pub(super) end: Option<&'a Event>,
}

impl<'a> Call<'a> {
    pub(super) const fn op(&self) -> Op {
        self.begin.op
    }

    pub(super) const fn invoked(&self) -> u64 {
        self.begin.t_mono
    }

    /// What was told, unless the call is open.
    pub(super) fn told(&self) -> Option<&'a Event> {
        self.end.filter(|end| end.r#type != Kind::Info)
    }

    pub(super) fn answer(&self) -> Option<Answer> {
        self.told().and_then(|end| end.detail.answer)
    }

    /// When it had ended; open calls never do.
    pub(super) fn ended(&self) -> Option<u64> {
        self.told().map(|end| end.t_mono)
    }

    pub(super) const fn nonce(&self) -> Option<Hex> {
        self.begin.detail.nonce
    }

    /// The outcome that was asked to be recorded, or that was told.
    pub(super) fn digest(&self) -> Option<Hex> {
        self.told().and_then(|end| end.detail.digest).or(self.begin.detail.digest)
    }
}

/// A claim that was granted, as its owner knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) nonce: Hex,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) fingerprint: Option<u8>,
    pub(super) process: u32,
    pub(super) invoked: u64,
    pub(super) ended: u64,
    /// Which life of the record, where retention lets it have several.
    pub(super) life: u32,
}

/// Everything that is known about one key.
#[derive(Debug)]
pub(super) struct Story<'a> {
    pub(super) key: KeyId,
    pub(super) calls: Vec<Call<'a>>,
    pub(super) grants: Vec<Grant>,
    pub(super) ledger: Vec<&'a Entry>,
    pub(super) dump: Option<&'a Dumped>,
    pub(super) dumped_at: u64,
    pub(super) rules: Rules,
    pub(super) deaths: Rc<HashMap<u32, u64>>,
    pub(super) births: Rc<HashMap<u32, u64>>,
    /// When the server was known to be gone, in order.
    pub(super) server_deaths: Rc<[u64]>,
}

impl<'a> Story<'a> {
    pub(super) fn of(&self, op: Op) -> impl Iterator<Item = &Call<'a>> {
        self.calls.iter().filter(move |call| call.op() == op)
    }

    pub(super) fn broken(&self, invariant: Invariant, what: impl Into<String>) -> Violation {
        Violation::new(invariant, Some(self.key), what.into())
    }

    pub(super) fn kept(&self) -> Option<u64> {
        kept(self.key)
    }

    pub(super) fn dumped(&self) -> Option<&'a Detail> {
        self.dump.map(|dumped| &dumped.record)
    }

    /// True when an operator may have forgotten or erased the key.
    pub(super) fn is_operated(&self) -> bool {
        let refused = [Some(Answer::Missing), Some(Answer::Refused)];
        let operator = |call: &Call<'_>| matches!(call.op(), Op::Forget | Op::Erase);
        self.calls.iter().any(|call| operator(call) && !refused.contains(&call.answer()))
    }

    /// True when the key may have been forgotten between two grants.
    pub(super) fn is_forgotten(&self, last: &Grant, next: &Grant) -> bool {
        is_forgotten(&self.calls, last, next)
    }

    /// The grant that a pair belongs to.
    pub(super) fn grant(&self, nonce: Hex, token: u64) -> Option<&Grant> {
        self.grants.iter().find(|grant| (grant.nonce, grant.token) == (nonce, token))
    }

    /// The grant under which an owner's step was called.
    pub(super) fn owner(&self, call: &Call<'_>) -> Option<&Grant> {
        self.grant(call.nonce()?, call.begin.detail.token?)
    }

    /// True when the process of `one` was gone before that of `other` had opened the store.
    pub(super) fn died_before_opening(&self, one: &Call<'_>, other: &Call<'_>) -> bool {
        let death = self.deaths.get(&one.begin.process);
        death.zip(self.births.get(&other.begin.process)).is_some_and(|(death, birth)| death < birth)
    }

    /// Adds what is known of the key, so that the report can be read alone.
    pub(super) fn told(&self, mut violation: Violation) -> Violation {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for call in &self.calls {
            lines.push((call.begin.t_mono, call.begin.to_string()));
            lines.extend(call.end.map(|end| (end.t_mono, end.to_string())));
        }
        lines.extend(self.ledger.iter().map(|entry| (entry.t_mono, ledger_line(entry))));
        lines.sort_by_key(|(at, _)| *at);
        violation.lines = lines.into_iter().map(|(_, line)| line).collect();
        let dump = self.dumped().map_or_else(|| "absent".to_owned(), ToString::to_string);
        violation.lines.push(format!("  dump {dump}"));
        violation
    }
}

/// How long a record is sure to be kept after it was written, if a run can see its end.
pub(super) fn kept(key: KeyId) -> Option<u64> {
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    key.class().retention().map(|span| micros(span).saturating_sub(TOLERANCE))
}

fn ledger_line(entry: &Entry) -> String {
    let Entry { t_mono, process, token, attempt, fingerprint, nonce, what, .. } = entry;
    let (ms, us) = (t_mono / 1000 % 10_000_000, t_mono % 1000);
    format!(
        " ledger {ms:>7}.{us:03} p{process:<5}{what:?} token={token} attempt={attempt} fp={fingerprint} nonce={nonce}"
    )
}

/// The stories of all keys.
pub(super) fn stories(evidence: &Evidence) -> Vec<Story<'_>> {
    let deaths = Rc::new(deaths(&evidence.events));
    let births = Rc::new(births(&evidence.events));
    let server_deaths = server_deaths(&evidence.events);
    let mut stories: BTreeMap<KeyId, Story<'_>> = BTreeMap::new();
    let blank = |key| Story {
        key,
        calls: Vec::new(),
        grants: Vec::new(),
        ledger: Vec::new(),
        dump: None,
        dumped_at: evidence.dumped_at,
        rules: evidence.rules,
        deaths: deaths.clone(),
        births: births.clone(),
        server_deaths: server_deaths.clone(),
    };
    for call in calls(&evidence.events) {
        if let Some(key) = call.begin.detail.key {
            stories.entry(key).or_insert_with(|| blank(key)).calls.push(call);
        }
    }
    for entry in &evidence.ledger {
        stories.entry(entry.key).or_insert_with(|| blank(entry.key)).ledger.push(entry);
    }
    for dumped in &evidence.dump {
        if let Some(key) = dumped.record.key {
            stories.entry(key).or_insert_with(|| blank(key)).dump = Some(dumped);
        }
    }
    let mut stories: Vec<_> = stories.into_values().collect();
    for story in &mut stories {
        story.grants = grants(&story.calls, story.kept());
    }
    stories
}

/// When the harness knew a process to be gone.
fn deaths(events: &[Event]) -> HashMap<u32, u64> {
    let exits = events.iter().filter(|event| event.op == Op::Exit);
    exits.map(|event| (event.process, event.t_mono)).collect()
}

fn server_deaths(events: &[Event]) -> Rc<[u64]> {
    let is_kill = |event: &&Event| event.detail.point.as_deref() == Some(SERVER_KILL);
    let kills = events.iter().filter(|event| event.op == Op::Blow).filter(is_kill);
    kills.map(|event| event.t_mono).collect()
}

/// When a process was first heard of: it has opened the store then, and had to wait for the dead.
fn births(events: &[Event]) -> HashMap<u32, u64> {
    let mut births = HashMap::new();
    for event in events {
        let first = births.entry(event.process).or_insert(event.t_mono);
        *first = event.t_mono.min(*first);
    }
    births
}

/// Joins calls and their ends, in the order they were called.
fn calls(events: &[Event]) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    let mut open: HashMap<(u32, u64), usize> = HashMap::new();
    for event in events.iter().filter(|event| event.call > 0) {
        let id = (event.process, event.call);
        match event.r#type {
            Kind::Invoke => {
                open.insert(id, calls.len());
                calls.push(Call { begin: event, end: None });
            }
            Kind::Ok | Kind::Fail | Kind::Info => {
                if let Some(at) = open.remove(&id) {
                    calls[at].end = Some(event);
                }
            }
        }
    }
    calls.sort_by_key(Call::invoked);
    calls
}

/// The grants in the order they were told. Another life begins where a token starts again, or where the
/// record can have expired: the first claim of the new life may be one that nobody was told about. A grant
/// that others overtook may be of any life: it gets one for itself.
fn grants(calls: &[Call<'_>], kept: Option<u64>) -> Vec<Grant> {
    let mut grants: Vec<Grant> = calls.iter().filter_map(grant).collect();
    grants.sort_by_key(|grant| grant.ended);
    let lives = kept.is_some() || calls.iter().any(|call| call.op() == Op::Forget);
    let (mut life, mut last): (u32, Option<Grant>) = (0, None);
    for at in 0..grants.len() {
        let grant = grants[at];
        if lives && is_overtaken(calls, &grant, &grants[..at], kept) {
            grants[at].life = u32::MAX - u32::try_from(at).unwrap_or_default();
            continue;
        }
        let ends = |last: Grant| {
            restarts(&last, &grant)
                || expires(calls, &last, &grant, kept)
                || is_forgotten(calls, &last, &grant)
        };
        if last.is_some_and(ends) {
            life += 1;
        }
        grants[at].life = life;
        last = Some(grants[at]);
    }
    grants
}

/// Only where a record can have come to its end while the call was under way.
fn is_overtaken(calls: &[Call<'_>], grant: &Grant, told: &[Grant], kept: Option<u64>) -> bool {
    let expired = kept.is_some_and(|kept| grant.ended >= grant.invoked + kept);
    told.iter().any(|other| {
        other.nonce != grant.nonce
            && other.invoked > grant.invoked
            && (expired || is_forgotten(calls, other, grant))
    })
}

fn restarts(last: &Grant, next: &Grant) -> bool {
    let again = next.nonce == last.nonce && next.token == last.token;
    next.token <= last.token && !again && last.ended < next.invoked
}

fn is_forgotten(calls: &[Call<'_>], last: &Grant, next: &Grant) -> bool {
    calls.iter().filter(|call| call.op() == Op::Forget).any(|call| {
        call.answer().is_none_or(|answer| answer == Answer::Forgotten)
            && call.invoked() < next.ended
            && call.ended().is_none_or(|ended| ended > last.invoked)
    })
}

fn expires(calls: &[Call<'_>], last: &Grant, next: &Grant, kept: Option<u64>) -> bool {
    let own = calls.iter().filter(|call| call.nonce() == Some(last.nonce) && call.told().is_some());
    let before = own.map(Call::invoked).filter(|invoked| *invoked < next.invoked);
    let wrote = before.max().unwrap_or(last.invoked);
    kept.is_some_and(|kept| next.ended >= wrote + kept)
}

fn grant(call: &Call<'_>) -> Option<Grant> {
    if call.op() != Op::Claim || call.answer() != Some(Answer::Granted) {
        return None;
    }
    let end = call.told()?;
    Some(Grant {
        nonce: call.nonce()?,
        token: end.detail.token?,
        attempt: end.detail.attempt.unwrap_or_default(),
        fingerprint: call.begin.detail.fingerprint,
        process: call.begin.process,
        invoked: call.invoked(),
        ended: end.t_mono,
        life: 0,
    })
}
