//! Equality with a tolerance for times.

use std::{fmt::Write, mem::take, time::Duration};

use semel_core::{
    Abandonment, Claim, Completion, Current, Record, Release, Replay, Resolution, Timestamp,
};

use super::model::StepReply;

/// A value that contains times.
pub(super) trait HasTimes: Clone + PartialEq {
    /// Replaces the times by zeros and returns them, in milliseconds.
    fn take_times(&mut self) -> Vec<u64>;
}

/// True if both are equal, and each time differs by at most `slack`.
pub(super) fn approx_eq<T: HasTimes>(one: &T, other: &T, slack: Duration) -> bool {
    if one == other {
        return true;
    }
    let (mut one, mut other) = (one.clone(), other.clone());
    let (times, others) = (one.take_times(), other.take_times());
    let near = |(a, b): (&u64, &u64)| u128::from(a.abs_diff(*b)) <= slack.as_millis();
    one == other && times.iter().zip(&others).all(near)
}

/// The fields in which a record differs from the expected one, one on each line.
pub(super) fn differences(seen: &Record, must: &Record) -> String {
    let mut lines = String::new();
    macro_rules! compare {
        ($($field:ident)*) => {
            $(if seen.$field != must.$field {
                let (is, be) = (&seen.$field, &must.$field);
                let _ = write!(lines, "\n  {} is {is:?}, must be {be:?}", stringify!($field));
            })*
        };
    }
    compare!(key state fingerprint nonce token attempts dirty abandoned contested claimed_at);
    compare!(lease_until terms created_at completed_at expires_at outcome labels);
    lines
}

impl HasTimes for Record {
    fn take_times(&mut self) -> Vec<u64> {
        let mut times = vec![&mut self.claimed_at, &mut self.lease_until, &mut self.created_at];
        times.extend(&mut self.completed_at);
        times.extend(&mut self.expires_at);
        times.into_iter().map(|at: &mut Timestamp| take(at).as_millis()).collect()
    }
}

impl HasTimes for StepReply {
    fn take_times(&mut self) -> Vec<u64> {
        let spans = match self {
            Self::Claim(Claim::Busy { remaining }) => vec![remaining],
            Self::Claim(Claim::Replay(replay)) => spans_of(replay),
            Self::Completion(Completion::Superseded(current))
            | Self::Release(Release::Superseded(current))
            | Self::Abandonment(Abandonment::Superseded(current))
            | Self::Resolution(Resolution::Refused(current)) => current_spans(current),
            Self::Claim(_)
            | Self::Renewal(_)
            | Self::Completion(_)
            | Self::Release(_)
            | Self::Abandonment(_)
            | Self::Resolution(_)
            | Self::Erasure(_)
            | Self::Forgetting(_) => Vec::new(),
        };
        let millis =
            |span: &mut Duration| u64::try_from(take(span).as_millis()).unwrap_or(u64::MAX);
        spans.into_iter().map(millis).collect()
    }
}

fn current_spans(current: &mut Current) -> Vec<&mut Duration> {
    match current {
        Current::InProgress { remaining } => vec![remaining],
        Current::Completed(replay) => spans_of(replay),
        Current::Open | Current::Unknown | Current::Dead | Current::Erased => Vec::new(),
    }
}

/// Ignores whether a cache answered.
fn spans_of(replay: &mut Replay) -> Vec<&mut Duration> {
    replay.cached = false;
    vec![&mut replay.age, &mut replay.remaining]
}
