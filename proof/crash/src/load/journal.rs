//! The worker's side of the history: one line per event on stdout, which the harness reads. A written line
//! survives a kill of this process.

use std::{
    io::{Write, stdout},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    clock::mono,
    event::{Detail, Event, EventKind, Op},
};

#[derive(Debug, Default)]
pub(super) struct Journal {
    calls: AtomicU64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournaledCall {
    op: Op,
    number: u64,
}

impl JournaledCall {
    pub(super) const fn op(self) -> Op {
        self.op
    }
}

impl Journal {
    /// Writes the begin of a call. The caller does so before the call has any effect.
    pub(super) fn invoke(&self, op: Op, detail: Detail) -> JournaledCall {
        let call = JournaledCall { op, number: self.calls.fetch_add(1, Relaxed) + 1 };
        Self::write(call, EventKind::Invoke, detail);
        call
    }

    /// Writes the end of a call. The caller does so before it passes the reply on.
    pub(super) fn end(&self, call: JournaledCall, kind: EventKind, detail: Detail) {
        Self::write(call, kind, detail);
    }

    /// Writes an event that has no end.
    pub(super) fn note(&self, op: Op, detail: Detail) {
        Self::write(JournaledCall { op, number: 0 }, EventKind::Ok, detail);
    }

    fn write(JournaledCall { op, number }: JournaledCall, r#type: EventKind, detail: Detail) {
        let event = Event { seq: 0, t_mono: mono(), process: 0, op, r#type, call: number, detail };
        let line = serde_json::to_string(&event).expect("an event has a JSON form") + "\n";
        // The harness is gone: a history that nothing reads proves nothing.
        if stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(3);
        }
    }
}
