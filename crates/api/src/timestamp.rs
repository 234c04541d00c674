//! RFC 3339 times on the wire: UTC, with seconds or microseconds.
//!
//! Parsing follows Go, including its leniency (a one-digit hour, a comma before the fraction) and
//! error texts, which clients know from a real server.

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use crate::field::quote;

/// Go's name of the layout, which its errors repeat.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// Formats a time as `2006-01-02T15:04:05Z`; truncates fractions of a second.
pub fn format(time: OffsetDateTime) -> String {
    let mut out = String::with_capacity(20);
    write_seconds(time, &mut out);
    out.push('Z');
    out
}

/// Formats a time in UTC with microseconds, `2006-01-02T15:04:05.000000Z`.
pub fn format_micro(time: OffsetDateTime) -> String {
    let mut out = String::with_capacity(27);
    write_seconds(time, &mut out);
    out.push('.');
    push_digits(time.microsecond(), 6, &mut out);
    out.push('Z');
    out
}

fn write_seconds(time: OffsetDateTime, out: &mut String) {
    // A time that cannot be converted to UTC is at the very end of the calendar; its own offset is
    // kept.
    let time = time.checked_to_offset(UtcOffset::UTC).unwrap_or(time);
    if time.year() < 0 {
        out.push('-');
    }
    push_digits(time.year().unsigned_abs(), 4, out);
    let rest = [
        ('-', u8::from(time.month())),
        ('-', time.day()),
        ('T', time.hour()),
        (':', time.minute()),
        (':', time.second()),
    ];
    for (separator, number) in rest {
        out.push(separator);
        push_digits(number.into(), 2, out);
    }
}

fn push_digits(number: u32, width: u32, out: &mut String) {
    for place in (0..width).rev() {
        out.push(char::from(b'0' + (number / 10u32.pow(place) % 10) as u8));
    }
}

/// Reason why a text is not a time, in Go's wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parsing time {}{why}", quote(.text))]
pub struct TimestampError {
    text: String,
    why: String,
}

/// Parses an RFC 3339 time with any offset; the result is in UTC.
pub fn parse(text: &str) -> Result<OffsetDateTime, TimestampError> {
    let mut scan = TimestampScanner { rest: text };
    read(&mut scan).map_err(|why| TimestampError { text: text.to_owned(), why: why.message() })
}

enum TimestampFault<'a> {
    Unlike { rest: &'a str, element: &'static str },
    OutOfRange(&'static str),
    ExtraText(&'a str),
}

impl TimestampFault<'_> {
    fn message(&self) -> String {
        match self {
            TimestampFault::Unlike { rest, element } => {
                format!(" as \"{LAYOUT}\": cannot parse {} as \"{element}\"", quote(rest))
            }
            TimestampFault::OutOfRange(what) => format!(": {what} out of range"),
            TimestampFault::ExtraText(rest) => format!(": extra text: {}", quote(rest)),
        }
    }
}

fn read<'a>(scan: &mut TimestampScanner<'a>) -> Result<OffsetDateTime, TimestampFault<'a>> {
    let year = scan.number(4, 4, "2006")?;
    scan.literal("-")?;
    let month = scan.number(2, 2, "01")?;
    let month = u8::try_from(month).ok().and_then(|m| Month::try_from(m).ok());
    let month = month.ok_or(TimestampFault::OutOfRange("month"))?;
    scan.literal("-")?;
    let day = scan.number(2, 2, "02")?;
    scan.literal("T")?;
    let hour = in_range(scan.number(1, 2, "15")?, 23, "hour")?;
    scan.literal(":")?;
    let minute = in_range(scan.number(2, 2, "04")?, 59, "minute")?;
    scan.literal(":")?;
    let second = in_range(scan.number(2, 2, "05")?, 59, "second")?;
    let nanosecond = scan.fraction();
    let offset = scan.offset()?;
    if !scan.rest.is_empty() {
        return Err(TimestampFault::ExtraText(scan.rest));
    }
    let date = Date::from_calendar_date(year as i32, month, day as u8)
        .map_err(|_| TimestampFault::OutOfRange("day"))?;
    let clock = Time::from_hms_nano(hour as u8, minute as u8, second as u8, nanosecond)
        .map_err(|_| TimestampFault::OutOfRange("second"))?;
    let time = PrimitiveDateTime::new(date, clock).assume_offset(offset);
    time.checked_to_offset(UtcOffset::UTC).ok_or(TimestampFault::OutOfRange("year"))
}

fn in_range<'a>(number: u32, max: u32, what: &'static str) -> Result<u32, TimestampFault<'a>> {
    if number <= max { Ok(number) } else { Err(TimestampFault::OutOfRange(what)) }
}

/// Remaining text to be parsed.
struct TimestampScanner<'a> {
    rest: &'a str,
}

impl<'a> TimestampScanner<'a> {
    fn number(
        &mut self,
        least: usize,
        most: usize,
        element: &'static str,
    ) -> Result<u32, TimestampFault<'a>> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return Err(TimestampFault::Unlike { rest: self.rest, element });
        }
        let number = self.rest.bytes().take(digits).fold(0, |n, b| n * 10 + u32::from(b - b'0'));
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, element: &'static str) -> Result<(), TimestampFault<'a>> {
        self.rest =
            self.rest.strip_prefix(element).ok_or(TimestampFault::Unlike { rest: self.rest, element })?;
        Ok(())
    }

    /// Parses an optional fraction to nanoseconds; digits after the ninth are ignored.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return 0;
        }
        let mut places = rest.bytes().take(digits);
        let nanoseconds = (0..9).fold(0, |n, _| n * 10 + places.next().map_or(0, |b| u32::from(b - b'0')));
        self.rest = &rest[digits..];
        nanoseconds
    }

    fn offset(&mut self) -> Result<UtcOffset, TimestampFault<'a>> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(UtcOffset::UTC);
        }
        let unlike = TimestampFault::Unlike { rest: self.rest, element: "Z07:00" };
        let bytes = self.rest.as_bytes();
        let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] = bytes else { return Err(unlike) };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(unlike);
        }
        let number = |tens: u8, ones: u8| i32::from(tens - b'0') * 10 + i32::from(ones - b'0');
        let (hours, minutes) = (number(h1, h2), number(m1, m2));
        if hours > 24 {
            return Err(TimestampFault::OutOfRange("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(TimestampFault::OutOfRange("time zone offset minute"));
        }
        let seconds = (hours * 60 + minutes) * 60;
        self.rest = &self.rest[6..];
        UtcOffset::from_whole_seconds(if sign == b'-' { -seconds } else { seconds })
            .map_err(|_| TimestampFault::OutOfRange("time zone offset hour"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn times_are_written_in_utc() {
        let time = datetime!(2026-01-02 03:04:05.060708 +02:00);
        assert_eq!(format(time), "2026-01-02T01:04:05Z");
        assert_eq!(format_micro(time), "2026-01-02T01:04:05.060708Z");
        assert_eq!(format(datetime!(0001-01-01 0:00 UTC)), "0001-01-01T00:00:00Z");
    }

    #[test]
    fn times_are_read_as_go_reads_them() {
        let cases = [
            ("2026-01-02T03:04:05Z", datetime!(2026-01-02 03:04:05 UTC)),
            ("2026-01-02T03:04:05.5Z", datetime!(2026-01-02 03:04:05.5 UTC)),
            ("2026-01-02T03:04:05,1234567891Z", datetime!(2026-01-02 03:04:05.123456789 UTC)),
            ("2026-01-02T03:04:05+02:30", datetime!(2026-01-02 00:34:05 UTC)),
            ("2026-01-02T03:04:05-24:00", datetime!(2026-01-03 03:04:05 UTC)),
            ("2026-01-02T3:04:05Z", datetime!(2026-01-02 03:04:05 UTC)),
            ("2024-02-29T00:00:00Z", datetime!(2024-02-29 0:00 UTC)),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_reported_as_go_does() {
        let unlike = " as \"2006-01-02T15:04:05Z07:00\": cannot parse ";
        let cases = [
            ("", format!("{unlike}\"\" as \"2006\"")),
            ("nope", format!("{unlike}\"nope\" as \"2006\"")),
            ("2026/01", format!("{unlike}\"/01\" as \"-\"")),
            ("2026-1-02", format!("{unlike}\"1-02\" as \"01\"")),
            ("2026-01-02", format!("{unlike}\"\" as \"T\"")),
            ("2026-01-02t03:04:05Z", format!("{unlike}\"t03:04:05Z\" as \"T\"")),
            ("2026-01-02T03:04:05", format!("{unlike}\"\" as \"Z07:00\"")),
            ("2026-01-02T03:04:05.Z", format!("{unlike}\".Z\" as \"Z07:00\"")),
            ("2026-01-02T03:04:05+0100", format!("{unlike}\"+0100\" as \"Z07:00\"")),
            ("2026-13-02T03:04:05Z", ": month out of range".to_owned()),
            ("2026-00-02T03:04:05Z", ": month out of range".to_owned()),
            ("2026-02-29T03:04:05Z", ": day out of range".to_owned()),
            ("2026-01-02T24:04:05Z", ": hour out of range".to_owned()),
            ("2026-01-02T03:04:60Z", ": second out of range".to_owned()),
            ("2026-01-02T03:04:05+25:00", ": time zone offset hour out of range".to_owned()),
            ("2026-01-02T03:04:05Zé", ": extra text: \"é\"".to_owned()),
            ("9999-12-31T23:59:59-01:00", ": year out of range".to_owned()),
        ];
        for (text, want) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("parsing time \"{text}\"{want}"));
        }
    }
}
