//! Runs a test scenario under many schedules.

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
    planted_bugs::{self, ScheduleBug},
    runtime, time,
};

/// Random schedules for each scenario. `SEMEL_SCHEDULES` sets another number.
const SCHEDULES: usize = 10_000;

const _: () = assert!(SCHEDULES >= 10_000, "docs/PROOF.md promises this number");

/// Fixed, so that the gate has the same result on every machine. `SHUTTLE_RANDOM_SEED` sets another seed.
const SEED: u64 = 4_711;

/// Changes of priority in one PCT schedule; most races need two at most.
const PCT_DEPTH: usize = 3;

/// Far more than any scenario takes: one that needs more never ends.
const MAX_STEPS: usize = 100_000;

/// The task that advances virtual time: it is spawned first in every schedule.
const CLOCK_TASK: usize = 1;

thread_local! {
    /// True once the scenario has ended.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// When virtual time advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeAdvances {
    /// Only when no task can run otherwise. A task that does not sleep meets its deadlines.
    WhenIdle,
    /// Whenever the schedule chooses: any code may take any time.
    AtAnyTime,
}

/// Runs `scenario` under [`SCHEDULES`] random schedules and a tenth as many by PCT. Its assertions must hold in each,
/// and no task may wait for ever: that fails as a deadlock, or by too many steps.
///
/// `SEMEL_REPLAY` repeats one schedule instead.
pub fn explore<Fut: Future<Output = ()>>(
    time_advances: TimeAdvances,
    scenario: impl Fn() -> Fut + Send + Sync + 'static,
) {
    let scenario = Arc::new(scenario);
    if let Ok(schedule) = env::var("SEMEL_REPLAY") {
        run(ReplayScheduler::new_from_encoded(schedule.trim()), scenario);
        return;
    }
    let (count, started) = (count(), Instant::now());
    let by_pct = count.div_ceil(10);
    let schedulers: [(usize, Box<dyn Scheduler + Send>); 2] = [
        (count, Box::new(RandomScheduler::new_from_seed(SEED, count))),
        (by_pct, Box::new(PctScheduler::new_from_seed(SEED, PCT_DEPTH, by_pct))),
    ];
    for (promised, scheduler) in schedulers {
        let timed = TimedScheduler { time_advances, scheduler };
        let held = catch_unwind(AssertUnwindSafe(|| run(timed, scenario.clone())));
        let ran = held.unwrap_or_else(|panic| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            eprintln!(
                "to repeat: cargo xtask schedules {name} --replay 'SCHEDULE', all lines of it"
            );
            resume_unwind(panic)
        });
        assert_eq!(ran, promised, "the promised number of schedules ran");
    }
    println!("{count} random schedules and {by_pct} by PCT in {:.1?}", started.elapsed());
}

/// Proves that `scenario` fails because of `bug` within [`SCHEDULES`] random schedules, that its panic contains
/// `message`, and that a replay of the failing schedule fails in the same way.
pub fn assert_bug_found<Fut: Future<Output = ()>>(
    bug: ScheduleBug,
    time_advances: TimeAdvances,
    message: &str,
    scenario: impl Fn() -> Fut + Send + Sync + 'static,
) {
    planted_bugs::plant(bug);
    let (scenario, recording) = (Arc::new(scenario), ScheduleRecording::default());
    let scheduler = RandomScheduler::new_from_seed(SEED, SCHEDULES);
    let scheduler = TimedScheduler { time_advances, scheduler };
    let recorder = RecordingScheduler { scheduler, recording: recording.clone() };
    let Some(panic) = panic_of(|| _ = run(recorder, scenario.clone())) else {
        panic!("{bug:?} was not found in {SCHEDULES} schedules");
    };
    assert!(panic.contains(message), "{bug:?} made another assertion fail: {panic}");
    let ScheduleRecording { count, schedule } = &recording;
    println!("{bug:?} found by schedule {}", count.load(Relaxed));
    let replay = ReplayScheduler::new_from_schedule(schedule.lock().clone());
    assert_eq!(
        panic_of(|| _ = run(replay, scenario)),
        Some(panic),
        "a replay of the schedule fails in the same way"
    );
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

/// Returns how many schedules ran.
fn run<Fut: Future<Output = ()>>(
    scheduler: impl Scheduler + 'static,
    scenario: Arc<impl Fn() -> Fut + Send + Sync + 'static>,
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
            scenario().await;
            // Tasks in the background run until all of them wait; then they can be dropped.
            ENDING.set(true);
            time::sleep(Duration::from_nanos(1)).await;
        });
    })
}

/// Runs the task that advances time when `time_advances` allows it, and leaves the rest to another scheduler.
struct TimedScheduler<S> {
    time_advances: TimeAdvances,
    scheduler: S,
}

impl<S: Scheduler> Scheduler for TimedScheduler<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.scheduler.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let clock_task = TaskId::from(CLOCK_TASK);
        let others: Vec<&Task> =
            runnable.iter().copied().filter(|task| task.id() != clock_task).collect();
        let time_stands = self.time_advances == TimeAdvances::WhenIdle || ENDING.get();
        let choice = if time_stands && !others.is_empty() { &others } else { runnable };
        self.scheduler.next_task(choice, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}

/// How many schedules ran, and the last one.
#[derive(Clone, Default)]
struct ScheduleRecording {
    count: Arc<AtomicUsize>,
    schedule: Arc<Mutex<Schedule>>,
}

/// Records the choices of another scheduler.
struct RecordingScheduler<S> {
    scheduler: S,
    recording: ScheduleRecording,
}

impl<S: Scheduler> Scheduler for RecordingScheduler<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.scheduler.new_execution()?;
        self.recording.count.fetch_add(1, Relaxed);
        self.recording.schedule.lock().clone_from(&schedule);
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let task = self.scheduler.next_task(runnable, current, is_yielding)?;
        self.recording.schedule.lock().push_task(task);
        Some(task)
    }

    fn next_u64(&mut self) -> u64 {
        self.recording.schedule.lock().push_random();
        self.scheduler.next_u64()
    }
}
