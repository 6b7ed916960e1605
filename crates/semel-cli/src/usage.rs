//! What `--help` adds to the flags, and how a slip on the command line is told.

use std::{
    any::TypeId,
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{
    Arg, Command, CommandFactory, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub(crate) const SEMEL: &str = "\
Try it:
  semel gateway --demo

On a store that many gateways share:
  semel migrate --store postgres://app@db/app
  semel gateway --store postgres://app@db/app --namespace payments --upstream … --principal …
  semel doctor --store postgres://app@db/app --namespace payments

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const GATEWAY: &str = "\
Examples:
  See it work, with a built-in upstream:
    semel gateway --demo

  In front of a service whose clients send API keys:
    semel gateway --upstream http://127.0.0.1:3000 --principal authorization

  For money: keep outcomes for 30 days, insist on keys, never run twice on a guess:
    semel gateway --upstream http://127.0.0.1:3000 --principal jwt:keys.json \\
      --retention 30d --require-key --on-lost-owner hold

  Watch before you enforce, with metrics:
    semel gateway --upstream http://127.0.0.1:3000 --principal authorization \\
      --mode observe --admin 127.0.0.1:9090

Times are written 500ms, 30s, 10m, 24h or 7d; sizes 1048576, 64KiB or 1MiB.
Everything can be written in semel.toml, where routes, upstreams and timeouts are too; SEMEL_* goes
before the file, flags before both. `semel config check` says what is in force.";

pub(crate) const CHECK: &str = "\
Examples:
  semel config check
  semel config check --config /etc/semel.toml --listen 0.0.0.0:8080

Exit codes: 0 the settings are good, 2 they are not";

pub(crate) const KEYS_GET: &str = "\
Examples:
  By the digits that a log shows:
    semel keys get 1a2b3c4d --store postgres://app@db/app

  By what it was made from:
    semel keys get order-42 --namespace payments --principal user-7 --operation 'POST /charges'

Exit codes: 0 found, 1 not there or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_LIST: &str = "\
Examples:
  What waits for an operator:
    semel keys list --state unknown

  For programs, one line of JSON for each:
    semel keys list --json --limit 1000 | jq .id

Of Redis every key is looked at: it takes a while where there are many.

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const KEYS_RESOLVE: &str = "\
First find out at the receiver (the bank, the queue) whether the operation took effect: `semel keys get KEY` shows
the downstream key that it was asked under, and the token of the run. Then record what you found. With --token nothing
is changed if the key has moved on since you looked; without it, the decision is about the run that the command finds.

Examples:
  It took effect; clients get the answer that they were waiting for:
    semel keys resolve 1a2b3c4d --token 1 --complete charge.json --status 201 --reason 'bank has it, INC-7'

  It did not, and is not to be tried again:
    semel keys resolve 1a2b3c4d --token 1 --fail --status 402 --message 'card declined' --reason INC-7

  It did not, or the receiver deduplicates on the downstream key; the next request runs:
    semel keys resolve 1a2b3c4d --token 1 --rerun --reason 'never reached the bank, INC-7'

Exit codes: 0 decided, 1 not there, refused or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_ERASE: &str = "\
For what must not be kept, such as personal data. The next requests with this key get 410 and do not run, for as
long as an outcome is kept. A run in progress is not stopped, but its outcome is dropped.

Example:
  semel keys erase 1a2b3c4d --reason 'deletion request 42'

Exit codes: 0 erased, 1 not there or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_FORGET: &str = "\
The next request with this key RUNS AGAIN. A key in progress, or whose outcome is unknown, is not forgotten:
see `semel keys resolve`.

Example:
  semel keys forget order-42 --namespace payments --principal user-7 --operation 'POST /charges' \\
    --reason 'test charge, INC-7'

Exit codes: 0 forgotten, 1 not there, refused or failed, 2 bad usage or bad settings";

pub(crate) const PURGE: &str = "\
Examples:
  semel purge
  semel purge --limit 10000 --json

  The table of an inbox, which a service with `inbox.keep_up` looks after by itself:
    semel purge --store postgres://owner@db/app --inbox public.processed_events --retention 30d

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const MIGRATE: &str = "\
Needs the right to make tables in the schema; gateways that run afterwards do not.

Examples:
  semel migrate --store postgres://owner@db/app --dry-run
  semel migrate --store 'postgres://owner@db/app?schema=system'

Exit codes: 0 up to date, 1 failed and nothing was changed, 2 bad usage or bad settings";

pub(crate) const DOCTOR: &str = "\
Examples:
  semel doctor --store postgres://app@db/app --namespace payments
  semel doctor --config /etc/semel.toml --json

Exit codes: 0 nothing is bad, 1 something is, 2 bad usage or bad settings";

pub(crate) const SEAL_KEY: &str = "\
The first key of a file seals, all of them open. To rotate, put the new key behind the old one on every machine,
then before it, and remove the old one after the longest retention. docs/stores/sealed.md has the rest.

Example:
  (umask 077; semel seal-key 2026-11 >> seal-keys)
  semel gateway --seal-keys seal-keys …

Exit codes: 0 done, 1 failed, 2 bad usage";

/// Prints the error, or the help that was asked for, and ends the process.
pub(crate) fn exit(error: &Error) -> ! {
    let _ = error.print();
    if let Some(variable) = variable(error) {
        crate::complain(format_args!("note: the value is from the variable {variable}"));
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        for variable in no_text() {
            crate::complain(format_args!(
                "note: the variable {variable} is not text (UTF-8); write it as text"
            ));
        }
    }
    std::process::exit(error.exit_code())
}

/// The variable that a bad value is from. Clap names the flag, which may not be there.
fn variable(error: &Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = argument.split([' ', '=', '[']).next()?;
    let is_flag = |given: &OsString| given.to_string_lossy().split('=').next() == Some(flag);
    if env::args_os().any(|given| is_flag(&given)) {
        return None;
    }
    let arguments = arguments(&crate::Semel::command());
    let found = arguments.into_iter().find(|it| it.get_long() == flag.strip_prefix("--"))?;
    found.get_env().map(|name| name.to_string_lossy().into_owned())
}

/// The variables whose values are not text. Paths need not be.
fn no_text() -> Vec<String> {
    let arguments = arguments(&crate::Semel::command()).into_iter();
    let is_path = |id| id == TypeId::of::<PathBuf>();
    let texts = arguments.filter(|it| !is_path(it.get_value_parser().type_id()));
    let names = texts.filter_map(|it| it.get_env().map(OsStr::to_owned));
    let bad = names.filter(|name| env::var_os(name).is_some_and(|value| value.to_str().is_none()));
    let names: BTreeSet<_> = bad.map(|name| name.to_string_lossy().into_owned()).collect();
    names.into_iter().collect()
}

/// Those of all commands.
fn arguments(command: &Command) -> Vec<Arg> {
    let own = command.get_arguments().cloned();
    own.chain(command.get_subcommands().flat_map(arguments)).collect()
}
