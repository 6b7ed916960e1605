//! Conversions between semel's types and PostgreSQL's: times, spans, row versions and bytes.

use std::error::Error as StdError;

use bytes::{BufMut, Bytes, BytesMut};
use semel_core::{Span, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type SqlConversionError = Box<dyn StdError + Sync + Send>;

/// The store's time as `timestamptz`. A time beyond PostgreSQL's range is `infinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PgTimestamp(pub(crate) Timestamp);

/// Milliseconds from 1970 to 2000, the epoch of PostgreSQL.
const EPOCH: i64 = 946_684_800_000;
/// The first millisecond after 2000 that is beyond PostgreSQL's range.
const END: i64 = 9_223_371_331_200_000;

impl PgTimestamp {
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

impl ToSql for PgTimestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, SqlConversionError> {
        out.put_i64(self.micros());
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgTimestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, SqlConversionError> {
        Ok(Self::from_micros(i64::from_be_bytes(raw.try_into()?)))
    }
    accepts!(TIMESTAMPTZ);
}

/// The version of a row: its `xmin`. Every write changes it, also when a row is deleted and inserted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowVersion(u32);

impl ToSql for RowVersion {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, SqlConversionError> {
        out.put_u32(self.0);
        Ok(IsNull::No)
    }
    accepts!(XID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for RowVersion {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, SqlConversionError> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }
    accepts!(XID);
}

/// Shared bytes as `bytea`.
#[derive(Clone, Debug)]
pub(crate) struct PgBytes(pub(crate) Bytes);

impl ToSql for PgBytes {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, SqlConversionError> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }
    accepts!(BYTEA);
    to_sql_checked!();
}

/// A span as `bigint` milliseconds. A longer one is `i64::MAX`, which means for ever.
pub(crate) fn span_to_sql(span: Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn span_from_sql(millis: i64) -> Span {
    match millis {
        i64::MAX => Span::from_millis(u64::MAX),
        millis => Span::from_millis(u64::try_from(millis).unwrap_or(0)),
    }
}

/// Statements add spans up to a century to timestamps. Requests with longer ones take the slow path.
pub(crate) const MAX_SQL_MILLIS: i64 = 100 * 365 * 86_400_000;

pub(crate) fn fits_sql(span: Span) -> bool {
    span_to_sql(span) < MAX_SQL_MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_and_those_beyond_the_range_are_infinity() {
        for millis in [0, 1, 946_684_800_000, 1_800_000_000_123] {
            let at = PgTimestamp(Timestamp::from_millis(millis));
            assert_eq!(PgTimestamp::from_micros(at.micros()), at);
        }
        let end = PgTimestamp(Timestamp::from_millis(u64::MAX));
        for millis in [u64::MAX, u64::MAX - 1, i64::MAX as u64, END.unsigned_abs() * 2] {
            let at = PgTimestamp(Timestamp::from_millis(millis));
            assert_eq!(PgTimestamp::from_micros(at.micros()), end);
        }
    }

    #[test]
    fn spans_come_back_and_the_longest_is_for_ever() {
        for millis in [0, 1, 86_400_000, u64::MAX] {
            let span = Span::from_millis(millis);
            assert_eq!(span_from_sql(span_to_sql(span)), span);
        }
    }
}
