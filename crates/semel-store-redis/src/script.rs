//! The scripts, each beside the promise it keeps. All have one key, so that they run in a cluster; [`FINISH`] has
//! several elsewhere.
//!
//! Only conditions are in Lua: what a step writes comes from [`steps`](semel_core::steps) in Rust, but
//! for [`RENEW`]. Whatever a script does not decide, it answers with how the key stands, and the steps
//! decide.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

/// A script that the server knows by its hash, or is sent in full.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The call of this script on one key. Arguments follow.
    pub(crate) fn call(&self, key: &[u8], how: How) -> Cmd {
        self.call_on(&[key], how)
    }

    /// The call of this script on these keys. Arguments follow.
    pub(crate) fn call_on(&self, keys: &[impl ToRedisArgs], how: How) -> Cmd {
        let mut call = Cmd::with_capacity(6 + 4 * keys.len(), 512 * keys.len());
        match how {
            How::ByHash => call.arg("EVALSHA").arg(&self.hash),
            How::InFull => call.arg("EVAL").arg(self.text),
        };
        call.arg(keys.len()).arg(keys);
        call
    }
}

/// How a script is named to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    ByHash,
    /// After `NOSCRIPT`: the server forgot it, and nothing happened.
    InFull,
}

macro_rules! script {
    ($flags:literal, $file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                "#!lua",
                $flags,
                "\n",
                include_str!("script/common.lua"),
                include_str!($file)
            ))
        })
    };
    (alone $flags:literal, $file:literal) => {
        LazyLock::new(|| Script::new(concat!("#!lua", $flags, "\n", include_str!($file))))
    };
}

/// How a key stands, with the store's time.
pub(crate) static LOOK: LazyLock<Script> = script!(" flags=no-writes", "script/look.lua");

/// A claim that met a record: grants what was released or whose lease is over, re-arms the claim's own
/// lease (T2), marks a live one as waited for. Refused when memory is full, as every claim.
pub(crate) static CONTEND: LazyLock<Script> = script!("", "script/contend.lua");

/// T6 for the owner. Writes no more than the TTL, after the first time.
pub(crate) static RENEW: LazyLock<Script> = script!(" flags=allow-oom", "script/renew.lua");

/// Ends claims that are as their owners wrote them. Allowed when memory is full: the effect has happened.
pub(crate) static FINISH: LazyLock<Script> = script!(alone " flags=allow-oom", "script/finish.lua");

/// Puts a record where it was looked at and nothing has changed since, the TTL included: a renewal
/// changes nothing else.
pub(crate) static SWAP: LazyLock<Script> = script!(" flags=allow-oom", "script/swap.lua");

/// Puts a key into the index of stuck ones. Allowed when memory is full, as what makes it stuck.
pub(crate) static STUCK: LazyLock<Script> = script!(alone " flags=allow-oom", "script/stuck.lua");

/// Moves or removes a member of an index that nobody put there anew.
pub(crate) static KEEP: LazyLock<Script> = script!(alone " flags=allow-oom", "script/keep.lua");

/// Puts a copy of another store's record, unless one is there, it was removed, or this comes too late. Refused
/// when memory is full: a copy is only a saving.
pub(crate) static PUT: LazyLock<Script> = script!(alone "", "script/put.lua");

/// Removes such a copy, and leaves a mark. Allowed when memory is full.
pub(crate) static REMOVE: LazyLock<Script> = script!(alone " flags=allow-oom", "script/remove.lua");

/// Takes or keeps the lead.
pub(crate) static LEAD: LazyLock<Script> = script!(alone " flags=allow-oom", "script/lead.lua");
