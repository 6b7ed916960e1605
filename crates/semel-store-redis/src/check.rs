//! Checks the servers: what makes a server unfit, and what `semel doctor` reports about its settings.

use std::collections::HashMap;

use redis::{Value, cmd};
use semel_core::{Error, Finding, Result};
use tokio::time::timeout;

use crate::{
    connection::{RedisConnection, text_of},
    error::{timed_out, unavailable},
    meta::RedisRole,
    settings::RedisSettings,
    url::RedisTopology,
};

/// The fields of a server's `INFO` reply.
#[derive(Debug)]
pub(crate) struct RedisServerInfo(HashMap<String, String>);

impl RedisServerInfo {
    /// The oldest version with `SET … NX GET` and script flags.
    const OLDEST: u32 = 7;

    /// Reads the reply to `INFO`.
    pub(crate) fn parse(info: &str) -> Result<Self> {
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        Ok(Self(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn is_too_old(&self) -> bool {
        let major =
            self.get("redis_version").split('.').next().and_then(|major| major.parse().ok());
        major.is_none_or(|major: u32| major < Self::OLDEST)
    }

    fn name(&self) -> String {
        match self.get("valkey_version") {
            "" => format!("Redis {}", self.get("redis_version")),
            version => format!("Valkey {version}"),
        }
    }

    /// Refuses a server that may lose records.
    pub(crate) fn refuse_unfit(&self, topology: &RedisTopology) -> Result<()> {
        if self.is_too_old() {
            return Err(Error::invalid(format!(
                "redis: {} is too old; semel needs Redis 7 or Valkey 7.2",
                self.name()
            )));
        }
        // Not an invalid setting: a failover may be in progress.
        if self.get("role") != "master" {
            return Err(unavailable(
                "redis: the server is a replica; connect to the primary, or to its sentinels with \
                 redis+sentinel://",
            ));
        }
        if self.get("maxmemory_policy") != "noeviction" {
            return Err(Error::invalid(format!(
                "redis: the server evicts keys when memory is full (maxmemory-policy {}), so it would \
                 forget what was done; set maxmemory-policy noeviction",
                self.get("maxmemory_policy")
            )));
        }
        match (self.get("cluster_enabled"), topology) {
            ("1", RedisTopology::Standalone | RedisTopology::Sentinel { .. }) => {
                Err(Error::invalid("redis: the server is part of a cluster; use redis+cluster://"))
            }
            ("0", RedisTopology::Cluster) => {
                Err(Error::invalid("redis: the server is not part of a cluster; use redis://"))
            }
            _ => Ok(()),
        }
    }

    /// What the settings of a fit server mean. `appendfsync` is not in `INFO`; it is `None` if this user may not read
    /// it.
    pub(crate) fn findings(&self, appendfsync: Option<&str>, role: RedisRole) -> Vec<Finding> {
        vec![
            Finding::good(format!("{}, primary", self.name())),
            self.eviction(),
            self.persistence(appendfsync, role),
            self.replicas(role),
            self.memory(),
        ]
    }

    fn eviction(&self) -> Finding {
        match self.number("evicted_keys") {
            0 => Finding::good("maxmemory-policy noeviction: no record is lost before it expires"),
            count => Finding::warning(
                format!(
                    "maxmemory-policy noeviction, but {count} keys were evicted since the server started, under \
                     another policy; some of them may have been records"
                ),
                "set the policy in the server's configuration file too, so that a restart does not restore the other",
            ),
        }
    }

    fn persistence(&self, appendfsync: Option<&str>, role: RedisRole) -> Finding {
        let forgets = forgets(role);
        if self.get("aof_enabled") != "1" {
            return Finding::warning(
                format!(
                    "appendonly no: a crash of the server {forgets} (those since its last snapshot)"
                ),
                "set appendonly yes and appendfsync always",
            );
        }
        if self.get("aof_last_write_status") == "err" {
            return Finding::bad(
                format!("the append-only file cannot be written: a crash of the server {forgets}"),
                "look at the server's log and its disk",
            );
        }
        match appendfsync {
            Some("always") => {
                Finding::good("appendonly yes, appendfsync always: acknowledged writes are on disk")
            }
            Some(other) => Finding::warning(
                format!(
                    "appendonly yes, appendfsync {other}: a crash of the server {forgets} (those of the last moments)"
                ),
                "set appendfsync always and no-appendfsync-on-rewrite no if those must not be lost",
            ),
            None => Finding::warning(
                format!(
                    "appendonly yes: a crash of the server {forgets} (those that are not on disk by its appendfsync)"
                ),
                "set appendfsync always if the last second must not be lost (CONFIG GET appendfsync shows it)",
            ),
        }
    }

    fn replicas(&self, role: RedisRole) -> Finding {
        let fix = match role {
            RedisRole::Store => {
                "use PostgreSQL as the store where that is not acceptable: --store postgres://… --front redis://…"
            }
            RedisRole::Front(_) => "repeat `semel keys forget` and erasures after a failover",
        };
        match self.number("connected_slaves") {
            0 => Finding::good("no replicas, so no failover can lose records"),
            count => Finding::warning(
                format!(
                    "{count} replicas: a failover {} (those of the last moments)",
                    forgets(role)
                ),
                fix,
            ),
        }
    }

    fn memory(&self) -> Finding {
        match (self.number("used_memory"), self.number("maxmemory")) {
            (_, 0) => Finding::warning(
                "maxmemory is not set: the system kills a server that uses too much memory",
                "set maxmemory below the machine's memory",
            ),
            (used, max) if used > max / 10 * 8 => Finding::warning(
                format!("{used} of {max} bytes of memory are used"),
                "raise maxmemory or shorten the retention; when full, new keys are refused",
            ),
            (used, max) => Finding::good(format!("{used} of {max} bytes of memory are used")),
        }
    }
}

impl RedisSettings {
    /// The report of `semel doctor`. Writes nothing.
    pub(crate) async fn findings(&self) -> Vec<Finding> {
        let findings = timeout(self.call_timeout, self.read_findings()).await;
        findings.unwrap_or_else(|_| Err(timed_out())).unwrap_or_else(|error| vec![bad(&error)])
    }

    async fn read_findings(&self) -> Result<Vec<Finding>> {
        let mut connection = self.connect().await?;
        let (mut findings, appendfsync) = (Vec::new(), connection.appendfsync().await);
        for server in connection.servers().await? {
            match server.refuse_unfit(&self.url.topology) {
                Ok(()) => findings.extend(server.findings(appendfsync.as_deref(), self.role)),
                Err(error) => findings.push(bad(&error)),
            }
        }
        findings.extend(self.meta_findings(&mut connection).await);
        Ok(findings)
    }
}

/// Splits an error text at its semicolon: the problem is before it, the fix after it.
pub(crate) fn bad(error: &Error) -> Finding {
    let text = error.to_string();
    let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/stores/redis.md"));
    Finding::bad(what, fix)
}

impl RedisConnection {
    /// Reads `INFO` from every primary.
    pub(crate) async fn servers(&mut self) -> Result<Vec<RedisServerInfo>> {
        let mut info = cmd("INFO");
        // The section is named, so that a server and a cluster reply with the same fields.
        info.arg("everything");
        let texts = self.query_primaries_unbounded(info).await?;
        texts.iter().map(|text| RedisServerInfo::parse(&text_of(text)?)).collect()
    }

    /// The least durable `appendfsync` of the primaries, if this user may read it.
    async fn appendfsync(&mut self) -> Option<String> {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg("appendfsync").arg("no-appendfsync-on-rewrite");
        let replies = self.query_primaries_unbounded(get).await.ok()?;
        let settings: Vec<_> = replies.iter().map(fsync_policy).collect::<Option<_>>()?;
        settings.into_iter().max_by_key(|it| it != "always")
    }
}

/// When a server with these settings flushes writes to disk.
fn fsync_policy(reply: &Value) -> Option<String> {
    let Value::Array(words) = reply else { return None };
    let words = words.iter().map(text_of).collect::<Result<Vec<_>>>().ok()?;
    let setting = |name: &str| words.chunks(2).find(|pair| pair[0] == name)?.get(1);
    let appendfsync = setting("appendfsync")?;
    Some(match setting("no-appendfsync-on-rewrite").map(String::as_str) {
        Some("yes") => {
            format!("{appendfsync}, but not during a rewrite (no-appendfsync-on-rewrite yes)")
        }
        _ => appendfsync.clone(),
    })
}

/// What a lost write means for the role.
const fn forgets(role: RedisRole) -> &'static str {
    match role {
        RedisRole::Store => "forgets claims and outcomes",
        RedisRole::Front(_) => "forgets removals, and may then replay erased or forgotten outcomes",
    }
}

#[cfg(test)]
mod tests {
    use semel_core::Level;

    use super::*;

    const FIT: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\n\
                       maxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

    fn refusal(info: &str) -> String {
        let server = RedisServerInfo::parse(info).unwrap();
        server.refuse_unfit(&RedisTopology::Standalone).unwrap_err().to_string()
    }

    #[test]
    fn a_fit_server_is_accepted() {
        RedisServerInfo::parse(FIT).unwrap().refuse_unfit(&RedisTopology::Standalone).unwrap();
    }

    #[test]
    fn only_appendfsync_always_is_reported_as_good() {
        let level = |info: &str, appendfsync| {
            let findings =
                RedisServerInfo::parse(info).unwrap().findings(appendfsync, RedisRole::Store);
            findings.into_iter().find(|it| it.what.contains("appendonly")).unwrap().level
        };
        let writing = format!("{FIT}aof_enabled:1\r\n");
        assert_eq!(level(&writing, Some("always")), Level::Good);
        for (info, appendfsync) in
            [(writing.as_str(), Some("everysec")), (&writing, None), (FIT, Some("always"))]
        {
            assert_eq!(level(info, appendfsync), Level::Warning);
        }
    }

    #[test]
    fn each_unfit_server_is_refused_with_the_fix() {
        assert!(refusal(&FIT.replace("7.0.15", "6.2.1")).contains("Redis 7"));
        assert!(refusal(&FIT.replace("master", "slave")).contains("replica"));
        assert!(refusal(&FIT.replace("noeviction", "allkeys-lru")).contains("noeviction"));
        assert!(refusal(&FIT.replace("enabled:0", "enabled:1")).contains("redis+cluster://"));
        assert!(
            RedisServerInfo::parse(FIT).unwrap().refuse_unfit(&RedisTopology::Cluster).is_err()
        );
        assert!(refusal("").contains("too old"));
    }
}
