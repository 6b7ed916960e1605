//! Indexes, cleanup, lists and the lead: on a connection of their own, so that they hold nobody up.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Result, State, Stats, Timestamp};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    connection::{Line, Reply, time_of},
    error::{Trouble, known, odd_reply, timed_out},
    script::{How, KEEP, LEAD, Script},
    settings::Plan,
    store::Inner,
};

/// Index entries that are looked at together.
const PAGE: usize = 256;

/// Hashes of a store's keys that are remembered while all keys are walked through.
const LISTED: usize = 100_000;

/// Keys a server looks at for one `SCAN`.
const SCANNED: usize = 1000;

/// The connection for everything that is not a step on a key.
#[derive(Debug)]
pub(crate) struct Chores {
    plan: Arc<Plan>,
    line: Mutex<Line>,
    /// Names this store among those who want to lead.
    id: [u8; 16],
}

/// A key in an index, with its score as the server spells it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: KeyHash,
    score: String,
}

impl Entry {
    /// True when it was looked at before, nothing was found, and nobody put it there anew.
    pub(crate) fn is_settled(&self) -> bool {
        self.score.parse().is_ok_and(|score: u64| score % 2 == 1)
    }
}

/// The score of a key that is to be looked at, not before this time: even.
pub(crate) fn look_at(at: Timestamp) -> u64 {
    at.as_millis().next_multiple_of(2)
}

/// What is to become of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Remove,
    LookAgain(Timestamp),
    /// Removed at the next look, then, unless it is put there anew.
    Settled(Timestamp),
}

impl Fate {
    /// The score that says so, or nothing.
    fn score(self) -> String {
        match self {
            Self::Remove => String::new(),
            Self::LookAgain(at) => look_at(at).to_string(),
            Self::Settled(at) => (look_at(at) + 1).to_string(),
        }
    }
}

impl Chores {
    pub(crate) async fn open(plan: Arc<Plan>) -> Result<Self> {
        let line = Line::open(plan.clone()).await?;
        Ok(Self::over(plan, line))
    }

    /// Over a connection that is opened by itself.
    pub(crate) fn begin(plan: Arc<Plan>) -> Self {
        let line = Line::begin(plan.clone());
        Self::over(plan, line)
    }

    fn over(plan: Arc<Plan>, line: Line) -> Self {
        Self { plan, line: Mutex::new(line), id: rand::random() }
    }

    pub(crate) fn held(&self) -> &str {
        &self.plan.names.held
    }

    pub(crate) fn stuck(&self) -> &str {
        &self.plan.names.stuck
    }

    /// The server's time. Asked for: nobody refreshes the estimate while there are no calls.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        time_of(&self.ask(cmd("TIME")).await?)
    }

    /// Sees to it that this process still agrees with the others.
    pub(crate) async fn agree(&self) -> Result<()> {
        let mut line = self.line.lock().await;
        let agreed = timeout(self.plan.call_timeout, self.plan.agree(line.up().await?)).await;
        heard(&mut line, agreed.unwrap_or_else(|_| Err(timed_out())))
    }

    async fn send(&self, commands: Vec<Cmd>) -> Result<Vec<Reply>> {
        let mut line = self.line.lock().await;
        let sent = line.up().await?.send(commands, self.plan.call_timeout).await;
        let replies: Vec<Reply> = heard(&mut line, sent)?.collect();
        // A server that takes no writes any more still answers.
        if let Some(error) = replies.iter().find_map(lost) {
            line.lost(error);
        }
        Ok(replies)
    }

    async fn ask(&self, command: Cmd) -> Result<Value> {
        let reply = self.send(vec![command]).await?.pop().ok_or_else(odd_reply)?;
        reply.map_err(known)
    }

    async fn ask_all(&self, command: Cmd) -> Result<Vec<Value>> {
        let mut line = self.line.lock().await;
        let asked = line.up().await?.ask_all(command, self.plan.call_timeout).await;
        heard(&mut line, asked)
    }

    /// Runs a script on one key, in full where the server forgot it.
    async fn run(&self, script: &Script, key: &str, arguments: &[&[u8]]) -> Result<Value> {
        for how in [How::ByHash, How::InFull] {
            let mut call = script.call(key.as_bytes(), how);
            arguments.iter().for_each(|argument| {
                call.arg(*argument);
            });
            match self.send(vec![call]).await?.pop().ok_or_else(odd_reply)? {
                Err(Trouble::NoScript) => {}
                reply => return reply.map_err(known),
            }
        }
        Err(odd_reply())
    }

    /// True when this store leads for `term` from now on.
    pub(crate) async fn lead(&self, term: Duration) -> Result<bool> {
        let term = u64::try_from(term.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_TERM);
        let term = term.to_string();
        let led = self.run(&LEAD, &self.plan.names.leader, &[&self.id, term.as_bytes()]).await?;
        Ok(led == Value::Int(1))
    }

    /// The first entries of an index up to a time.
    pub(crate) async fn due(&self, index: &str, until: Timestamp) -> Result<Vec<Entry>> {
        let mut range = cmd("ZRANGE");
        range.arg(index).arg("-inf").arg(until.as_millis()).arg("BYSCORE");
        range.arg("LIMIT").arg(0).arg(PAGE).arg("WITHSCORES");
        let Value::Array(parts) = self.ask(range).await? else { return Err(odd_reply()) };
        parts.chunks_exact(2).map(|pair| entry(&pair[0], &pair[1])).collect()
    }

    /// All keys of an index, however it changes meanwhile: who walks by rank misses what moves.
    pub(crate) async fn members(&self, index: &str) -> Result<BTreeSet<KeyHash>> {
        let (mut keys, mut cursor) = (BTreeSet::new(), b"0".to_vec());
        loop {
            let mut scan = cmd("ZSCAN");
            scan.arg(index).arg(&cursor).arg("COUNT").arg(PAGE);
            let (next, parts) = scanned(self.ask(scan).await?)?;
            for member in parts.chunks_exact(2) {
                keys.insert(hash_of(&member[0])?);
            }
            if next == b"0" {
                return Ok(keys);
            }
            cursor = next;
        }
    }

    /// Decides about entries that stand as they were seen; those that were put anew are left alone.
    pub(crate) async fn keep(&self, index: &str, fates: &[(Entry, Fate)]) -> Result<()> {
        let keep = |(entry, fate): &(Entry, Fate)| {
            // In full: this is seldom, and a script that the server forgot is no trouble then.
            let mut keep = KEEP.call(index.as_bytes(), How::InFull);
            keep.arg(&entry.key.as_bytes()[..]).arg(&entry.score).arg(fate.score());
            keep
        };
        let replies = self.send(fates.iter().map(keep).collect()).await?;
        replies.into_iter().try_for_each(|reply| reply.map(drop).map_err(known))
    }

    /// Where keys stand, without reading what they hold.
    pub(crate) async fn states(&self, keys: &[KeyHash]) -> Result<Vec<Option<State>>> {
        let state = |key: &KeyHash| {
            let mut state = cmd("GETRANGE");
            state.arg(&self.plan.names.record(key)[..]).arg(2).arg(2);
            state
        };
        let replies = self.send(keys.iter().map(state).collect()).await?;
        replies.into_iter().map(|reply| state_of(&reply.map_err(known)?)).collect()
    }

    /// Keys of all servers, those of others included.
    pub(crate) async fn size(&self) -> Result<u64> {
        let sizes = self.ask_all(cmd("DBSIZE")).await?;
        let size = |value: &Value| match value {
            Value::Int(size) => Ok(size.unsigned_abs()),
            _ => Err(odd_reply()),
        };
        sizes.iter().map(size).sum()
    }

    /// The first hashes after `after`, and whether there are more. Walks through all keys.
    pub(crate) async fn hashes(&self, after: Option<KeyHash>) -> Result<(BTreeSet<KeyHash>, bool)> {
        let (mut first, mut more) = (BTreeSet::new(), false);
        for server in self.servers().await? {
            let mut cursor = b"0".to_vec();
            loop {
                let (next, names) = self.scan(&server, &cursor).await?;
                let hashes = names.iter().filter_map(|name| self.plan.names.hash_of(name));
                first.extend(hashes.filter(|hash| after.is_none_or(|after| *hash > after)));
                while first.len() > LISTED {
                    first.pop_last();
                    more = true;
                }
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok((first, more))
    }

    async fn servers(&self) -> Result<Vec<crate::connection::Address>> {
        let mut line = self.line.lock().await;
        let asked = line.up().await?.primaries(self.plan.call_timeout).await;
        heard(&mut line, asked)
    }

    async fn scan(
        &self,
        server: &crate::connection::Address,
        cursor: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(self.plan.names.pattern()).arg("COUNT").arg(SCANNED);
        let mut line = self.line.lock().await;
        let asked = line.up().await?.ask_at(server, scan, self.plan.call_timeout).await;
        let (cursor, names) = scanned(heard(&mut line, asked)?)?;
        Ok((cursor, names.into_iter().map(bytes_of).collect::<Result<_>>()?))
    }
}

/// Counts stuck keys by their index.
pub(crate) async fn stats(inner: &Inner) -> Result<Stats> {
    let chores = &inner.chores;
    let mut stats = Stats { records: chores.size().await?, unknown: 0, dead: 0 };
    let keys: Vec<_> = chores.members(chores.stuck()).await?.into_iter().collect();
    for some in keys.chunks(PAGE) {
        for state in chores.states(some).await? {
            match state {
                Some(State::Unknown) => stats.unknown += 1,
                Some(State::Dead) => stats.dead += 1,
                Some(State::Open | State::InProgress | State::Completed | State::Erased) | None => {
                }
            }
        }
    }
    Ok(stats)
}

/// Drops a connection that failed a chore: the next one must not wait for the same again.
fn heard<T>(line: &mut Line, asked: Result<T>) -> Result<T> {
    if let Err(error) = &asked {
        line.lost(error);
    }
    asked
}

/// Why nothing more can come from the connection, if the reply says so.
const fn lost(reply: &Reply) -> Option<&Error> {
    match reply {
        Err(Trouble::Link(error)) => Some(error),
        Err(Trouble::NoScript | Trouble::Call(_) | Trouble::Odd) | Ok(_) => None,
    }
}

/// A leader that asks for more leads for a year.
const MAX_TERM: u64 = 365 * 86_400_000;

fn entry(member: &Value, score: &Value) -> Result<Entry> {
    Ok(Entry { key: hash_of(member)?, score: crate::connection::text_of(score)? })
}

fn hash_of(value: &Value) -> Result<KeyHash> {
    let Value::BulkString(bytes) = value else { return Err(odd_reply()) };
    Ok(KeyHash::from_bytes(bytes.as_slice().try_into().map_err(|_| odd_reply())?))
}

/// The next cursor, and what was found.
fn scanned(reply: Value) -> Result<(Vec<u8>, Vec<Value>)> {
    let Value::Array(parts) = reply else { return Err(odd_reply()) };
    match <[Value; 2]>::try_from(parts) {
        Ok([Value::BulkString(cursor), Value::Array(found)]) => Ok((cursor, found)),
        _ => Err(odd_reply()),
    }
}

fn bytes_of(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(odd_reply()),
    }
}

fn state_of(value: &Value) -> Result<Option<State>> {
    let Value::BulkString(bytes) = value else { return Err(odd_reply()) };
    Ok(match bytes.first() {
        Some(1) => Some(State::Open),
        Some(2) => Some(State::InProgress),
        Some(3) => Some(State::Completed),
        Some(4) => Some(State::Unknown),
        Some(5) => Some(State::Dead),
        Some(6) => Some(State::Erased),
        _ => None,
    })
}
