//! The examples and notes that `--help` prints after the flags, and how an error on the command line is reported.

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
  semel worker --demo

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

  For payments: keep outcomes for 30 days, require keys, hold keys whose owner was lost:
    semel gateway --upstream http://127.0.0.1:3000 --principal jwt:keys.json \\
      --retention 30d --require-key --on-lost-owner hold

  Watch before you enforce, with metrics:
    semel gateway --upstream http://127.0.0.1:3000 --principal authorization \\
      --mode observe --admin 127.0.0.1:9090

Times are written 500ms, 30s, 10m, 24h or 7d; sizes 1048576, 64KiB or 1MiB.
Every setting can be written in semel.toml; routes, further upstreams and timeouts only there. Precedence: flags,
then SEMEL_* variables, then semel.toml. `semel config check` shows the values in force and where each came from.";

pub(crate) const WORKER: &str = "\
Examples:
  See it work, without a broker:
    semel worker --demo

  Events of a NATS JetStream consumer, for one process with a folder as its store:
    semel worker --source nats://127.0.0.1:4222/ORDERS/billing --handler http://127.0.0.1:3000/events \\
      --dead-letter file:dead-letters

  Events of a Kafka topic, with a build that has every broker (--features full):
    semel worker --source 'kafka://127.0.0.1:9092/orders?group=billing' --handler http://127.0.0.1:3000/events \\
      --dead-letter 'kafka://127.0.0.1:9092/dead-letters?create=true'

  Several workers that share a store:
    semel worker --source nats://nats:4222/ORDERS/billing --handler http://billing/events \\
      --store postgres://app@db/app --namespace shop --dead-letter postgres://app@db/app --admin 127.0.0.1:9090

The handler gets a POST for each event, with the attributes of the event as ce-* headers (CloudEvents 1.0, binary mode)
and the same Idempotency-Key on every attempt. 2xx is success; 400, 410, 413, 415 and 422 make the message a dead
letter at once; every other status, and no answer, is tried again up to --max-attempts. See docs/WORKER.md.

Times are written 500ms, 30s, 10m, 24h or 7d; sizes 1048576, 64KiB or 1MiB.
Every setting can be written in semel.toml, in the section [worker]; the settings of store, log and admin listener are
those of the gateway. Precedence: flags, then SEMEL_* variables, then semel.toml.

Exit codes: 0 ended by a signal, 1 failed, 2 bad usage or bad settings";

pub(crate) const LETTERS_LIST: &str = "\
Examples:
  semel dead-letters list --dead-letter file:dead-letters
  semel dead-letters list --json --limit 1000 | jq -r .id

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const LETTERS_SHOW: &str = "\
The message is shown with its headers and its payload.

Example:
  semel dead-letters show ID --dead-letter file:dead-letters

Exit codes: 0 found, 1 not found or failed, 2 bad usage or bad settings";

pub(crate) const LETTERS_REDRIVE: &str = "\
First repair what made the event fail. The message is published again with the id of its event, and the worker processes
it as if it were new. A redrive is refused if a success is recorded, while the event runs, and if it is not known whether
it took effect. The store, its namespace and its hash secret must be those of the worker. A folder can be opened by one
process at a time: end the worker that uses it first. On another store the copy would count as a duplicate in the
worker's own, and be lost: a letter of an event that was attempted, but has no record in this store, is refused. If the
store is the right one, and the record has only expired, add --without-record.

Examples:
  semel dead-letters redrive ID --reason 'price list repaired, INC-7'
  semel dead-letters redrive --all --reason 'billing is back, INC-8'

Exit codes: 0 all redriven, 1 not found, refused or failed, 2 bad usage or bad settings";

pub(crate) const LETTERS_DISCARD: &str = "\
The message is removed and NOT processed: for what must not run, such as a test, a duplicate, or a letter with the reason
mismatch, whose payload is another one than that of the event that ran under this id. The reason is logged on stderr.

Example:
  semel dead-letters discard ID --reason 'test order, INC-7'

Exit codes: 0 removed, 1 not found or failed, 2 bad usage or bad settings";

pub(crate) const CHECK: &str = "\
A file with the section [worker] is checked for `semel worker`, too, and for it alone if nothing of a gateway is set. The
flags are those of the gateway.

Examples:
  semel config check
  semel config check --config /etc/semel.toml --listen 0.0.0.0:8080

Exit codes: 0 the settings are valid, 2 they are not";

pub(crate) const KEYS_GET: &str = "\
Examples:
  By the digits that a log shows:
    semel keys get 1a2b3c4d --store postgres://app@db/app

  By its parts:
    semel keys get order-42 --namespace payments --principal user-7 --operation 'POST /charges'

Exit codes: 0 found, 1 not found or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_LIST: &str = "\
Examples:
  Keys that wait for an operator:
    semel keys list --state unknown

  For programs, one line of JSON for each key:
    semel keys list --json --limit 1000 | jq .id

On Redis the command scans all keys of the server, which takes a while if there are many.

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const KEYS_RESOLVE: &str = "\
First find out at the receiver (the bank, the queue) whether the operation took effect: `semel keys get KEY` shows
the downstream key that the receiver got, and the token of the run. Then record what you found. With --token, nothing
is changed if another run has begun since you looked; without it, the run that the command finds is resolved.

Examples:
  It took effect; clients get the recorded response:
    semel keys resolve 1a2b3c4d --token 1 --complete charge.json --status 201 --reason 'bank has it, INC-7'

  It did not take effect, and must not be tried again:
    semel keys resolve 1a2b3c4d --token 1 --fail --status 402 --message 'card declined' --reason INC-7

  It did not take effect, or the receiver deduplicates by the downstream key; the next request runs:
    semel keys resolve 1a2b3c4d --token 1 --rerun --reason 'never reached the bank, INC-7'

Exit codes: 0 resolved, 1 not found, refused or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_ERASE: &str = "\
For content that must not be kept, such as personal data. Until the retention ends, requests with this key get 410
and do not run. A run in progress is not stopped, but its outcome is not recorded.

Example:
  semel keys erase 1a2b3c4d --reason 'deletion request 42'

Exit codes: 0 erased, 1 not found or failed, 2 bad usage or bad settings";

pub(crate) const KEYS_FORGET: &str = "\
The next request with this key RUNS AGAIN. A key in progress or with an unknown outcome cannot be forgotten:
see `semel keys resolve`.

Example:
  semel keys forget order-42 --namespace payments --principal user-7 --operation 'POST /charges' \\
    --reason 'test charge, INC-7'

Exit codes: 0 forgotten, 1 not found, refused or failed, 2 bad usage or bad settings";

pub(crate) const PURGE: &str = "\
Examples:
  semel purge
  semel purge --limit 10000 --json

  The table of an inbox; a service that calls `inbox.maintain_every` does this itself:
    semel purge --store postgres://owner@db/app --inbox public.processed_events --retention 30d

Exit codes: 0 done, 1 failed, 2 bad usage or bad settings";

pub(crate) const MIGRATE: &str = "\
Needs the right to create tables in the schema. Gateways do not need it.

Examples:
  semel migrate --store postgres://owner@db/app --dry-run
  semel migrate --store 'postgres://owner@db/app?schema=system'

Exit codes: 0 up to date, 1 failed and nothing was changed, 2 bad usage or bad settings";

pub(crate) const DOCTOR: &str = "\
With a source or dead letters, in the settings or as flags, they are examined for the worker with these settings. Nothing
is received, created or changed, and the partitions of a Kafka group stay where they are.

Examples:
  semel doctor --store postgres://app@db/app --namespace payments
  semel doctor --config /etc/semel.toml --json
  semel doctor --store postgres://app@db/app --namespace shop --source nats://nats:4222/ORDERS/billing

Exit codes: 0 no finding is BAD, 1 at least one is, 2 bad usage or bad settings";

pub(crate) const SEAL_KEY: &str = "\
The first key of a file seals new records; every key of the file opens records. To rotate, add the new key after the
old one on every machine, then move it before the old one, and remove the old one after the longest retention. See
docs/stores/sealed.md.

Example:
  (umask 077; semel seal-key 2026-11 >> seal-keys)
  semel gateway --seal-keys seal-keys …

Exit codes: 0 done, 1 failed, 2 bad usage";

/// Prints the error or the requested help, and ends the process.
pub(crate) fn exit(error: &Error) -> ! {
    let _ = error.print();
    if let Some(variable) = variable(error) {
        crate::complain(format_args!("note: the value is from the variable {variable}"));
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        for variable in not_utf8() {
            crate::complain(format_args!(
                "note: the variable {variable} is not text (UTF-8); write it as text"
            ));
        }
    }
    std::process::exit(error.exit_code())
}

/// The variable that a bad value is from. Clap's error names the flag, even if the value is from a variable.
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

/// The variables whose values are not UTF-8. Paths need not be.
fn not_utf8() -> Vec<String> {
    let arguments = arguments(&crate::Semel::command()).into_iter();
    let is_path = |id| id == TypeId::of::<PathBuf>();
    let texts = arguments.filter(|it| !is_path(it.get_value_parser().type_id()));
    let names = texts.filter_map(|it| it.get_env().map(OsStr::to_owned));
    let bad = names.filter(|name| env::var_os(name).is_some_and(|value| value.to_str().is_none()));
    let names: BTreeSet<_> = bad.map(|name| name.to_string_lossy().into_owned()).collect();
    names.into_iter().collect()
}

/// The arguments of `command` and of all its subcommands.
fn arguments(command: &Command) -> Vec<Arg> {
    let own = command.get_arguments().cloned();
    own.chain(command.get_subcommands().flat_map(arguments)).collect()
}
