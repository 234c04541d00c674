//! PEM as Go's `encoding/pem` scans it.
//!
//! Go skips what it cannot parse: text, an unterminated block, a block that is not base64.
//! [`crate::pem`] rejects such input, because nothing in an operator's configuration should be
//! dropped silently. Objects from clients must be parsed as Kubernetes parses them.
//!
//! Each byte is visited a constant number of times: a search never goes back behind the last end of
//! a block.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScannedBlock<'a> {
    pub label: &'a [u8],
    pub has_headers: bool,
    pub contents: Vec<u8>,
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

pub(crate) fn blocks(text: &[u8]) -> impl Iterator<Item = ScannedBlock<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (block, after) = next(rest)?;
        rest = after;
        Some(block)
    })
}

/// Returns the first block of a text, and the text after it.
fn next(text: &[u8]) -> Option<(ScannedBlock<'_>, &[u8])> {
    let mut start = 0;
    loop {
        // The first END and the last BEGIN before it. Earlier BEGIN lines have no END.
        let end = start + find(text.get(start..)?, END)?;
        let after_end = end + END.len();
        let Some(begin) = rfind(text.get(start..end)?, BEGIN).map(|begin| start + begin) else {
            start = after_end;
            continue;
        };
        if begin > start && text.get(begin - 1) != Some(&b'\n') {
            start = after_end;
            continue;
        }
        match body(text, begin + BEGIN.len(), end)? {
            Ok(block) => {
                let (_, rest) = line(text.get(after_end - 1..)?);
                return Some((block, rest));
            }
            Err(cursor) if after_end < cursor => return None,
            Err(_) => start = after_end,
        }
    }
}

/// Parses the block whose label starts at `cursor` and whose last line starts after `end`. An error
/// holds the position reached; `None` means that there are no more blocks.
fn body(text: &[u8], cursor: usize, end: usize) -> Option<Result<ScannedBlock<'_>, usize>> {
    let position = |rest: &[u8]| text.len() - rest.len();
    let (label, mut rest) = line(text.get(cursor..)?);
    let Some(label) = label.strip_suffix(DASHES) else { return Some(Err(position(rest))) };
    let mut has_headers = false;
    loop {
        if rest.is_empty() {
            return None;
        }
        let (header, after) = line(rest);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        rest = after;
    }
    let cursor = position(rest);
    // Without contents, the END line directly follows the BEGIN line and shares its newline.
    if has_headers && end < cursor {
        return Some(Err(cursor));
    }
    let trailer = text.get(end + END.len()..)?;
    let ends = trailer.strip_prefix(label).and_then(|trailer| trailer.strip_prefix(DASHES));
    if ends.is_none_or(|after| !line(after).0.is_empty()) {
        return Some(Err(cursor));
    }
    match base64(text.get(cursor..end).unwrap_or_default()) {
        Some(contents) => Some(Ok(ScannedBlock { label, has_headers, contents })),
        None => Some(Err(cursor)),
    }
}

/// Returns the first line without trailing white space, and the text after it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let (mut line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let (line, rest) = text.split_at(end);
            (line.strip_suffix(b"\r").unwrap_or(line), rest.get(1..).unwrap_or_default())
        }
        None => (text, &[][..]),
    };
    while let Some((b' ' | b'\t', shorter)) = line.split_last() {
        line = shorter;
    }
    (line, rest)
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

fn rfind(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).rposition(|window| window == needle)
}

/// Decodes padded base64. Ignores white space and allows nonzero trailing bits: a constant-time
/// decoder is not this lenient, and not needed because nothing here is secret.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut digits = text.iter().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    loop {
        let (mut group, mut count) = (0_u32, 0_u32);
        while count < 4 {
            let Some(digit) = digits.next() else {
                return (count == 0).then_some(bytes);
            };
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' => break,
                _ => return None,
            };
            group |= u32::from(value) << (18 - 6 * count);
            count += 1;
        }
        let [_, first, second, third] = group.to_be_bytes();
        match count {
            4 => bytes.extend([first, second, third]),
            // Padding must be at the end.
            3 => {
                bytes.extend([first, second]);
                return digits.next().is_none().then_some(bytes);
            }
            2 => {
                bytes.push(first);
                let ends = digits.next() == Some(&b'=') && digits.next().is_none();
                return ends.then_some(bytes);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
