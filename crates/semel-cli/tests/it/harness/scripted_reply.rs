//! A scripted reply of the upstream to a request.

/// Steps of a reply: bytes, pauses, and how it ends. The connection is kept unless a step closes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedReply(pub(super) Vec<ReplyStep>);

#[derive(Clone, Debug)]
pub(super) enum ReplyStep {
    Write(Vec<u8>),
    /// Waits until the gate is opened.
    Gate,
    /// Sends nothing more.
    Stall,
    Close,
    Reset,
}

impl ScriptedReply {
    /// A reply without steps.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    pub(crate) fn ok(text: impl AsRef<[u8]>) -> Self {
        Self::status(200, text)
    }

    pub(crate) fn status(status: u16, text: impl AsRef<[u8]>) -> Self {
        Self::with(status, "", text)
    }

    /// A reply with these header lines, each with its CR LF.
    pub(crate) fn with(status: u16, headers: &str, text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let length = text.len();
        let head = format!("HTTP/1.1 {status} Said\r\n{headers}Content-Length: {length}\r\n\r\n");
        Self::nothing().write(head).write(text)
    }

    pub(crate) fn write(self, bytes: impl AsRef<[u8]>) -> Self {
        self.then(ReplyStep::Write(bytes.as_ref().to_vec()))
    }

    /// Waits for the gate before the first step.
    pub(crate) fn gated(self) -> Self {
        let Self(mut steps) = self;
        steps.insert(0, ReplyStep::Gate);
        Self(steps)
    }

    /// Waits for the gate as the next step.
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
