//! What the upstream does about a request.

/// Bytes, pauses and ends, one after another. The connection is kept unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedReply(pub(super) Vec<ReplyStep>);

#[derive(Clone, Debug)]
pub(super) enum ReplyStep {
    Write(Vec<u8>),
    /// Waits until the gate is opened.
    Gate,
    /// Says nothing more, for ever.
    Stall,
    Close,
    Reset,
}

impl ScriptedReply {
    /// Nothing yet.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    pub(crate) fn ok(text: impl AsRef<[u8]>) -> Self {
        Self::status(200, text)
    }

    pub(crate) fn status(status: u16, text: impl AsRef<[u8]>) -> Self {
        Self::with(status, "", text)
    }

    /// With more header lines, each with its end.
    pub(crate) fn with(status: u16, headers: &str, text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let length = text.len();
        let head = format!("HTTP/1.1 {status} Said\r\n{headers}Content-Length: {length}\r\n\r\n");
        Self::nothing().write(head).write(text)
    }

    pub(crate) fn write(self, bytes: impl AsRef<[u8]>) -> Self {
        self.then(ReplyStep::Write(bytes.as_ref().to_vec()))
    }

    /// Waits at the gate first.
    pub(crate) fn gated(self) -> Self {
        let Self(mut steps) = self;
        steps.insert(0, ReplyStep::Gate);
        Self(steps)
    }

    /// Waits at the gate here.
    pub(crate) fn gate(self) -> Self {
        self.then(ReplyStep::Gate)
    }

    pub(crate) fn stall(self) -> Self {
        self.then(ReplyStep::Stall)
    }

    pub(crate) fn close(self) -> Self {
        self.then(ReplyStep::Close)
    }

    pub(crate) fn reset(self) -> Self {
        self.then(ReplyStep::Reset)
    }

    fn then(mut self, step: ReplyStep) -> Self {
        self.0.push(step);
        self
    }
}
