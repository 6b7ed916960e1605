//! Which answers of the steps were heard: a model in which one never occurs proves nothing about it.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::{
    Abandonment, Claim, Completion, Erasure, Forgetting, Release, Renewal, Resolution,
};
use semel_planted_bugs::Answer;

macro_rules! answers {
    ($($pattern:pat = $name:literal;)*) => {
        /// Every answer a step can give.
        const NAMES: &[&str] = &[$($name,)*];

        fn name(answer: &Answer) -> &'static str {
            match answer {
                $($pattern => $name,)*
            }
        }
    };
}

answers! {
    Answer::Claim(Claim::Granted(_)) = "claim: Granted";
    Answer::Claim(Claim::Replay(_)) = "claim: Replay";
    Answer::Claim(Claim::Busy { .. }) = "claim: Busy";
    Answer::Claim(Claim::Mismatch) = "claim: Mismatch";
    Answer::Claim(Claim::Unknown) = "claim: Unknown";
    Answer::Claim(Claim::Dead) = "claim: Dead";
    Answer::Claim(Claim::Gone) = "claim: Gone";
    Answer::Claim(Claim::Released) = "claim: Released";
    Answer::Renew(Renewal::Extended) = "renew: Extended";
    Answer::Renew(Renewal::Lost) = "renew: Lost";
    Answer::Complete(Completion::Recorded) = "complete: Recorded";
    Answer::Complete(Completion::Superseded(_)) = "complete: Superseded";
    Answer::Complete(Completion::Missing) = "complete: Missing";
    Answer::Release(Release::Open) = "release: Open";
    Answer::Release(Release::Unknown) = "release: Unknown";
    Answer::Release(Release::Superseded(_)) = "release: Superseded";
    Answer::Release(Release::Missing) = "release: Missing";
    Answer::Abandon(Abandonment::Lapsing) = "abandon: Lapsing";
    Answer::Abandon(Abandonment::Unknown) = "abandon: Unknown";
    Answer::Abandon(Abandonment::Superseded(_)) = "abandon: Superseded";
    Answer::Abandon(Abandonment::Missing) = "abandon: Missing";
    Answer::Resolve(Resolution::Done) = "resolve: Done";
    Answer::Resolve(Resolution::Refused(_)) = "resolve: Refused";
    Answer::Resolve(Resolution::Missing) = "resolve: Missing";
    Answer::Erase(Erasure::Erased) = "erase: Erased";
    Answer::Erase(Erasure::Missing) = "erase: Missing";
    Answer::Forget(Forgetting::Forgotten) = "forget: Forgotten";
    Answer::Forget(Forgetting::Refused(_)) = "forget: Refused";
    Answer::Forget(Forgetting::Missing) = "forget: Missing";
    Answer::Purge = "purge";
}

/// A set of answers.
#[derive(Debug, Default)]
pub struct Heard(AtomicU64);

impl Heard {
    pub(crate) fn note(&self, answer: &Answer) {
        let name = name(answer);
        let bit = NAMES.iter().position(|it| *it == name).map_or(0, |at| 1 << at);
        // Mostly known already: a plain read does not take the line from the other threads.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds what another run heard.
    pub fn add(&self, other: &Self) {
        self.0.fetch_or(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Answers that were never given.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let bits = self.0.load(Ordering::Relaxed);
        let heard = |at: usize| bits & (1 << at) != 0;
        (0..NAMES.len()).filter(|at| !heard(*at)).map(|at| NAMES[at]).collect()
    }
}
