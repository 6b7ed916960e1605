//! The connection for purge, lists, statistics and the leader election. It is not shared with requests, so that
//! maintenance does not delay them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redis::{Cmd, Value, cmd};
use semel_core::{Error, KeyHash, Result, State, Stats, Timestamp};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    connection::{CommandReply, PrimaryAddress, ReconnectingConnection, text_of, time_of},
    error::{CommandError, into_error, timed_out, unexpected_reply},
    script::{LEAD, LuaScript, ScriptCall, UPDATE_ENTRY},
    settings::RedisSettings,
    store::RedisStoreInner,
};

/// Index entries that are read together.
const PAGE: usize = 256;

/// Most hashes that one scan of all keys returns.
const MAX_HASHES: usize = 100_000;

/// Keys that a server visits for one `SCAN`.
const SCAN_COUNT: usize = 1000;

/// The connection for maintenance.
#[derive(Debug)]
pub(crate) struct RedisMaintenance {
    settings: Arc<RedisSettings>,
    connection: Mutex<ReconnectingConnection>,
    /// Identifies this store in the leader election.
    id: [u8; 16],
}

/// A key in an index, with its score as the server prints it. An even score is the time of the next check.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) key: KeyHash,
    score: String,
}

impl IndexEntry {
    /// True when the last check found no reason for the entry, and no request has added it again since.
    pub(crate) fn is_marked_for_removal(&self) -> bool {
        self.score.parse().is_ok_and(|score: u64| score % 2 == 1)
    }
}

/// The score of a key that is checked at this time or later: an even number.
pub(crate) fn check_score(at: Timestamp) -> u64 {
    at.as_millis().next_multiple_of(2)
}

/// The new state of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryUpdate {
    Remove,
    CheckAt(Timestamp),
    /// Removed by the first check after this time, unless a request adds it again.
    RemoveAfter(Timestamp),
}

impl EntryUpdate {
    /// The score that stands for it; an empty one removes the entry.
    fn score(self) -> String {
        match self {
            Self::Remove => String::new(),
            Self::CheckAt(at) => check_score(at).to_string(),
            Self::RemoveAfter(at) => (check_score(at) + 1).to_string(),
        }
    }
}

impl RedisMaintenance {
    pub(crate) async fn open(settings: Arc<RedisSettings>) -> Result<Self> {
        let connection = ReconnectingConnection::open(settings.clone()).await?;
        Ok(Self::new(settings, connection))
    }

    /// With a connection that is opened in the background.
    pub(crate) fn open_in_background(settings: Arc<RedisSettings>) -> Self {
        let connection = ReconnectingConnection::open_in_background(settings.clone());
        Self::new(settings, connection)
    }

    fn new(settings: Arc<RedisSettings>, connection: ReconnectingConnection) -> Self {
        Self { settings, connection: Mutex::new(connection), id: rand::random() }
    }

    pub(crate) fn held(&self) -> &str {
        &self.settings.names.held
    }

    pub(crate) fn stuck(&self) -> &str {
        &self.settings.names.stuck
    }

    /// The server's time. It is read from the server, since the estimate gets old while there are no requests.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        time_of(&self.query(cmd("TIME")).await?)
    }

    /// Compares the hash secret with that of the other processes.
    pub(crate) async fn check_meta(&self) -> Result<()> {
        let mut connection = self.connection.lock().await;
        let checked = timeout(
            self.settings.call_timeout,
            self.settings.check_meta(connection.ready().await?),
        )
        .await;
        discard_on_error(&mut connection, checked.unwrap_or_else(|_| Err(timed_out())))
    }

    async fn send(&self, commands: Vec<Cmd>) -> Result<Vec<CommandReply>> {
        let mut connection = self.connection.lock().await;
        let replies = connection.ready().await?.send(commands, self.settings.call_timeout).await;
        let replies: Vec<CommandReply> = discard_on_error(&mut connection, replies)?.collect();
        // A server that became a replica still replies, with an error.
        if let Some(error) = replies.iter().find_map(connection_error) {
            connection.discard(error);
        }
        Ok(replies)
    }

    async fn query(&self, command: Cmd) -> Result<Value> {
        let reply = self.send(vec![command]).await?.pop().ok_or_else(unexpected_reply)?;
        reply.map_err(into_error)
    }

    async fn query_primaries(&self, command: Cmd) -> Result<Vec<Value>> {
        let mut connection = self.connection.lock().await;
        let reply =
            connection.ready().await?.query_primaries(command, self.settings.call_timeout).await;
        discard_on_error(&mut connection, reply)
    }

    /// Runs a script on one key, and sends its text if the server does not have it.
    async fn run(&self, script: &LuaScript, key: &str, arguments: &[&[u8]]) -> Result<Value> {
        for script_call in [ScriptCall::ByHash, ScriptCall::InFull] {
            let mut call = script.call(key.as_bytes(), script_call);
            arguments.iter().for_each(|argument| {
                call.arg(*argument);
            });
            match self.send(vec![call]).await?.pop().ok_or_else(unexpected_reply)? {
                Err(CommandError::NoScript) => {}
                reply => return reply.map_err(into_error),
            }
        }
        Err(unexpected_reply())
    }

    /// True when this store leads for `term` from now on.
    pub(crate) async fn lead(&self, term: Duration) -> Result<bool> {
        let term = u64::try_from(term.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_TERM);
        let term = term.to_string();
        let leads =
            self.run(&LEAD, &self.settings.names.leader, &[&self.id, term.as_bytes()]).await?;
        Ok(leads == Value::Int(1))
    }

    /// The first entries of an index up to a time.
    pub(crate) async fn due(&self, index: &str, until: Timestamp) -> Result<Vec<IndexEntry>> {
        let mut range = cmd("ZRANGE");
        range.arg(index).arg("-inf").arg(until.as_millis()).arg("BYSCORE");
        range.arg("LIMIT").arg(0).arg(PAGE).arg("WITHSCORES");
        let Value::Array(parts) = self.query(range).await? else { return Err(unexpected_reply()) };
        parts.chunks_exact(2).map(|pair| entry(&pair[0], &pair[1])).collect()
    }

    /// All keys of an index. `ZSCAN` finds them even while scores change; a walk by rank would miss keys that move.
    pub(crate) async fn members(&self, index: &str) -> Result<BTreeSet<KeyHash>> {
        let (mut keys, mut cursor) = (BTreeSet::new(), b"0".to_vec());
        loop {
            let mut scan = cmd("ZSCAN");
            scan.arg(index).arg(&cursor).arg("COUNT").arg(PAGE);
            let (next, parts) = scan_reply(self.query(scan).await?)?;
            for member in parts.chunks_exact(2) {
                keys.insert(hash_of(&member[0])?);
            }
            if next == b"0" {
                return Ok(keys);
            }
            cursor = next;
        }
    }

    /// Updates entries that have not changed since they were read. Entries that were added again stay as they are.
    pub(crate) async fn update(
        &self,
        index: &str,
        updates: &[(IndexEntry, EntryUpdate)],
    ) -> Result<()> {
        let command = |(entry, update): &(IndexEntry, EntryUpdate)| {
            // With its text: this is rare, and the server need not have the script in its cache.
            let mut command = UPDATE_ENTRY.call(index.as_bytes(), ScriptCall::InFull);
            command.arg(&entry.key.as_bytes()[..]).arg(&entry.score).arg(update.score());
            command
        };
        let replies = self.send(updates.iter().map(command).collect()).await?;
        replies.into_iter().try_for_each(|reply| reply.map(drop).map_err(into_error))
    }

    /// The states of keys, without reading their outcomes.
    pub(crate) async fn states(&self, keys: &[KeyHash]) -> Result<Vec<Option<State>>> {
        let state = |key: &KeyHash| {
            let mut state = cmd("GETRANGE");
            state.arg(&self.settings.names.record(key)[..]).arg(2).arg(2);
            state
        };
        let replies = self.send(keys.iter().map(state).collect()).await?;
        replies.into_iter().map(|reply| state_of(&reply.map_err(into_error)?)).collect()
    }

    /// The number of keys on all servers, including keys of other applications.
    pub(crate) async fn size(&self) -> Result<u64> {
        let sizes = self.query_primaries(cmd("DBSIZE")).await?;
        let size = |value: &Value| match value {
            Value::Int(size) => Ok(size.unsigned_abs()),
            _ => Err(unexpected_reply()),
        };
        sizes.iter().map(size).sum()
    }

    /// The first hashes after `after`, and whether there are more. Scans all keys.
    pub(crate) async fn hashes(&self, after: Option<KeyHash>) -> Result<(BTreeSet<KeyHash>, bool)> {
        let (mut first, mut more) = (BTreeSet::new(), false);
        for server in self.servers().await? {
            let mut cursor = b"0".to_vec();
            loop {
                let (next, names) = self.scan(&server, &cursor).await?;
                let hashes = names.iter().filter_map(|name| self.settings.names.hash_of(name));
                first.extend(hashes.filter(|hash| after.is_none_or(|after| *hash > after)));
                while first.len() > MAX_HASHES {
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

    async fn servers(&self) -> Result<Vec<PrimaryAddress>> {
        let mut connection = self.connection.lock().await;
        let reply = connection.ready().await?.primaries(self.settings.call_timeout).await;
        discard_on_error(&mut connection, reply)
    }

    async fn scan(
        &self,
        server: &PrimaryAddress,
        cursor: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(self.settings.names.pattern())
            .arg("COUNT")
            .arg(SCAN_COUNT);
        let mut connection = self.connection.lock().await;
        let reply =
            connection.ready().await?.query_primary(server, scan, self.settings.call_timeout).await;
        let (cursor, names) = scan_reply(discard_on_error(&mut connection, reply)?)?;
        Ok((cursor, names.into_iter().map(bytes_of).collect::<Result<_>>()?))
    }
}

/// Counts all keys of the servers, and the Unknown and Dead ones by their index.
pub(crate) async fn stats(inner: &RedisStoreInner) -> Result<Stats> {
    let maintenance = &inner.maintenance;
    let mut stats = Stats { records: maintenance.size().await?, unknown: 0, dead: 0 };
    let keys: Vec<_> = maintenance.members(maintenance.stuck()).await?.into_iter().collect();
    for page in keys.chunks(PAGE) {
        for state in maintenance.states(page).await? {
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

/// Drops a connection whose command failed, so that the next command does not wait for the same failure.
fn discard_on_error<T>(connection: &mut ReconnectingConnection, reply: Result<T>) -> Result<T> {
    if let Err(error) = &reply {
        connection.discard(error);
    }
    reply
}

/// Why the connection cannot be used any more, if the reply shows that.
const fn connection_error(reply: &CommandReply) -> Option<&Error> {
    match reply {
        Err(CommandError::Connection(error)) => Some(error),
        Err(CommandError::NoScript | CommandError::Command(_) | CommandError::UnexpectedReply)
        | Ok(_) => None,
    }
}

/// The longest term of a leader: a year.
const MAX_TERM: u64 = 365 * 86_400_000;

fn entry(member: &Value, score: &Value) -> Result<IndexEntry> {
    Ok(IndexEntry { key: hash_of(member)?, score: text_of(score)? })
}

fn hash_of(value: &Value) -> Result<KeyHash> {
    let Value::BulkString(bytes) = value else { return Err(unexpected_reply()) };
    Ok(KeyHash::from_bytes(bytes.as_slice().try_into().map_err(|_| unexpected_reply())?))
}

/// The next cursor and the items of a `SCAN` or `ZSCAN` reply.
fn scan_reply(reply: Value) -> Result<(Vec<u8>, Vec<Value>)> {
    let Value::Array(parts) = reply else { return Err(unexpected_reply()) };
    match <[Value; 2]>::try_from(parts) {
        Ok([Value::BulkString(cursor), Value::Array(found)]) => Ok((cursor, found)),
        _ => Err(unexpected_reply()),
    }
}

fn bytes_of(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(unexpected_reply()),
    }
}

fn state_of(value: &Value) -> Result<Option<State>> {
    let Value::BulkString(bytes) = value else { return Err(unexpected_reply()) };
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
