//! Processes are stopped, continued and killed by id, and none outlives the harness.

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
use semel_crash::{ChaosPlan, ChildProcess, Harness, Op};

use crate::PROGRAM;

/// State, parent and start time of a process, while it exists.
fn stat(id: u32) -> Option<(char, u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
    Some((state, parent, fields.nth(17)?.parse().ok()?))
}

fn children(parent: u32) -> Vec<(u32, u64)> {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = |id| stat(id).filter(|stat| stat.1 == parent).map(|(_, _, start)| (id, start));
    ids.filter_map(own).collect()
}

fn is_there((id, start): (u32, u64)) -> bool {
    stat(id).is_some_and(|(state, _, at)| at == start && state != 'Z')
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn sleeper() -> ChildProcess {
    let mut command = Command::new("sleep");
    command.arg("600");
    ChildProcess::spawn(command).unwrap()
}

fn state(process: &ChildProcess) -> char {
    stat(process.id()).map_or('-', |stat| stat.0)
}

#[test]
fn a_process_does_nothing_between_pause_and_resume() {
    let mut process = sleeper();
    process.pause().unwrap();
    until("the process is stopped", || state(&process) == 'T');
    process.resume().unwrap();
    until("the process continues", || state(&process) == 'S');
    assert!(!process.kill().unwrap().success());
}

#[test]
fn a_dropped_process_is_killed_even_when_it_is_stopped() {
    let mut process = sleeper();
    process.pause().unwrap();
    let id = process.id();
    drop(process);
    assert_eq!(stat(id), None);
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
    assert_eq!(stat(receiver.recv().unwrap()), None);
}

#[test]
fn a_worker_ends_when_its_stdin_is_closed() {
    let plan = ChaosPlan::new(PROGRAM, "memory:");
    let mut harness = Harness::start(&plan).unwrap();
    let mut worker = harness.worker(&plan, 1, |_| {}).unwrap();
    worker.await_event(Op::Ready, Duration::from_secs(30)).unwrap();
    worker.process.hang_up();
    let status = worker.process.wait_within(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(3));
}

/// Workers end with the harness, whether they run or are stopped.
#[test]
fn the_processes_of_a_killed_or_interrupted_harness_end() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["chaos", "plain", "--kills", "1000"]).env("TMPDIR", scratch.path());
        command.stdout(Stdio::null());
        let mut harness = ChildProcess::spawn(command).unwrap();
        until("ledger and worker run", || children(harness.id()).len() >= 2);
        let left = children(harness.id());
        // The first is the ledger, which the chaos run itself does not stop.
        let first = left.iter().min_by_key(|(_, start)| *start).unwrap().0;
        kill(Pid::from_raw(i32::try_from(first).unwrap()), Signal::SIGSTOP).unwrap();
        kill(Pid::from_raw(i32::try_from(harness.id()).unwrap()), signal).unwrap();
        harness.wait_within(Duration::from_secs(30)).unwrap();
        until("the children have ended", || !left.iter().any(|id| is_there(*id)));
    }
}
