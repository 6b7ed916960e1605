//! Values on their way to and from PostgreSQL.

use std::error::Error as StdError;

use bytes::{BufMut, Bytes, BytesMut};
use semel_core::{Span, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type Boxed = Box<dyn StdError + Sync + Send>;

/// Store time as `timestamptz`. What PostgreSQL has no date for is `infinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At(pub(crate) Timestamp);

/// Milliseconds from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH: i64 = 946_684_800_000;
/// The first millisecond after 2000 that PostgreSQL has no date for.
const END: i64 = 9_223_371_331_200_000;

impl At {
    fn micros(self) -> i64 {
        let millis = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        match millis - EPOCH {
            since if since < END => since * 1000,
            _ => i64::MAX,
        }
    }

    fn from_micros(micros: i64) -> Self {
        let millis = match micros {
            i64::MAX => u64::MAX,
            micros => u64::try_from(micros.div_euclid(1000).saturating_add(EPOCH)).unwrap_or(0),
        };
        Self(Timestamp::from_millis(millis))
    }
}

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.put_i64(self.micros());
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Self::from_micros(i64::from_be_bytes(raw.try_into()?)))
    }
    accepts!(TIMESTAMPTZ);
}

/// What tells one version of a row from every other: its `xmin`. A row that was deleted and inserted
/// again has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u32);

impl ToSql for Version {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.put_u32(self.0);
        Ok(IsNull::No)
    }
    accepts!(XID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Version {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }
    accepts!(XID);
}

/// Shared bytes as `bytea`.
#[derive(Clone, Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql for Blob {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }
    accepts!(BYTEA);
    to_sql_checked!();
}

/// A span as `bigint`; what does not fit is for ever.
pub(crate) fn span_to_sql(span: Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn span_from_sql(millis: i64) -> Span {
    match millis {
        i64::MAX => Span::from_millis(u64::MAX),
        millis => Span::from_millis(u64::try_from(millis).unwrap_or(0)),
    }
}

/// Spans up to a century are added to times inside PostgreSQL; the steps deal with longer ones.
pub(crate) const SANE_MILLIS: i64 = 100 * 365 * 86_400_000;

pub(crate) fn is_sane(span: Span) -> bool {
    span_to_sql(span) < SANE_MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_and_absurd_ones_are_the_end_of_time() {
        for millis in [0, 1, 946_684_800_000, 1_800_000_000_123] {
            let at = At(Timestamp::from_millis(millis));
            assert_eq!(At::from_micros(at.micros()), at);
        }
        let end = At(Timestamp::from_millis(u64::MAX));
        for millis in [u64::MAX, u64::MAX - 1, i64::MAX as u64, END.unsigned_abs() * 2] {
            let at = At(Timestamp::from_millis(millis));
            assert_eq!(At::from_micros(at.micros()), end);
        }
    }

    #[test]
    fn spans_come_back_and_absurd_ones_are_for_ever() {
        for millis in [0, 1, 86_400_000, u64::MAX] {
            let span = Span::from_millis(millis);
            assert_eq!(span_from_sql(span_to_sql(span)), span);
        }
    }
}
