//! Runs test binaries side by side. Most tests wait for servers, leases and faults; they hardly compute.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, ensure};
use semel_servers::command;

use crate::gate::GateRun;
use crate::gate::output;
use crate::gate::report::seconds;
use crate::gate::tests::binary::TestBinary;

/// A binary that runs longer hangs: it is killed with its children, and its open tests are named.
const BOUND: Duration = Duration::from_secs(15 * 60);

/// Runs all binaries and prints each as it ends. A failure does not stop the others.
pub(crate) fn run(gate: &GateRun, binaries: Vec<TestBinary>) -> Result<()> {
    let started = Instant::now();
    let count = binaries.len();
    let queue = Mutex::new(binaries.into_iter());
    let failed = Mutex::new(Vec::new());
    let tests = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..gate.jobs {
            scope.spawn(|| {
                loop {
                    let next = locked(&queue).next();
                    let Some(binary) = next else { break };
                    match run_one(gate, &binary) {
                        Ok(passed) => _ = tests.fetch_add(passed, Ordering::Relaxed),
                        Err(error) => locked(&failed).push(format!("{}: {error:#}", binary.name)),
                    }
                }
            });
        }
    });
    // Binaries that an interrupt kept from starting did not fail.
    command::permit()?;
    let failed = locked(&failed);
    let passed = tests.into_inner();
    println!("{passed} tests passed in {count} binaries, {}", seconds(started.elapsed()));
    ensure!(
        failed.is_empty(),
        "{} of {count} binaries failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}

/// Runs one binary and returns how many tests passed. Prints its output when one failed.
fn run_one(gate: &GateRun, binary: &TestBinary) -> Result<usize> {
    command::permit()?;
    let log = gate.workspace.logs().join(format!("{}.log", binary.name.replace(' ', "-")));
    let started = Instant::now();
    let mut command = binary.command(&gate.workspace);
    command.envs(gate.variables());
    let ended = output::run_into(&mut command, &log, BOUND);
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    let result = ended.map_err(|error| with_names(error, &text)).and_then(|()| passed(&text));
    let took = seconds(started.elapsed());
    match &result {
        Ok(count) => println!("{took:>9}  passed  {count:>4} tests  {}", binary.name),
        Err(_) => println!("{took:>9}  FAILED  {}, output:\n{text}", binary.name),
    }
    result
}

/// How many tests passed, by the last line that the test harness printed.
fn passed(output: &str) -> Result<usize> {
    let line = output.lines().rfind(|line| line.starts_with("test result: ok. "));
    let count = line.and_then(|line| line.split(' ').nth(3)).and_then(|count| count.parse().ok());
    count.ok_or_else(|| anyhow!("it ended before its tests did"))
}

/// Adds the names of the tests that failed or, when the binary was killed, of those that did not end.
fn with_names(error: Error, output: &str) -> Error {
    let lines = || output.lines().filter_map(|line| line.strip_prefix("test "));
    let failed: Vec<_> = lines().filter_map(|line| line.strip_suffix(" ... FAILED")).collect();
    let slow = lines().filter_map(|line| line.split_once(" has been running for over "));
    let ended = |name: &str| lines().any(|line| line.starts_with(&format!("{name} ... ")));
    let open: Vec<_> = slow.map(|(name, _)| name).filter(|name| !ended(name)).collect();
    let named = |error: Error, what: &str, names: &[&str]| match names {
        [] => error,
        names => error.context(format!("{what}: {}", names.join(", "))),
    };
    named(named(error, "did not end", &open), "failed", &failed)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_passed_are_counted() {
        let output = "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(output).unwrap(), 3);
    }

    #[test]
    fn a_binary_that_exits_within_a_test_has_failed() {
        assert!(passed("running 3 tests\n").is_err());
    }

    #[test]
    fn tests_that_failed_are_named() {
        let error =
            format!("{:#}", with_names(anyhow!("101"), "test a ... ok\ntest b ... FAILED\n"));
        assert_eq!(error, "failed: b: 101");
    }

    #[test]
    fn tests_that_hang_are_named() {
        let output = "test a has been running for over 60 seconds\n\
                      test b has been running for over 60 seconds\ntest a ... ok\n";
        let error = format!("{:#}", with_names(anyhow!("killed"), output));
        assert_eq!(error, "did not end: b: killed");
    }
}
