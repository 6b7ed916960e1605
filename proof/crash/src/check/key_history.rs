//! The part of the evidence that concerns one key.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{CheckRules, Evidence, TOLERANCE, Violation, invariant::Invariant};
use crate::{
    event::{Detail, Event, EventKind, Hex, Op, ReplyKind, SERVER_KILL},
    key::KeyId,
    ledger::LedgerEntry,
    load::DumpedRecord,
};

/// A call and how it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryCall<'a> {
    pub(super) begin: &'a Event,
    pub(super) end: Option<&'a Event>,
}

impl<'a> HistoryCall<'a> {
    pub(super) const fn op(&self) -> Op {
        self.begin.op
    }

    pub(super) const fn invoked(&self) -> u64 {
        self.begin.t_mono
    }

    /// The event of its reply. `None` while the call is open.
    pub(super) fn reply_event(&self) -> Option<&'a Event> {
        self.end.filter(|end| end.r#type != EventKind::Info)
    }

    pub(super) fn reply(&self) -> Option<ReplyKind> {
        self.reply_event().and_then(|end| end.detail.reply)
    }

    /// When its reply came. `None` for open calls.
    pub(super) fn ended(&self) -> Option<u64> {
        self.reply_event().map(|end| end.t_mono)
    }

    pub(super) const fn nonce(&self) -> Option<Hex> {
        self.begin.detail.nonce
    }

    /// The outcome in the reply, or else in the request.
    pub(super) fn digest(&self) -> Option<Hex> {
        self.reply_event().and_then(|end| end.detail.digest).or(self.begin.detail.digest)
    }
}

/// A granted claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyGrant {
    pub(super) nonce: Hex,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) fingerprint: Option<u8>,
    pub(super) process: u32,
    pub(super) invoked: u64,
    pub(super) ended: u64,
    /// The number of the record's life. A new life begins after a record expired or was forgotten.
    pub(super) life: u32,
}

/// The evidence about one key.
#[derive(Debug)]
pub(super) struct KeyHistory<'a> {
    pub(super) key: KeyId,
    pub(super) calls: Vec<HistoryCall<'a>>,
    pub(super) grants: Vec<KeyGrant>,
    pub(super) ledger: Vec<&'a LedgerEntry>,
    pub(super) dump: Option<&'a DumpedRecord>,
    pub(super) dumped_at: u64,
    pub(super) rules: CheckRules,
    pub(super) deaths: Rc<HashMap<u32, u64>>,
    pub(super) births: Rc<HashMap<u32, u64>>,
    /// When the server was killed, in order.
    pub(super) server_deaths: Rc<[u64]>,
}

impl<'a> KeyHistory<'a> {
    pub(super) fn of(&self, op: Op) -> impl Iterator<Item = &HistoryCall<'a>> {
        self.calls.iter().filter(move |call| call.op() == op)
    }

    pub(super) fn violation(&self, invariant: Invariant, what: impl Into<String>) -> Violation {
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
        let refused = [Some(ReplyKind::Missing), Some(ReplyKind::Refused)];
        let operator = |call: &HistoryCall<'_>| matches!(call.op(), Op::Forget | Op::Erase);
        self.calls.iter().any(|call| operator(call) && !refused.contains(&call.reply()))
    }

    /// True when the key may have been forgotten between two grants.
    pub(super) fn is_forgotten(&self, last: &KeyGrant, next: &KeyGrant) -> bool {
        is_forgotten(&self.calls, last, next)
    }

    /// The grant with this nonce and token.
    pub(super) fn grant(&self, nonce: Hex, token: u64) -> Option<&KeyGrant> {
        self.grants.iter().find(|grant| (grant.nonce, grant.token) == (nonce, token))
    }

    /// The grant under which an owner called a step.
    pub(super) fn owner(&self, call: &HistoryCall<'_>) -> Option<&KeyGrant> {
        self.grant(call.nonce()?, call.begin.detail.token?)
    }

    /// True when the process of `one` ended before the process of `other` opened the store.
    pub(super) fn died_before_opening(
        &self,
        one: &HistoryCall<'_>,
        other: &HistoryCall<'_>,
    ) -> bool {
        let death = self.deaths.get(&one.begin.process);
        death.zip(self.births.get(&other.begin.process)).is_some_and(|(death, birth)| death < birth)
    }

    /// Adds the lines of the key, so that the report can be read without the history file.
    pub(super) fn with_lines(&self, mut violation: Violation) -> Violation {
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

/// How long a record is kept at least after it was written, if that can end within a run.
pub(super) fn kept(key: KeyId) -> Option<u64> {
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    key.class().retention().map(|span| micros(span).saturating_sub(TOLERANCE))
}

fn ledger_line(entry: &LedgerEntry) -> String {
    let LedgerEntry { t_mono, process, token, attempt, fingerprint, nonce, fact, .. } = entry;
    let (ms, us) = (t_mono / 1000 % 10_000_000, t_mono % 1000);
    format!(
        " ledger {ms:>7}.{us:03} p{process:<5}{fact:?} token={token} attempt={attempt} fp={fingerprint} nonce={nonce}"
    )
}

/// The evidence of every key.
pub(super) fn key_histories(evidence: &Evidence) -> Vec<KeyHistory<'_>> {
    let deaths = Rc::new(deaths(&evidence.events));
    let births = Rc::new(births(&evidence.events));
    let server_deaths = server_deaths(&evidence.events);
    let mut key_histories: BTreeMap<KeyId, KeyHistory<'_>> = BTreeMap::new();
    let empty = |key| KeyHistory {
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
            key_histories.entry(key).or_insert_with(|| empty(key)).calls.push(call);
        }
    }
    for entry in &evidence.ledger {
        key_histories.entry(entry.key).or_insert_with(|| empty(entry.key)).ledger.push(entry);
    }
    for dumped in &evidence.dump {
        if let Some(key) = dumped.record.key {
            key_histories.entry(key).or_insert_with(|| empty(key)).dump = Some(dumped);
        }
    }
    let mut key_histories: Vec<_> = key_histories.into_values().collect();
    for history in &mut key_histories {
        history.grants = grants(&history.calls, history.kept());
    }
    key_histories
}

/// When the harness noticed the end of each process.
fn deaths(events: &[Event]) -> HashMap<u32, u64> {
    let exits = events.iter().filter(|event| event.op == Op::Exit);
    exits.map(|event| (event.process, event.t_mono)).collect()
}

fn server_deaths(events: &[Event]) -> Rc<[u64]> {
    let is_kill = |event: &&Event| event.detail.point.as_deref() == Some(SERVER_KILL);
    let kills = events.iter().filter(|event| event.op == Op::Fault).filter(is_kill);
    kills.map(|event| event.t_mono).collect()
}

/// The first event of each process: it had opened the store by then, which needs the end of earlier processes.
fn births(events: &[Event]) -> HashMap<u32, u64> {
    let mut births = HashMap::new();
    for event in events {
        let first = births.entry(event.process).or_insert(event.t_mono);
        *first = event.t_mono.min(*first);
    }
    births
}

/// Joins calls and their ends, in the order of their begins.
fn calls(events: &[Event]) -> Vec<HistoryCall<'_>> {
    let mut calls: Vec<HistoryCall<'_>> = Vec::new();
    let mut open: HashMap<(u32, u64), usize> = HashMap::new();
    for event in events.iter().filter(|event| event.call > 0) {
        let id = (event.process, event.call);
        match event.r#type {
            EventKind::Invoke => {
                open.insert(id, calls.len());
                calls.push(HistoryCall { begin: event, end: None });
            }
            EventKind::Ok | EventKind::Fail | EventKind::Info => {
                if let Some(at) = open.remove(&id) {
                    calls[at].end = Some(event);
                }
            }
        }
    }
    calls.sort_by_key(HistoryCall::invoked);
    calls
}

/// The grants in the order of their replies. A new life begins where tokens start again, or where the record can have
/// expired: the first claim of the new life may be one without a reply. A grant that was overtaken by others may belong
/// to any life, so it gets one of its own.
fn grants(calls: &[HistoryCall<'_>], kept: Option<u64>) -> Vec<KeyGrant> {
    let mut grants: Vec<KeyGrant> = calls.iter().filter_map(grant).collect();
    grants.sort_by_key(|grant| grant.ended);
    let lives = kept.is_some() || calls.iter().any(|call| call.op() == Op::Forget);
    let (mut life, mut last): (u32, Option<KeyGrant>) = (0, None);
    for at in 0..grants.len() {
        let grant = grants[at];
        if lives && is_overtaken(calls, &grant, &grants[..at], kept) {
            grants[at].life = u32::MAX - u32::try_from(at).unwrap_or_default();
            continue;
        }
        let ends = |last: KeyGrant| {
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

/// True when a later claim was granted first. Possible only if the record ended while the call was pending.
fn is_overtaken(
    calls: &[HistoryCall<'_>],
    grant: &KeyGrant,
    earlier: &[KeyGrant],
    kept: Option<u64>,
) -> bool {
    let expired = kept.is_some_and(|kept| grant.ended >= grant.invoked + kept);
    earlier.iter().any(|other| {
        other.nonce != grant.nonce
            && other.invoked > grant.invoked
            && (expired || is_forgotten(calls, other, grant))
    })
}

fn restarts(last: &KeyGrant, next: &KeyGrant) -> bool {
    let again = next.nonce == last.nonce && next.token == last.token;
    next.token <= last.token && !again && last.ended < next.invoked
}

fn is_forgotten(calls: &[HistoryCall<'_>], last: &KeyGrant, next: &KeyGrant) -> bool {
    calls.iter().filter(|call| call.op() == Op::Forget).any(|call| {
        call.reply().is_none_or(|answer| answer == ReplyKind::Forgotten)
            && call.invoked() < next.ended
            && call.ended().is_none_or(|ended| ended > last.invoked)
    })
}

/// True when the record can have expired between two grants. Calls of a lost owner write nothing, so they keep no record.
fn expires(calls: &[HistoryCall<'_>], last: &KeyGrant, next: &KeyGrant, kept: Option<u64>) -> bool {
    let has_written = |call: &&HistoryCall<'_>| {
        let wrote_nothing = [ReplyKind::Lost, ReplyKind::Superseded, ReplyKind::Missing];
        call.reply().is_some_and(|reply| !wrote_nothing.contains(&reply))
    };
    let own = calls.iter().filter(|call| call.nonce() == Some(last.nonce)).filter(has_written);
    let before = own.map(HistoryCall::invoked).filter(|invoked| *invoked < next.invoked);
    let wrote = before.max().unwrap_or(last.invoked);
    kept.is_some_and(|kept| next.ended >= wrote + kept)
}

fn grant(call: &HistoryCall<'_>) -> Option<KeyGrant> {
    if call.op() != Op::Claim || call.reply() != Some(ReplyKind::Granted) {
        return None;
    }
    let end = call.reply_event()?;
    Some(KeyGrant {
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
