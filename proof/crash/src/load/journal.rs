//! The worker's end of the history: one line per event on stdout, which the harness reads. What is
//! written there outlives this process.

use std::{
    io::{Write, stdout},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    clock::mono,
    event::{Detail, Event, Kind, Op},
};

#[derive(Debug, Default)]
pub(super) struct Journal {
    calls: AtomicU64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    op: Op,
    number: u64,
}

impl Call {
    pub(super) const fn op(self) -> Op {
        self.op
    }
}

impl Journal {
    /// A call begins. Written before it does anything.
    pub(super) fn invoke(&self, op: Op, detail: Detail) -> Call {
        let call = Call { op, number: self.calls.fetch_add(1, Relaxed) + 1 };
        Self::write(call, Kind::Invoke, detail);
        call
    }

    /// A call ends. Written before anybody is told.
    pub(super) fn end(&self, call: Call, kind: Kind, detail: Detail) {
        Self::write(call, kind, detail);
    }

    /// Something that has no end.
    pub(super) fn note(&self, op: Op, detail: Detail) {
        Self::write(Call { op, number: 0 }, Kind::Ok, detail);
    }

    fn write(Call { op, number }: Call, r#type: Kind, detail: Detail) {
        let event = Event { seq: 0, t_mono: mono(), process: 0, op, r#type, call: number, detail };
        let line = serde_json::to_string(&event).expect("an event has a JSON form") + "\n";
        // Without the harness there is nobody to prove anything to.
        if stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(3);
        }
    }
}
