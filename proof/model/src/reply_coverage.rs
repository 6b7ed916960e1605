//! Records which replies occurred: a model in which a reply never occurs proves nothing about it.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::{
    Abandonment, Claim, Completion, Erasure, Forgetting, Release, Renewal, Resolution,
};
use semel_planted_bugs::StepReply;

macro_rules! answers {
    ($($pattern:pat = $name:literal;)*) => {
        /// Every reply that a step can give.
        const NAMES: &[&str] = &[$($name,)*];

        fn name(answer: &StepReply) -> &'static str {
            match answer {
                $($pattern => $name,)*
            }
        }
    };
}

answers! {
    StepReply::Claim(Claim::Granted(_)) = "claim: Granted";
    StepReply::Claim(Claim::Replay(_)) = "claim: Replay";
    StepReply::Claim(Claim::Busy { .. }) = "claim: Busy";
    StepReply::Claim(Claim::Mismatch) = "claim: Mismatch";
    StepReply::Claim(Claim::Unknown) = "claim: Unknown";
    StepReply::Claim(Claim::Dead) = "claim: Dead";
    StepReply::Claim(Claim::Gone) = "claim: Gone";
    StepReply::Claim(Claim::Released) = "claim: Released";
    StepReply::Renew(Renewal::Extended) = "renew: Extended";
    StepReply::Renew(Renewal::Lost) = "renew: Lost";
    StepReply::Complete(Completion::Recorded) = "complete: Recorded";
    StepReply::Complete(Completion::Superseded(_)) = "complete: Superseded";
    StepReply::Complete(Completion::Missing) = "complete: Missing";
    StepReply::Release(Release::Open) = "release: Open";
    StepReply::Release(Release::Unknown) = "release: Unknown";
    StepReply::Release(Release::Superseded(_)) = "release: Superseded";
    StepReply::Release(Release::Missing) = "release: Missing";
    StepReply::Abandon(Abandonment::Lapsing) = "abandon: Lapsing";
    StepReply::Abandon(Abandonment::Unknown) = "abandon: Unknown";
    StepReply::Abandon(Abandonment::Superseded(_)) = "abandon: Superseded";
    StepReply::Abandon(Abandonment::Missing) = "abandon: Missing";
    StepReply::Resolve(Resolution::Done) = "resolve: Done";
    StepReply::Resolve(Resolution::Refused(_)) = "resolve: Refused";
    StepReply::Resolve(Resolution::Missing) = "resolve: Missing";
    StepReply::Erase(Erasure::Erased) = "erase: Erased";
    StepReply::Erase(Erasure::Missing) = "erase: Missing";
    StepReply::Forget(Forgetting::Forgotten) = "forget: Forgotten";
    StepReply::Forget(Forgetting::Refused(_)) = "forget: Refused";
    StepReply::Forget(Forgetting::Missing) = "forget: Missing";
    StepReply::Purge = "purge";
}

/// A set of replies.
#[derive(Debug, Default)]
pub struct ReplyCoverage(AtomicU64);

impl ReplyCoverage {
    pub(crate) fn note(&self, answer: &StepReply) {
        let name = name(answer);
        let bit = NAMES.iter().position(|it| *it == name).map_or(0, |at| 1 << at);
        // Mostly set already: a plain read leaves the cache line shared between threads.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds the replies of another run.
    pub fn add(&self, other: &Self) {
        self.0.fetch_or(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Replies that never occurred.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let bits = self.0.load(Ordering::Relaxed);
        let replies = |at: usize| bits & (1 << at) != 0;
        (0..NAMES.len()).filter(|at| !replies(*at)).map(|at| NAMES[at]).collect()
    }
}
