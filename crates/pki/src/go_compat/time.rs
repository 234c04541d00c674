//! UTCTime and GeneralizedTime.

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

use super::der_reader::{DerReader, tag};

/// Parses a UTCTime or a GeneralizedTime.
pub(crate) fn read(reader: &mut DerReader<'_>) -> Option<OffsetDateTime> {
    if reader.peek(tag::UTC_TIME) {
        parse_utc_time(reader.value(tag::UTC_TIME)?)
    } else {
        parse_generalized_time(reader.value(tag::GENERALIZED_TIME)?)
    }
}

/// Parses a UTCTime: `YYMMDDhhmm[ss]` and a time zone. Years from 50 on mean 19xx.
pub(crate) fn parse_utc_time(text: &[u8]) -> Option<OffsetDateTime> {
    let mut fields = TimeFields(text);
    let year = match fields.number(2)? {
        year @ ..50 => 2000 + year,
        year => 1900 + year,
    };
    let date = fields.date(year)?;
    let (hour, minute) = (fields.number(2)?, fields.number(2)?);
    let second = if fields.0.first()?.is_ascii_digit() { fields.number(2)? } else { 0 };
    fields.finish(date, [hour, minute, second])
}

/// Parses a GeneralizedTime: `YYYYMMDDhhmmss` followed by a time zone.
pub(crate) fn parse_generalized_time(text: &[u8]) -> Option<OffsetDateTime> {
    let mut fields = TimeFields(text);
    let year = fields.number(4)?;
    let date = fields.date(year)?;
    let time = [fields.number(2)?, fields.number(2)?, fields.number(2)?];
    fields.finish(date, time)
}

/// Returns true if a value in a request is a GeneralizedTime, which may also have a fraction of up
/// to nine digits that does not end in zero.
pub(crate) fn is_generalized_in_request(text: &[u8]) -> bool {
    let Some((seconds, rest)) = text.split_at_checked(14) else { return false };
    let Some(fraction) = rest.strip_prefix(b".") else {
        return parse_generalized_time(text).is_some();
    };
    let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, zone) = fraction.split_at_checked(digits).unwrap_or_default();
    fraction.len() <= 9
        && fraction.last().is_some_and(|last| *last != b'0')
        && parse_generalized_time(&[seconds, zone].concat()).is_some()
}

struct TimeFields<'a>(&'a [u8]);

impl TimeFields<'_> {
    fn number(&mut self, digits: usize) -> Option<i32> {
        let (field, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        field.iter().try_fold(0, |sum: i32, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            sum.checked_mul(10)?.checked_add(i32::try_from(digit).ok()?)
        })
    }

    fn date(&mut self, year: i32) -> Option<Date> {
        let month = u8::try_from(self.number(2)?).ok()?;
        let day = u8::try_from(self.number(2)?).ok()?;
        Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()
    }

    /// Parses the time zone: `Z`, or an offset of up to 24 hours and 59 minutes, as Go accepts. A
    /// zero offset must be written `Z`. Times outside the supported years are rejected.
    fn finish(mut self, date: Date, time: [i32; 3]) -> Option<OffsetDateTime> {
        let [hour, minute, second] = time.map(|field| u8::try_from(field).ok());
        let time = Time::from_hms(hour?, minute?, second?).ok()?;
        let (&sign, rest) = self.0.split_first()?;
        self.0 = rest;
        let sign = match sign {
            b'Z' if rest.is_empty() => return Some(OffsetDateTime::new_utc(date, time)),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let (hours, minutes) = (self.number(2)?, self.number(2)?);
        if hours > 24 || minutes > 59 || (hours, minutes) == (0, 0) || !self.0.is_empty() {
            return None;
        }
        let offset = UtcOffset::from_whole_seconds(sign * (hours * 3600 + minutes * 60)).ok()?;
        OffsetDateTime::new_in_offset(date, time, offset).checked_to_offset(UtcOffset::UTC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn reads_what_go_reads() {
        let table = [
            ("260101000000Z", Some(datetime!(2026-01-01 0:00 UTC))),
            ("2601010000Z", Some(datetime!(2026-01-01 0:00 UTC))),
            ("500101000000Z", Some(datetime!(1950-01-01 0:00 UTC))),
            ("491231235959Z", Some(datetime!(2049-12-31 23:59:59 UTC))),
            ("260101000000+0100", Some(datetime!(2025-12-31 23:00 UTC))),
            ("260101000000-2400", Some(datetime!(2026-01-02 0:00 UTC))),
            ("260101000000+0000", None),
            ("260101000000-0000", None),
            ("260101000000+0060", None),
            ("260101000000+2500", None),
            ("260101000000", None),
            ("260101000000ZZ", None),
            ("260101000000.5Z", None),
            ("260230000000Z", None),
            ("260101240000Z", None),
            ("26010100000Z", None),
            ("", None),
        ];
        for (text, time) in table {
            assert_eq!(parse_utc_time(text.as_bytes()), time, "{text}");
        }
        let table = [
            ("20560101000000Z", Some(datetime!(2056-01-01 0:00 UTC))),
            ("00000101000000Z", Some(datetime!(0000-01-01 0:00 UTC))),
            ("99991231235959Z", Some(datetime!(9999-12-31 23:59:59 UTC))),
            ("99991231235959-0100", None),
            ("20560101000000.0Z", None),
            ("205601010000Z", None),
            ("20561301000000Z", None),
            ("+0560101000000Z", None),
        ];
        for (text, time) in table {
            assert_eq!(parse_generalized_time(text.as_bytes()), time, "{text}");
        }
        for (text, good) in [
            ("20560101000000Z", true),
            ("20560101000000.5Z", true),
            ("20560101000000.123456789-0100", true),
            ("20560101000000.1234567891Z", false),
            ("20560101000000.50Z", false),
            ("20560101000000.Z", false),
            ("20560101000000,5Z", false),
            ("20560101000000.5", false),
            ("205601010000.5Z", false),
        ] {
            assert_eq!(is_generalized_in_request(text.as_bytes()), good, "{text}");
        }
    }
}
