//! As much of a test harness as tests need that run one after another.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

use tokio::runtime::{Builder, Runtime};

/// Its name, and what runs it.
pub(crate) type Test = (&'static str, fn(&Runtime));

/// The tests of these names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), |runtime| runtime.block_on(crate::promises::$name()))),*]
    };
}
pub(crate) use tests;

/// Options of the usual harness whose value is a word of its own.
const WITH_VALUE: [&str; 5] = ["--color", "--format", "--logfile", "--skip", "--test-threads"];

/// What the arguments ask for.
#[derive(Default)]
struct Asked {
    filters: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    ignored: bool,
}

impl Asked {
    /// Options that change nothing here are passed over.
    fn of(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--exact" => asked.exact = true,
                "--list" => asked.list = true,
                "--ignored" => asked.ignored = true,
                "--skip" => asked.skipped.extend(arguments.next()),
                option if WITH_VALUE.contains(&option) => drop(arguments.next()),
                option if option.starts_with('-') => {}
                _ => asked.filters.push(argument),
            }
        }
        asked
    }

    fn takes(&self, name: &str) -> bool {
        let fits = |filter: &String| {
            if self.exact { name == filter } else { name.contains(filter.as_str()) }
        };
        !self.ignored
            && (self.filters.is_empty() || self.filters.iter().any(fits))
            && !self.skipped.iter().any(fits)
    }
}

/// Runs what the arguments ask for. Fails if one of them does.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let asked = Asked::of(env::args().skip(1));
    let here = cfg!(target_os = "linux");
    let taken: Vec<_> = tests.iter().filter(|(name, _)| here && asked.takes(name)).collect();
    if asked.list {
        taken.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", taken.len());
    let started_at = Instant::now();
    let failed: Vec<_> = taken.iter().filter(|test| !passes(test)).map(|(name, _)| name).collect();
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        taken.len() - failed.len(),
        failed.len(),
        tests.len() - taken.len(),
        started_at.elapsed().as_secs_f64(),
    );
    failed.iter().for_each(|name| println!("failed: {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each has a runtime of its own, and leaves no task behind.
fn passes((name, test): &Test) -> bool {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let passed = catch_unwind(AssertUnwindSafe(|| test(&runtime))).is_ok();
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}
