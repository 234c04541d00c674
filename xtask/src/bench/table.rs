//! Results table: measured values next to those of kube-apiserver on a machine of this size.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Source of the reference figures.
const REFERENCE: &str = "kube-apiserver v1.37.0-rc.1 with etcd, quiet 2-core machine";

/// Whether larger or smaller values are an improvement.
#[derive(Clone, Copy, PartialEq)]
pub enum BetterDirection {
    Higher,
    /// Lower is better: times and memory.
    Lower,
}

/// A measured value with its unit and reference.
pub struct TableRow {
    name: String,
    value: f64,
    unit: &'static str,
    better: BetterDirection,
    reference: Option<f64>,
    note: String,
}

impl TableRow {
    /// Creates a row for which higher values are better.
    pub fn higher(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self::new(name.into(), value, unit, BetterDirection::Higher)
    }

    /// Creates a row for which lower values are better.
    pub fn lower(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self::new(name.into(), value, unit, BetterDirection::Lower)
    }

    fn new(name: String, value: f64, unit: &'static str, better: BetterDirection) -> Self {
        Self { name, value, unit, better, reference: None, note: String::new() }
    }

    /// Adds kube-apiserver's value, in the same unit.
    pub fn reference(mut self, value: f64) -> Self {
        self.reference = Some(value);
        self
    }

    /// Adds a note: percentiles, spread, conditions.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Returns the improvement factor over the reference.
    fn ratio(&self) -> Option<f64> {
        let reference = self.reference?;
        Some(match self.better {
            BetterDirection::Higher => self.value / reference,
            BetterDirection::Lower => reference / self.value,
        })
    }
}

/// Rows of one run, and the machine's description.
pub struct ResultTable {
    rows: Vec<TableRow>,
    load_before: String,
}

impl ResultTable {
    /// Creates an empty table and records the machine's load before the run.
    pub fn new() -> Self {
        Self { rows: Vec::new(), load_before: load() }
    }

    /// Adds a row and prints it immediately.
    pub fn add(&mut self, row: TableRow) {
        eprintln!("bench:   {} = {} {}", row.name, number(row.value), row.unit);
        self.rows.push(row);
    }

    pub fn print(&self) {
        let mut cells = vec![["measured", "", "unit", "reference", "better by", "note"].map(str::to_owned)];
        for row in &self.rows {
            cells.push([
                row.name.clone(),
                number(row.value),
                row.unit.to_owned(),
                row.reference.map(number).unwrap_or_default(),
                row.ratio().map(|ratio| format!("{ratio:.1}x")).unwrap_or_default(),
                row.note.clone(),
            ]);
        }
        let mut widths = [0; 6];
        for line in &cells {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        println!();
        for (index, line) in cells.iter().enumerate() {
            let [name, value, unit, reference, ratio, note] = line;
            let [w0, w1, w2, w3, w4, _] = widths;
            println!(
                "{}",
                format!("{name:<w0$}  {value:>w1$} {unit:<w2$}  {reference:>w3$}  {ratio:>w4$}  {note}")
                    .trim_end()
            );
            if index == 0 {
                println!("{}", "-".repeat(widths.iter().sum::<usize>().min(140)));
            }
        }
        println!();
        println!("reference: {REFERENCE}");
        for (name, value) in self.machine() {
            println!("{name}: {value}");
        }
    }

    /// Writes the rows and the machine's description as JSON.
    pub fn save(&self, file: &Path) -> Result<()> {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name,
                    "value": row.value,
                    "unit": row.unit,
                    "better": if row.better == BetterDirection::Higher { "higher" } else { "lower" },
                    "reference": row.reference,
                    "ratio": row.ratio(),
                    "note": row.note,
                })
            })
            .collect();
        let machine: serde_json::Map<String, Value> =
            self.machine().into_iter().map(|(name, value)| (name.to_owned(), Value::String(value))).collect();
        let document = json!({"reference": REFERENCE, "machine": machine, "rows": rows});
        fs::write(file, format!("{document:#}\n")).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Returns what the numbers depend on besides the program.
    fn machine(&self) -> [(&'static str, String); 4] {
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let model = fs::read_to_string("/proc/cpuinfo")
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned())
            .unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        [
            ("processors", format!("{processors} x {model}")),
            ("kernel", kernel.trim().to_owned()),
            ("load average before", self.load_before.clone()),
            ("load average after (ours included)", load()),
        ]
    }
}

fn load() -> String {
    let all = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Formats with three significant digits; a shared machine is not more precise.
fn number(value: f64) -> String {
    match value.abs() {
        0.0..0.1 => format!("{value:.4}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Sorted latencies, from which percentiles are computed.
pub struct LatencyDistribution(Vec<Duration>);

impl LatencyDistribution {
    /// Sorts the samples; fails if there are none.
    pub fn from_samples(mut samples: Vec<Duration>) -> Result<Self> {
        anyhow::ensure!(!samples.is_empty(), "nothing was measured");
        samples.sort_unstable();
        Ok(Self(samples))
    }

    /// Returns the duration that this share of samples (0 to 1) does not exceed, in milliseconds.
    pub fn millis(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        let index = (last as f64 * share).round() as usize;
        self.0[index.min(last)].as_secs_f64() * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_point_in_the_good_direction() {
        assert_eq!(TableRow::higher("a", 900.0, "/s").reference(300.0).ratio(), Some(3.0));
        assert_eq!(TableRow::lower("a", 100.0, "ms").reference(300.0).ratio(), Some(3.0));
        assert_eq!(TableRow::lower("a", 100.0, "ms").ratio(), None);
    }

    #[test]
    fn percentiles_of_a_hundred() {
        let spread =
            LatencyDistribution::from_samples((1..=101).rev().map(Duration::from_millis).collect()).unwrap();
        assert_eq!(spread.millis(0.5), 51.0);
        assert_eq!(spread.millis(0.99), 100.0);
        assert_eq!(spread.millis(1.0), 101.0);
        assert!(LatencyDistribution::from_samples(Vec::new()).is_err());
    }

    #[test]
    fn numbers_are_short() {
        for (value, shown) in [(0.0123, "0.0123"), (4.1, "4.10"), (37.25, "37.2"), (5012.3, "5012")] {
            assert_eq!(number(value), shown);
        }
    }
}
