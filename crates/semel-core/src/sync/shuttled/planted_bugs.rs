//! The planted_bugs: bugs that only schedules find, each behind a switch. A test lets one loose and proves that
//! the promise it breaks is checked.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Each is a mistake somebody could make in the line it sits beside (`bug!`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Waiters of a failed owner claim again instead of taking its answer.
    WaiterStampede,
    /// The answer is told before the flight is off the map: who comes later gets an old answer.
    ToldBeforeOffTheMap,
    /// A flight that lands takes the next one of its key off the map.
    NextFlightTakenOff,
    /// A flight is given up although somebody boarded since it was looked at.
    DesertedWithoutLock,
    /// The cap is looked at before the place is taken.
    CapCheckedBeforeCounting,
    /// Whoever leaves a flight keeps its place for ever.
    PlaceNotGivenBack,
    /// Two that leave a flight at once give one place back.
    PlaceGivenBackInTwoSteps,
    /// The caller flies itself, to the end: it takes the work down with it, and a shutdown does not see it.
    FlownByTheCaller,
    /// A short lease is put on the schedule after the task has looked, and nobody wakes the task.
    RenewalNotWoken,
    /// An answer that comes as the caller gives up is dropped.
    LateAnswerDropped,
    /// Who begins to listen does not look whether it is too late.
    NoLookAfterListening,
    /// A batcher's worker that goes idle while a call is queued is not woken.
    WorkerNotWoken,
    /// A call that is polled in another task still wakes the first one.
    WakerNotUpdated,
}

pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

pub(super) fn plant(bug: Bug) {
    PLANTED.set(Some(bug));
}
