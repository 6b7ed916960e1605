//! Runs a story under many schedules.

use std::{
    cell::Cell,
    env,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use shuttle::{
    Config, MaxSteps, Runner,
    future::{block_on, spawn},
    scheduler::{
        PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
    },
};

use super::{
    planted_bugs::{self, Bug},
    runtime, time,
};

/// Random schedules for each story. `SEMEL_SCHEDULES` sets another number.
const SCHEDULES: usize = 10_000;

const _: () = assert!(SCHEDULES >= 10_000, "docs/PROOF.md promises as many");

/// The gate says the same on every machine. `SHUTTLE_RANDOM_SEED` sets another seed.
const SEED: u64 = 4_711;

/// Changes of priority in one PCT schedule; most races need two at most.
const PCT_DEPTH: usize = 3;

/// Far more than any story takes: who gets here runs in a circle.
const MAX_STEPS: usize = 100_000;

/// Spawned first in every schedule.
const PASSING_TIME: usize = 1;

thread_local! {
    /// The story is told.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// When virtual time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When nobody can go on without. Deadlines are met by whoever does not sleep through them.
    WhenIdle,
    /// Whenever the schedule says so: any code may take any time.
    AtAnyTime,
}

/// Holds `story` to its assertions under [`SCHEDULES`] random schedules and a tenth as many by PCT.
/// Who waits in vain fails too: as a deadlock, or by running in a circle.
///
/// `SEMEL_REPLAY` repeats one schedule instead.
pub fn explore<Fut: Future<Output = ()>>(
    pace: Pace,
    story: impl Fn() -> Fut + Send + Sync + 'static,
) {
    let story = Arc::new(story);
    if let Ok(schedule) = env::var("SEMEL_REPLAY") {
        run(ReplayScheduler::new_from_encoded(schedule.trim()), story);
        return;
    }
    let (count, started) = (count(), Instant::now());
    let by_pct = count.div_ceil(10);
    let schedulers: [(usize, Box<dyn Scheduler + Send>); 2] = [
        (count, Box::new(RandomScheduler::new_from_seed(SEED, count))),
        (by_pct, Box::new(PctScheduler::new_from_seed(SEED, PCT_DEPTH, by_pct))),
    ];
    for (promised, scheduler) in schedulers {
        let timed = Timed { pace, scheduler };
        let held = catch_unwind(AssertUnwindSafe(|| run(timed, story.clone())));
        let ran = held.unwrap_or_else(|panic| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            eprintln!(
                "to repeat: cargo xtask schedules {name} --replay 'SCHEDULE', all lines of it"
            );
            resume_unwind(panic)
        });
        assert_eq!(ran, promised, "as many schedules as promised");
    }
    println!("{count} random schedules and {by_pct} by PCT in {:.1?}", started.elapsed());
}

/// Proves that `story` notices `bug` within [`SCHEDULES`] random schedules, that it `says` so, and that
/// the schedule which showed it shows it again.
pub fn caught<Fut: Future<Output = ()>>(
    bug: Bug,
    pace: Pace,
    says: &str,
    story: impl Fn() -> Fut + Send + Sync + 'static,
) {
    planted_bugs::plant(bug);
    let (story, taken) = (Arc::new(story), Taken::default());
    let scheduler = Timed { pace, scheduler: RandomScheduler::new_from_seed(SEED, SCHEDULES) };
    let recorded = Recorded { scheduler, taken: taken.clone() };
    let Some(panic) = panic_of(|| _ = run(recorded, story.clone())) else {
        panic!("{bug:?} went unnoticed in {SCHEDULES} schedules");
    };
    assert!(panic.contains(says), "{bug:?} was noticed, but not for what it is: {panic}");
    let Taken { count, schedule } = &taken;
    println!("{bug:?} caught by schedule {}", count.load(Relaxed));
    let replay = ReplayScheduler::new_from_schedule(schedule.lock().clone());
    assert_eq!(panic_of(|| _ = run(replay, story)), Some(panic), "a schedule can be repeated");
}

fn panic_of(run: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Some(text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_default())
}

fn count() -> usize {
    let wanted = env::var("SEMEL_SCHEDULES").ok();
    wanted.map_or(SCHEDULES, |text| text.parse().expect("SEMEL_SCHEDULES is a number"))
}

/// Answers how many schedules there were.
fn run<Fut: Future<Output = ()>>(
    scheduler: impl Scheduler + 'static,
    story: Arc<impl Fn() -> Fut + Send + Sync + 'static>,
) -> usize {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        time::begin();
        runtime::begin();
        drop(spawn(time::pass()));
        ENDING.set(false);
        block_on(async {
            story().await;
            // Whoever goes on in the background comes to a rest; then it can be dropped.
            ENDING.set(true);
            time::sleep(Duration::from_nanos(1)).await;
        });
    })
}

/// Lets time pass when `pace` says so, and leaves the rest to another scheduler.
struct Timed<S> {
    pace: Pace,
    scheduler: S,
}

impl<S: Scheduler> Scheduler for Timed<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.scheduler.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let passing_time = TaskId::from(PASSING_TIME);
        let others: Vec<&Task> =
            runnable.iter().copied().filter(|task| task.id() != passing_time).collect();
        let time_stands = self.pace == Pace::WhenIdle || ENDING.get();
        let choice = if time_stands && !others.is_empty() { &others } else { runnable };
        self.scheduler.next_task(choice, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}

/// How many schedules there were, and the last one.
#[derive(Clone, Default)]
struct Taken {
    count: Arc<AtomicUsize>,
    schedule: Arc<Mutex<Schedule>>,
}

/// Writes down what another scheduler chooses.
struct Recorded<S> {
    scheduler: S,
    taken: Taken,
}

impl<S: Scheduler> Scheduler for Recorded<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.scheduler.new_execution()?;
        self.taken.count.fetch_add(1, Relaxed);
        self.taken.schedule.lock().clone_from(&schedule);
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let task = self.scheduler.next_task(runnable, current, is_yielding)?;
        self.taken.schedule.lock().push_task(task);
        Some(task)
    }

    fn next_u64(&mut self) -> u64 {
        self.taken.schedule.lock().push_random();
        self.scheduler.next_u64()
    }
}
