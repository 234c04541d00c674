//! Output for people and for programs. Untrusted text is sanitized before it reaches the terminal.

use std::borrow::Cow;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cli::OutputFormat;

/// Prints a value as JSON or YAML if requested, otherwise the output of `text`.
pub fn show<T: Serialize>(
    value: &T,
    format: Option<OutputFormat>,
    text: impl FnOnce(Option<OutputFormat>) -> String,
) -> Result<()> {
    let printed = match format {
        // Written piece by piece: a list may have hundreds of thousands of items.
        Some(OutputFormat::Json) => {
            return buffered(|stdout| {
                serde_json::to_writer_pretty(&mut *stdout, value)?;
                stdout.write_all(b"\n")
            });
        }
        Some(OutputFormat::Yaml) => yaml(value)?,
        None | Some(OutputFormat::Wide | OutputFormat::Name) => text(format),
    };
    write_stdout(&printed)
}

/// Formats a value as YAML, with each string on one line.
pub fn yaml<T: Serialize>(value: &T) -> Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

/// Writes to standard output and flushes; a closed pipe is an error.
pub fn write_stdout(text: &str) -> Result<()> {
    buffered(|stdout| stdout.write_all(text.as_bytes()))
}

/// Writes lines to standard output as they are generated.
pub fn write_lines(mut lines: impl Iterator<Item = String>) -> Result<()> {
    buffered(|stdout| {
        lines.try_for_each(|mut line| {
            line.push('\n');
            stdout.write_all(line.as_bytes())
        })
    })
}

/// Writes a table to standard output row by row, so that a long one is never in memory as text. Calls `rows` twice: first
/// for the widths of columns.
pub fn write_table<C: AsRef<str>, I: Iterator<Item = Vec<C>>>(rows: impl Fn() -> I) -> Result<()> {
    let mut widths = ColumnWidths::default();
    rows().for_each(|row| widths.add(&row));
    write_lines(rows().map(|row| widths.line(&row)))
}

fn buffered(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let written = write(&mut stdout).and_then(|()| stdout.flush());
    written.context("cannot write to standard output")
}

/// Sanitizes an untrusted sentence to one line.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_invisible(c) { ' ' } else { c }).collect()
}

/// Sanitizes an untrusted name; quotes it if it could be mistaken for several words or for
/// something else.
pub fn word(text: &str) -> String {
    sanitize_word(text).into_owned()
}

/// Sanitizes an untrusted name as [`word`] does, without copying one that needs no change.
pub fn sanitize_word(text: &str) -> Cow<'_, str> {
    // Most names, of which a list may have hundreds of thousands.
    let is_usual = |byte: u8| byte.is_ascii_graphic() && !b",;\"'\\".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_usual) {
        return Cow::Borrowed(text);
    }
    let odd = |c: char| is_invisible(c) || c.is_whitespace() || ",;\"'\\".contains(c);
    if text.is_empty() || text.chars().any(odd) {
        let shown = text.chars().map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if is_invisible(c) => c.escape_unicode().to_string(),
            c => c.to_string(),
        });
        return Cow::Owned(format!("\"{}\"", shown.collect::<String>()));
    }
    Cow::Borrowed(text)
}

/// Joins sanitized names to one list.
pub fn words<T: AsRef<str>>(all: &[T]) -> String {
    all.iter().map(|text| word(text.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Returns whether a character is a control character or changes the direction of text.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Formats columns as wide as their widest entry, with spaces between them.
pub fn table<C: AsRef<str>>(rows: &[Vec<C>]) -> String {
    let mut widths = ColumnWidths::default();
    rows.iter().for_each(|row| widths.add(row));
    rows.iter().map(|row| widths.line(row) + "\n").collect()
}

const COLUMN_GAP: usize = 3;

/// Widths of the columns of a table, in characters.
#[derive(Default)]
struct ColumnWidths(Vec<usize>);

impl ColumnWidths {
    fn add<C: AsRef<str>>(&mut self, row: &[C]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = (*width).max(cell.as_ref().chars().count());
        }
    }

    fn line<C: AsRef<str>>(&self, row: &[C]) -> String {
        let mut line = String::with_capacity(self.0.iter().map(|width| width + COLUMN_GAP).sum());
        let mut missing = 0;
        for (cell, width) in row.iter().zip(&self.0) {
            line.extend(std::iter::repeat_n(' ', missing));
            line.push_str(cell.as_ref());
            missing = width.saturating_sub(cell.as_ref().chars().count()) + COLUMN_GAP;
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_look_like() {
        for (name, shown) in [
            ("system:node:n1", "system:node:n1"),
            ("jürgen", "jürgen"),
            ("", "\"\""),
            ("a, b", "\"a, b\""),
            ("a\"b", "\"a\\\"b\""),
            ("a\u{1b}[2J", "\"a\\u{1b}[2J\""),
            ("gro\u{202e}lia", "\"gro\\u{202e}lia\""),
        ] {
            assert_eq!(word(name), shown);
        }
        assert_eq!(plain("no\nsuch\u{1b}[0m thing"), "no such [0m thing");
    }

    #[test]
    fn texts_stay_texts_in_yaml() {
        // YAML 1.1 parsers read numbers with colons as sexagesimal.
        let text = yaml(&["10:20:30", "1e3", "no", "4b:af", &"x".repeat(200)]).unwrap();
        let read: Vec<String> = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read.first().map(String::as_str), Some("10:20:30"));
        let lines = text.lines().collect::<Vec<_>>();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines.iter().take(3).all(|line| line.contains('"')), "{text}");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["NAME", "AGE"], ["ü", "3s"], ["longer", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "NAME     AGE\nü        3s\nlonger\n");
    }
}
