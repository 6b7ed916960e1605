//! What `--help` adds to the flags, and how a slip on the command line is told.

use std::{any::TypeId, env, ffi::OsString, path::PathBuf};

use clap::{
    CommandFactory, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub(crate) const SEMEL: &str = "\
Try it:
  semel gateway --demo

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
    let command = crate::Semel::command();
    let gateway = command.find_subcommand("gateway")?;
    let found = gateway.get_arguments().find(|it| it.get_long() == flag.strip_prefix("--"))?;
    found.get_env().map(|name| name.to_string_lossy().into_owned())
}

/// The variables whose values are not text. Paths need not be.
fn no_text() -> Vec<String> {
    let command = crate::Semel::command();
    let arguments =
        command.find_subcommand("gateway").into_iter().flat_map(|it| it.get_arguments());
    let is_path = |id| id == TypeId::of::<PathBuf>();
    let texts = arguments.filter(|it| !is_path(it.get_value_parser().type_id()));
    let names = texts.filter_map(|it| it.get_env());
    let bad = names.filter(|name| env::var_os(name).is_some_and(|value| value.to_str().is_none()));
    bad.map(|name| name.to_string_lossy().into_owned()).collect()
}
