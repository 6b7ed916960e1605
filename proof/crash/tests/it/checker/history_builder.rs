//! Builds histories for tests, call by call.

use std::collections::BTreeSet;

use semel_crash::{
    Detail, Event, EventKind, Hex, KeyId, Op, ReplyKind,
    check::{CheckRules, Evidence, Findings, Floor, Invariant, check},
    ledger::{LedgerEntry, LedgerFact},
    load::DumpedRecord,
};

pub(crate) const NONE: BTreeSet<Invariant> = BTreeSet::new();

pub(crate) const RERUN: KeyId = KeyId(0);
pub(crate) const OPERATED: KeyId = KeyId(4);
pub(crate) const HOLD: KeyId = KeyId(6);
pub(crate) const CAPPED: KeyId = KeyId(10);
pub(crate) const BRIEF: KeyId = KeyId(12);

/// A claimant: its process, nonce, token and payload.
#[derive(Clone, Copy)]
pub(crate) struct Claimant {
    pub(crate) process: u32,
    pub(crate) nonce: u64,
    pub(crate) token: u64,
    pub(crate) payload: u8,
}

/// The `n`th owner, in process 1, for the usual payload.
pub(crate) const fn owner(n: u64) -> Claimant {
    Claimant { process: 1, nonce: 100 + n, token: n, payload: 0 }
}

/// A history that is being built. Every call takes a millisecond.
pub(crate) struct HistoryBuilder {
    key: KeyId,
    now: u64,
    calls: u64,
    pub(crate) evidence: Evidence,
}

impl HistoryBuilder {
    pub(crate) fn of(key: KeyId) -> Self {
        let rules = CheckRules {
            frees_at_open: true,
            has_front: false,
            expires_by_estimate: false,
            floor: Floor::default(),
        };
        let (events, ledger, dump) = (Vec::new(), Vec::new(), Vec::new());
        let evidence = Evidence { events, ledger, dump, dumped_at: 0, rules };
        Self { key, now: 1_000_000, calls: 0, evidence }
    }

    /// The following calls are for another key.
    pub(crate) fn on(self, key: KeyId) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn later(mut self, millis: u64) -> Self {
        self.now += millis * 1000;
        self
    }

    pub(crate) fn call(self, process: u32, op: Op, request: Detail, reply: Detail) -> Self {
        let key = Some(self.key);
        self.begin(process, op, Detail { key, ..request }).end(process, op, EventKind::Ok, reply)
    }

    /// A call without an end.
    pub(crate) fn open(self, process: u32, op: Op, request: Detail) -> Self {
        let key = Some(self.key);
        self.begin(process, op, Detail { key, ..request })
    }

    fn begin(mut self, process: u32, op: Op, detail: Detail) -> Self {
        self.calls += 1;
        self.push(process, op, EventKind::Invoke, detail)
    }

    fn end(self, process: u32, op: Op, kind: EventKind, reply: Detail) -> Self {
        let key = Some(self.key);
        self.push(process, op, kind, Detail { key, ..reply })
    }

    fn push(mut self, process: u32, op: Op, r#type: EventKind, detail: Detail) -> Self {
        self.now += 500;
        let (seq, call) = (self.evidence.events.len() as u64 + 1, self.calls);
        let event = Event { seq, t_mono: self.now, process, op, r#type, call, detail };
        self.evidence.events.push(event);
        self
    }

    pub(crate) fn granted(self, claimant: Claimant) -> Self {
        self.granted_late(claimant, 0)
    }

    /// A claim whose reply comes `millis` later.
    pub(crate) fn granted_late(self, claimant: Claimant, millis: u64) -> Self {
        self.granted_after(claimant, |history| history.later(millis))
    }

    /// A claim whose reply comes after `meanwhile`.
    pub(crate) fn granted_after(
        self,
        claimant: Claimant,
        meanwhile: impl FnOnce(Self) -> Self,
    ) -> Self {
        let (process, key) = (claimant.process, Some(self.key));
        let begun =
            self.begin(process, Op::Claim, Detail { key, token: None, ..request(claimant) });
        let call = begun.calls;
        let after = meanwhile(begun);
        let calls = after.calls;
        let reply = Detail {
            token: Some(claimant.token),
            attempt: Some(u32::try_from(claimant.token).unwrap()),
            ..request(claimant)
        };
        let reply = answer(ReplyKind::Granted, reply);
        let ended = Self { calls: call, ..after }.end(process, Op::Claim, EventKind::Ok, reply);
        Self { calls, ..ended }
    }

    /// The work of this owner starts and takes effect.
    pub(crate) fn effect(mut self, claimant: Claimant) -> Self {
        for fact in [LedgerFact::Start, LedgerFact::Effect] {
            self.now += 100;
            self.evidence.ledger.push(LedgerEntry {
                t_mono: self.now,
                process: claimant.process,
                run: Hex(claimant.nonce),
                key: self.key,
                nonce: Hex(claimant.nonce),
                token: claimant.token,
                attempt: u32::try_from(claimant.token).unwrap(),
                fingerprint: claimant.payload,
                fact,
            });
        }
        self
    }

    pub(crate) fn owner_step(self, claimant: Claimant, op: Op, reply: ReplyKind) -> Self {
        self.call(claimant.process, op, request(claimant), answer(reply, request(claimant)))
    }

    pub(crate) fn completes(self, claimant: Claimant, digest: u64, reply: ReplyKind) -> Self {
        let request = Detail { digest: Some(Hex(digest)), ..request(claimant) };
        self.call(claimant.process, Op::Complete, request.clone(), answer(reply, request))
    }

    pub(crate) fn replays(self, digest: u64) -> Self {
        let (digest, of) = (Some(Hex(digest)), Some(self.key));
        let reply = Detail { digest, of, ..Detail::default() };
        let claim = Detail { nonce: Some(Hex(900 + self.calls)), ..request(owner(9)) };
        self.call(1, Op::Claim, claim, answer(ReplyKind::Replay, reply))
    }

    /// A client sends the usual payload and gets an outcome.
    pub(crate) fn answered(self, digest: u64) -> Self {
        let reply = Detail {
            digest: Some(Hex(digest)),
            of: Some(self.key),
            fingerprint: Some(0),
            stored: true,
            ..Detail::default()
        };
        self.run_reply(reply)
    }

    pub(crate) fn run_reply(self, reply: Detail) -> Self {
        let request = Detail { fingerprint: Some(0), ..Detail::default() };
        self.call(1, Op::Run, request, answer(ReplyKind::Done, reply))
    }

    pub(crate) fn dies(mut self, process: u32) -> Self {
        self.calls = 0;
        let reply = self.push(process, Op::Exit, EventKind::Info, Detail::default());
        Self { calls: 10_000 + reply.evidence.events.len() as u64, ..reply }
    }

    /// The server of the store is killed.
    pub(crate) fn server_dies(mut self) -> Self {
        self.calls = 0;
        let point = Some("server-kill".to_owned());
        let reply = self.push(0, Op::Fault, EventKind::Ok, Detail { point, ..Detail::default() });
        Self { calls: 20_000 + reply.evidence.events.len() as u64, ..reply }
    }

    /// A call that ends without a reply.
    pub(crate) fn unacknowledged(self, process: u32, op: Op, request: Detail) -> Self {
        let key = Some(self.key);
        let reply = Detail { key, ..request.clone() };
        self.open(process, op, request).end(process, op, EventKind::Info, reply)
    }

    /// The store is shared: calls and leases outlive their process.
    pub(crate) fn shared(mut self) -> Self {
        self.evidence.rules.frees_at_open = false;
        self
    }

    pub(crate) fn dumped(mut self, state: ReplyKind, token: u64, digest: Option<u64>) -> Self {
        self.now += 1000;
        let record = Detail {
            key: Some(self.key),
            token: Some(token),
            digest: digest.map(Hex),
            of: digest.map(|_| self.key),
            ..Detail::default()
        };
        let record = answer(state, record);
        self.evidence.dump.push(DumpedRecord { t_mono: self.now, record });
        self
    }

    pub(crate) fn findings(mut self) -> Findings {
        self.evidence.dumped_at = self.now + 1000;
        check(&self.evidence)
    }

    pub(crate) fn broken(self) -> BTreeSet<Invariant> {
        let found = self.findings().violations;
        found.iter().map(|violation| violation.invariant).collect()
    }
}

pub(crate) fn request(claimant: Claimant) -> Detail {
    Detail {
        nonce: Some(Hex(claimant.nonce)),
        token: Some(claimant.token),
        fingerprint: Some(claimant.payload),
        ..Detail::default()
    }
}

pub(crate) fn detail(answer: ReplyKind) -> Detail {
    Detail { reply: Some(answer), ..Detail::default() }
}

fn answer(answer: ReplyKind, detail: Detail) -> Detail {
    Detail { reply: Some(answer), ..detail }
}

/// One owner, one effect, one outcome, one replay.
pub(crate) fn good(key: KeyId) -> HistoryBuilder {
    HistoryBuilder::of(key)
        .granted(owner(1))
        .effect(owner(1))
        .completes(owner(1), 7, ReplyKind::Recorded)
        .answered(7)
        .replays(7)
}
