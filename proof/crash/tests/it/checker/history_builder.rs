//! Histories written by hand.

use std::collections::BTreeSet;

use semel_crash::{
    Answer, Detail, Event, Hex, KeyId, Kind, Op,
    check::{Evidence, Findings, Floor, Invariant, Rules, check},
    ledger::{Entry, What},
    load::Dumped,
};

pub(crate) const NONE: BTreeSet<Invariant> = BTreeSet::new();

pub(crate) const RERUN: KeyId = KeyId(0);
pub(crate) const OPERATED: KeyId = KeyId(4);
pub(crate) const HOLD: KeyId = KeyId(6);
pub(crate) const CAPPED: KeyId = KeyId(10);
pub(crate) const BRIEF: KeyId = KeyId(12);

/// Who claims: a process, a nonce, a token and a payload.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) process: u32,
    pub(crate) nonce: u64,
    pub(crate) token: u64,
    pub(crate) payload: u8,
}

/// The `n`th owner, in process 1, for the usual payload.
pub(crate) const fn owner(n: u64) -> Who {
    Who { process: 1, nonce: 100 + n, token: n, payload: 0 }
}

/// A history in the making. Every call takes a millisecond.
pub(crate) struct Tale {
    key: KeyId,
    now: u64,
    calls: u64,
    pub(crate) evidence: Evidence,
}

impl Tale {
    pub(crate) fn of(key: KeyId) -> Self {
        let rules = Rules {
            frees_at_open: true,
            has_front: false,
            expires_by_estimate: false,
            floor: Floor::default(),
        };
        let (events, ledger, dump) = (Vec::new(), Vec::new(), Vec::new());
        let evidence = Evidence { events, ledger, dump, dumped_at: 0, rules };
        Self { key, now: 1_000_000, calls: 0, evidence }
    }

    /// What follows is about another key.
    pub(crate) fn on(self, key: KeyId) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn later(mut self, millis: u64) -> Self {
        self.now += millis * 1000;
        self
    }

    pub(crate) fn call(self, process: u32, op: Op, asked: Detail, told: Detail) -> Self {
        let key = Some(self.key);
        self.begin(process, op, Detail { key, ..asked }).end(process, op, Kind::Ok, told)
    }

    /// A call that is never answered.
    pub(crate) fn open(self, process: u32, op: Op, asked: Detail) -> Self {
        let key = Some(self.key);
        self.begin(process, op, Detail { key, ..asked })
    }

    fn begin(mut self, process: u32, op: Op, detail: Detail) -> Self {
        self.calls += 1;
        self.push(process, op, Kind::Invoke, detail)
    }

    fn end(self, process: u32, op: Op, kind: Kind, told: Detail) -> Self {
        let key = Some(self.key);
        self.push(process, op, kind, Detail { key, ..told })
    }

    fn push(mut self, process: u32, op: Op, r#type: Kind, detail: Detail) -> Self {
        self.now += 500;
        let (seq, call) = (self.evidence.events.len() as u64 + 1, self.calls);
        let event = Event { seq, t_mono: self.now, process, op, r#type, call, detail };
        self.evidence.events.push(event);
        self
    }

    pub(crate) fn granted(self, who: Who) -> Self {
        self.granted_late(who, 0)
    }

    /// A claim whose caller stands still before it is told.
    pub(crate) fn granted_late(self, who: Who, millis: u64) -> Self {
        self.granted_after(who, |tale| tale.later(millis))
    }

    /// A claim whose caller is told when something else has happened.
    pub(crate) fn granted_after(self, who: Who, meanwhile: impl FnOnce(Self) -> Self) -> Self {
        let (process, key) = (who.process, Some(self.key));
        let begun = self.begin(process, Op::Claim, Detail { key, token: None, ..asked(who) });
        let call = begun.calls;
        let after = meanwhile(begun);
        let calls = after.calls;
        let told = Detail {
            token: Some(who.token),
            attempt: Some(u32::try_from(who.token).unwrap()),
            ..asked(who)
        };
        let told = answer(Answer::Granted, told);
        let ended = Self { calls: call, ..after }.end(process, Op::Claim, Kind::Ok, told);
        Self { calls, ..ended }
    }

    /// The work of this owner begins and takes effect.
    pub(crate) fn effect(mut self, who: Who) -> Self {
        for what in [What::Start, What::Effect] {
            self.now += 100;
            self.evidence.ledger.push(Entry {
                t_mono: self.now,
                process: who.process,
                run: Hex(who.nonce),
                key: self.key,
                nonce: Hex(who.nonce),
                token: who.token,
                attempt: u32::try_from(who.token).unwrap(),
                fingerprint: who.payload,
                what,
            });
        }
        self
    }

    pub(crate) fn owner_step(self, who: Who, op: Op, told: Answer) -> Self {
        self.call(who.process, op, asked(who), answer(told, asked(who)))
    }

    pub(crate) fn completes(self, who: Who, digest: u64, told: Answer) -> Self {
        let asked = Detail { digest: Some(Hex(digest)), ..asked(who) };
        self.call(who.process, Op::Complete, asked.clone(), answer(told, asked))
    }

    pub(crate) fn replays(self, digest: u64) -> Self {
        let (digest, of) = (Some(Hex(digest)), Some(self.key));
        let told = Detail { digest, of, ..Detail::default() };
        let claim = Detail { nonce: Some(Hex(900 + self.calls)), ..asked(owner(9)) };
        self.call(1, Op::Claim, claim, answer(Answer::Replay, told))
    }

    /// A client asks for the usual payload and is told an outcome.
    pub(crate) fn answered(self, digest: u64) -> Self {
        let told = Detail {
            digest: Some(Hex(digest)),
            of: Some(self.key),
            fingerprint: Some(0),
            stored: true,
            ..Detail::default()
        };
        self.told(told)
    }

    pub(crate) fn told(self, told: Detail) -> Self {
        let asked = Detail { fingerprint: Some(0), ..Detail::default() };
        self.call(1, Op::Run, asked, answer(Answer::Done, told))
    }

    pub(crate) fn dies(mut self, process: u32) -> Self {
        self.calls = 0;
        let told = self.push(process, Op::Exit, Kind::Info, Detail::default());
        Self { calls: 10_000 + told.evidence.events.len() as u64, ..told }
    }

    /// The server of the store is killed.
    pub(crate) fn server_dies(mut self) -> Self {
        self.calls = 0;
        let point = Some("server-kill".to_owned());
        let told = self.push(0, Op::Blow, Kind::Ok, Detail { point, ..Detail::default() });
        Self { calls: 20_000 + told.evidence.events.len() as u64, ..told }
    }

    /// A call whose caller is told that nobody knows.
    pub(crate) fn given_up(self, process: u32, op: Op, asked: Detail) -> Self {
        let key = Some(self.key);
        let told = Detail { key, ..asked.clone() };
        self.open(process, op, asked).end(process, op, Kind::Info, told)
    }

    /// The store is shared: nothing ends with a process.
    pub(crate) fn shared(mut self) -> Self {
        self.evidence.rules.frees_at_open = false;
        self
    }

    pub(crate) fn dumped(mut self, state: Answer, token: u64, digest: Option<u64>) -> Self {
        self.now += 1000;
        let record = Detail {
            key: Some(self.key),
            token: Some(token),
            digest: digest.map(Hex),
            of: digest.map(|_| self.key),
            ..Detail::default()
        };
        let record = answer(state, record);
        self.evidence.dump.push(Dumped { t_mono: self.now, record });
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

pub(crate) fn asked(who: Who) -> Detail {
    Detail {
        nonce: Some(Hex(who.nonce)),
        token: Some(who.token),
        fingerprint: Some(who.payload),
        ..Detail::default()
    }
}

pub(crate) fn detail(answer: Answer) -> Detail {
    Detail { answer: Some(answer), ..Detail::default() }
}

fn answer(answer: Answer, detail: Detail) -> Detail {
    Detail { answer: Some(answer), ..detail }
}

/// One owner, one effect, one outcome, one replay.
pub(crate) fn good(key: KeyId) -> Tale {
    Tale::of(key)
        .granted(owner(1))
        .effect(owner(1))
        .completes(owner(1), 7, Answer::Recorded)
        .answered(7)
        .replays(7)
}
