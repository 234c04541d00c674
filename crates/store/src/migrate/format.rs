//! Export file format: lines of JSON.
//!
//! ```text
//! {"format":"windlass export","version":1,"engine":"embedded","store":"3f…","revision":4711}
//! {"key":"core/configmaps/default/a","created":12,"modified":34,"value":"{\"kind\":…}"}
//! …
//! {"end":{"objects":2,"contents":"9b…","file":"c0…"}}
//! ```
//!
//! Keys are ascending. `value` is the stored object, byte for byte; a value that is not text is in
//! `base64` instead. `contents` is the SHA-256 of all keys and values, each prefixed with its
//! length as 8 bytes, big-endian. `file` is the SHA-256 of all lines before the last.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::file_output::io_error;
use crate::{Error, Revision, StoredValue};

/// Format name in every export file.
const FORMAT: &str = "windlass export";
/// The only supported version of the format.
const VERSION: i64 = 1;
/// Maximum line length, above that of any object that a store accepts.
const LONGEST_LINE: u64 = 64 << 20;
/// Above any revision that a store reaches, with room above it.
const HIGHEST: Revision = 1 << 61;

/// First line of an export file, with format and origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportHeader {
    format: Cow<'static, str>,
    version: i64,
    /// Origin of the objects: the engine and the store ID.
    pub(super) engine: String,
    pub(super) store: String,
    /// Revision at which all objects were read.
    pub(super) revision: Revision,
}

impl ExportHeader {
    pub(super) fn new(engine: &str, store: String, revision: Revision) -> Self {
        let format = Cow::Borrowed(FORMAT);
        Self { format, version: VERSION, engine: engine.to_owned(), store, revision }
    }

    pub(super) fn encode(&self) -> String {
        encode_json_line(self)
    }
}

/// JSON line of one object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectLine<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    created: Revision,
    modified: Revision,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

pub(super) fn encode_object(key: &str, stored: &StoredValue) -> String {
    let text = std::str::from_utf8(&stored.value).ok().map(Cow::Borrowed);
    let base64 = if text.is_none() { Some(BASE64_STANDARD.encode(&stored.value)) } else { None };
    let (created, modified) = (stored.created, stored.revision);
    encode_json_line(&ObjectLine { key: Cow::Borrowed(key), created, modified, value: text, base64 })
}

/// Last line of an export file, with counts and checksums.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    end: ExportTrailer,
}

/// Count and checksums of all lines before the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportTrailer {
    pub(super) objects: u64,
    pub(super) contents: String,
    file: String,
}

fn encode_json_line(line: &impl Serialize) -> String {
    // Serialization fails only for maps with non-string keys, and there are none.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// Digest of objects, independent of engine and location.
pub(crate) struct ObjectDigest {
    context: Context,
    pub(crate) objects: u64,
}

impl ObjectDigest {
    pub(crate) fn new() -> Self {
        Self { context: Context::new(&SHA256), objects: 0 }
    }

    pub(crate) fn add(&mut self, key: &str, value: &[u8]) {
        for part in [key.as_bytes(), value] {
            self.context.update(&(part.len() as u64).to_be_bytes());
            self.context.update(part);
        }
        self.objects += 1;
    }

    pub(crate) fn hex(self) -> String {
        hex(self.context)
    }
}

fn hex(context: Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computes the contents of the trailer.
pub(super) struct ExportChecksums {
    lines: Context,
    pub(super) contents: ObjectDigest,
}

impl ExportChecksums {
    pub(super) fn new() -> Self {
        Self { lines: Context::new(&SHA256), contents: ObjectDigest::new() }
    }

    pub(super) fn add_header(&mut self, line: &str) {
        self.lines.update(line.as_bytes());
    }

    pub(super) fn add_object(&mut self, line: &str, key: &str, value: &[u8]) {
        self.lines.update(line.as_bytes());
        self.contents.add(key, value);
    }

    /// Returns the trailer, and its encoded line.
    pub(super) fn finish(self) -> (ExportTrailer, String) {
        let objects = self.contents.objects;
        let end = ExportTrailer { objects, contents: self.contents.hex(), file: hex(self.lines) };
        let line = encode_json_line(&EndLine { end: end.clone() });
        (end, line)
    }
}

/// Parser of an untrusted export file.
pub(super) struct ExportReader {
    path: PathBuf,
    lines: BufReader<File>,
    line: String,
    number: u64,
    /// Number of bytes read, in whole lines.
    pub(super) read: u64,
    pub(super) header: ExportHeader,
    last: Option<String>,
    sums: Option<ExportChecksums>,
}

/// Next item of an export file.
pub(super) enum ExportItem {
    Object { key: String, value: Bytes },
    End(ExportTrailer),
}

impl ExportReader {
    /// Opens the file and parses the header line.
    pub(super) fn new(path: &Path, file: File) -> Result<Self, Error> {
        let mut reader = Self {
            path: path.to_owned(),
            lines: BufReader::with_capacity(1 << 20, file),
            line: String::new(),
            number: 0,
            read: 0,
            header: ExportHeader::new("", String::new(), 0),
            last: None,
            sums: Some(ExportChecksums::new()),
        };
        if !reader.next_line()? {
            return Err(reader.corrupt_error("it is empty"));
        }
        reader.header = reader.parse_header()?;
        if let Some(sums) = &mut reader.sums {
            sums.add_header(&reader.line);
        }
        Ok(reader)
    }

    /// Returns the next object, or the trailer once everything before it is verified.
    pub(super) fn next(&mut self) -> Result<ExportItem, Error> {
        let Some(sums) = &mut self.sums else {
            return Err(self.corrupt_error("it has no more objects"));
        };
        let objects = sums.contents.objects;
        if !self.next_line()? {
            return Err(self.corrupt_error(&format!("it is truncated after {objects} objects")));
        }
        if self.line.starts_with(r#"{"end""#) {
            return self.verify_end().map(ExportItem::End);
        }
        let (key, value) = self.parse_object()?;
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(self.line_error("its key is out of order"));
        }
        if let Some(sums) = &mut self.sums {
            sums.add_object(&self.line, &key, &value);
        }
        self.last = Some(key.clone());
        Ok(ExportItem::Object { key, value })
    }

    /// Returns the checksums of the lines read so far, and the last key.
    pub(super) fn into_sums(self) -> (ExportChecksums, Option<String>) {
        (self.sums.unwrap_or_else(ExportChecksums::new), self.last)
    }

    fn parse_header(&self) -> Result<ExportHeader, Error> {
        #[derive(Deserialize)]
        struct FormatProbe {
            format: String,
            version: i64,
        }
        // Only this field is guaranteed in every version.
        let any: Option<FormatProbe> = serde_json::from_str(&self.line).ok();
        let Some(any) = any.filter(|any| any.format == FORMAT) else {
            return Err(self.corrupt_error("it is not an export of a store"));
        };
        if any.version != VERSION {
            let path = self.path.clone();
            return Err(Error::Format { path, found: any.version, supported: VERSION });
        }
        let header: ExportHeader =
            serde_json::from_str(&self.line).map_err(|error| self.line_error(&error.to_string()))?;
        if header.revision > HIGHEST {
            return Err(self.line_error("its revision is out of range"));
        }
        Ok(header)
    }

    fn parse_object(&self) -> Result<(String, Bytes), Error> {
        // The parser's message is omitted: it may quote a Secret.
        let line: ObjectLine<'_> =
            serde_json::from_str(&self.line).map_err(|_| self.line_error("it is not a valid object"))?;
        let value = match (line.value, line.base64) {
            (Some(text), None) => Bytes::from(text.into_owned()),
            (None, Some(text)) => {
                let bytes = BASE64_STANDARD.decode(text);
                bytes.map_err(|_| self.line_error("its value is not valid base64"))?.into()
            }
            _ => return Err(self.line_error("it must have exactly one value")),
        };
        let key = line.key.into_owned();
        if key.is_empty() {
            return Err(self.line_error("it has no key"));
        }
        Ok((key, value))
    }

    fn verify_end(&mut self) -> Result<ExportTrailer, Error> {
        let last: EndLine =
            serde_json::from_str(&self.line).map_err(|error| self.line_error(&error.to_string()))?;
        let Some(sums) = self.sums.take() else {
            return Err(self.corrupt_error("it has two end records"));
        };
        if self.next_line()? {
            return Err(self.line_error("it follows the end record"));
        }
        let (found, _) = sums.finish();
        if found.objects != last.end.objects {
            let what = format!("it has {} objects and should have {}", found.objects, last.end.objects);
            return Err(self.corrupt_error(&what));
        }
        if found != last.end {
            return Err(self.corrupt_error("its digest does not match"));
        }
        Ok(found)
    }

    /// Reads a whole line; `false` at the end of the file.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.number += 1;
        let mut line = std::mem::take(&mut self.line).into_bytes();
        line.clear();
        let mut bounded = (&mut self.lines).take(LONGEST_LINE);
        let read = bounded.read_until(b'\n', &mut line).map_err(|e| io_error(&self.path, &e))?;
        if read == 0 {
            return Ok(false);
        }
        if line.last() != Some(&b'\n') {
            return Err(self.line_error("it is truncated or too long"));
        }
        self.line = String::from_utf8(line).map_err(|_| self.line_error("it is not valid UTF-8"))?;
        self.read += read as u64;
        Ok(true)
    }

    fn line_error(&self, what: &str) -> Error {
        self.corrupt_error(&format!("line {}: {what}", self.number))
    }

    fn corrupt_error(&self, what: &str) -> Error {
        Error::Corrupt { path: self.path.clone(), what: what.to_owned() }
    }
}
