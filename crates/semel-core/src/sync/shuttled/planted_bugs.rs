//! Planted bugs that only some schedules show, each behind a switch. A test plants one and proves that a schedule test
//! finds it.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<ScheduleBug>> = const { Cell::new(None) };
}

/// Each is a plausible mistake in the line after its `bug!`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleBug {
    /// Followers of a failed leader claim the key again instead of taking its result.
    FollowerStampede,
    /// The result is sent before the entry is removed: a later caller gets an old result.
    ResultSentBeforeEntryRemoved,
    /// A call that finishes removes the entry of the next call of its key.
    EntryOfNextCallRemoved,
    /// A call counts as abandoned although a follower joined after the check.
    AbandonedCheckedWithoutLock,
    /// The limit of followers is checked before the follower is counted.
    FollowerLimitCheckedBeforeCounting,
    /// A follower that leaves never returns its slot.
    FollowerSlotNotReturned,
    /// Two followers that leave at once return one slot.
    FollowerSlotReturnedInTwoSteps,
    /// The work runs in the caller's task: it ends with the caller, and a shutdown does not wait for it.
    WorkRunInCallersTask,
    /// A short lease is added after the renewal task has read the schedule, and the task is not woken.
    RenewalTaskNotWoken,
    /// A reply that comes when the caller gives up is dropped.
    LateReplyDropped,
    /// A waiter that subscribes to the change feed does not read the record at once.
    NoReadAfterSubscribing,
    /// A worker of a batch queue that goes idle while a call is queued is not woken.
    WorkerNotWoken,
    /// A call that moved to another task still wakes the first task.
    WakerNotUpdated,
}

pub fn is_planted(bug: ScheduleBug) -> bool {
    PLANTED.get() == Some(bug)
}

pub(super) fn plant(bug: ScheduleBug) {
    PLANTED.set(Some(bug));
}
