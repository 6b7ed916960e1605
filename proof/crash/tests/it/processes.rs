//! Processes are stopped, continued and killed by id, and none is left behind.

#![cfg(target_os = "linux")]

use std::{
    fs, panic,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use semel_crash::{Op, Plan, Process, World};

use crate::PROGRAM;

/// State, parent and start time of a process, while it is there.
fn look(id: u32) -> Option<(char, u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
    Some((state, parent, fields.nth(17)?.parse().ok()?))
}

fn children(parent: u32) -> Vec<(u32, u64)> {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = |id| look(id).filter(|seen| seen.1 == parent).map(|(_, _, start)| (id, start));
    ids.filter_map(own).collect()
}

fn is_there((id, start): (u32, u64)) -> bool {
    look(id).is_some_and(|(state, _, at)| at == start && state != 'Z')
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn sleeper() -> Process {
    let mut command = Command::new("sleep");
    command.arg("600");
    Process::spawn(command).unwrap()
}

fn state(process: &Process) -> char {
    look(process.id()).map_or('-', |seen| seen.0)
}

#[test]
fn a_process_stands_still_between_pause_and_resume() {
    let mut process = sleeper();
    process.pause().unwrap();
    until("it is stopped", || state(&process) == 'T');
    process.resume().unwrap();
    until("it goes on", || state(&process) == 'S');
    assert!(!process.kill().unwrap().success());
}

#[test]
fn a_dropped_process_is_killed_even_when_it_is_stopped() {
    let mut process = sleeper();
    process.pause().unwrap();
    let id = process.id();
    drop(process);
    assert_eq!(look(id), None);
}

#[test]
fn a_panic_leaves_no_process_behind() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = panic::catch_unwind(move || {
        let process = sleeper();
        sender.send(process.id()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(look(receiver.recv().unwrap()), None);
}

#[test]
fn a_worker_ends_when_nobody_holds_its_stdin() {
    let plan = Plan::new(PROGRAM, "memory:");
    let mut world = World::start(&plan).unwrap();
    let mut worker = world.worker(&plan, 1, |_| {}).unwrap();
    worker.await_news(Op::Ready, Duration::from_secs(30)).unwrap();
    worker.process.hang_up();
    let status = worker.process.wait_within(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(3));
}

/// However the harness is ended, with workers running or stopped, they go with it.
#[test]
fn a_harness_that_is_killed_or_interrupted_takes_its_processes_along() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["storm", "plain", "--kills", "1000"]).env("TMPDIR", scratch.path());
        command.stdout(Stdio::null());
        let mut harness = Process::spawn(command).unwrap();
        until("ledger and worker run", || children(harness.id()).len() >= 2);
        let left = children(harness.id());
        // The first is the ledger, which the storm itself leaves alone.
        let first = left.iter().min_by_key(|(_, start)| *start).unwrap().0;
        kill(Pid::from_raw(i32::try_from(first).unwrap()), Signal::SIGSTOP).unwrap();
        kill(Pid::from_raw(i32::try_from(harness.id()).unwrap()), signal).unwrap();
        harness.wait_within(Duration::from_secs(30)).unwrap();
        until("its children are gone", || !left.iter().any(|id| is_there(*id)));
    }
}
