//! The Lua scripts, and what each guarantees. A script has one key, so that it runs in a cluster; without a cluster,
//! [`COMPLETE`] has several.
//!
//! Only conditions are in Lua. What a step writes comes from [`steps`](semel_core::steps) in Rust, except for
//! [`RENEW`]. If a script does not decide, it returns the record with its expiry, and the steps decide.
//!
//! A changed comment in a script changes its hash, so the texts stay as they are.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

/// A script, which is called by its hash, or by its text if the server does not have it.
#[derive(Debug)]
pub(crate) struct LuaScript {
    text: &'static str,
    hash: String,
}

impl LuaScript {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The call of this script on one key. Arguments follow.
    pub(crate) fn call(&self, key: &[u8], script_call: ScriptCall) -> Cmd {
        self.call_on(&[key], script_call)
    }

    /// The call of this script on these keys. Arguments follow.
    pub(crate) fn call_on(&self, keys: &[impl ToRedisArgs], script_call: ScriptCall) -> Cmd {
        let mut call = Cmd::with_capacity(6 + 4 * keys.len(), 512 * keys.len());
        match script_call {
            ScriptCall::ByHash => call.arg("EVALSHA").arg(&self.hash),
            ScriptCall::InFull => call.arg("EVAL").arg(self.text),
        };
        call.arg(keys.len()).arg(keys);
        call
    }
}

/// How a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptCall {
    ByHash,
    /// After `NOSCRIPT`: the server did not have the script, and executed nothing.
    InFull,
}

macro_rules! script {
    ($flags:literal, $file:literal) => {
        LazyLock::new(|| {
            LuaScript::new(concat!(
                "#!lua",
                $flags,
                "\n",
                include_str!("script/common.lua"),
                include_str!($file)
            ))
        })
    };
    (alone $flags:literal, $file:literal) => {
        LazyLock::new(|| LuaScript::new(concat!("#!lua", $flags, "\n", include_str!($file))))
    };
}

/// Reads a record with its expiry, and the server's time.
pub(crate) static READ: LazyLock<LuaScript> = script!(" flags=no-writes", "script/read.lua");

/// A claim of a key that has a record: takes a released key or one whose lease has ended, renews the claim's own
/// lease (T2), or marks another owner's record as waited for. Refused when memory is full, as every claim.
pub(crate) static CONTEND: LazyLock<LuaScript> = script!("", "script/contend.lua");

/// T6 for the owner. After the first time, it writes the TTL only.
pub(crate) static RENEW: LazyLock<LuaScript> = script!(" flags=allow-oom", "script/renew.lua");

/// Completes claims that have not changed since their owners wrote them. Allowed when memory is full: the effect has
/// happened.
pub(crate) static COMPLETE: LazyLock<LuaScript> =
    script!(alone " flags=allow-oom", "script/complete.lua");

/// Writes a record if head and TTL have not changed since the read. A renewal changes the TTL only, so it is
/// compared too.
pub(crate) static SWAP: LazyLock<LuaScript> = script!(" flags=allow-oom", "script/swap.lua");

/// Adds a key to the index of Unknown and Dead keys. Allowed when memory is full, as is the write of that record.
pub(crate) static ADD_STUCK: LazyLock<LuaScript> =
    script!(alone " flags=allow-oom", "script/add_stuck.lua");

/// Updates or removes an index entry, if no request has added it again.
pub(crate) static UPDATE_ENTRY: LazyLock<LuaScript> =
    script!(alone " flags=allow-oom", "script/update_entry.lua");

/// Writes a replica, unless there is one, it was removed, or this comes too late. Refused when memory is full: a
/// replica only saves time.
pub(crate) static PUT_REPLICA: LazyLock<LuaScript> = script!(alone "", "script/put_replica.lua");

/// Removes a replica, and leaves a mark. Allowed when memory is full.
pub(crate) static REMOVE_REPLICA: LazyLock<LuaScript> =
    script!(alone " flags=allow-oom", "script/remove_replica.lua");

/// Becomes or stays the leader.
pub(crate) static LEAD: LazyLock<LuaScript> = script!(alone " flags=allow-oom", "script/lead.lua");
