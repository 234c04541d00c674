//! Conversion of OpenMetrics, which `prometheus-client` writes, to the older text format, which every scraper reads.

use std::collections::BTreeSet;

/// Media type of the text that [`MetricsRegistry::encode`](super::MetricsRegistry::encode) returns.
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts OpenMetrics to the text format 0.0.4:
///
/// - `# HELP` and `# TYPE` of a counter carry the `_total` of its samples; `bare` counters lose it everywhere.
/// - `# EOF` and `# UNIT` do not exist.
/// - Bounds of buckets are written as Go does, `60` instead of `60.0`, so that series keep their labels.
pub(super) fn to_text_format(open_metrics: &str, bare: &BTreeSet<String>) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    let mut bare_family = None;
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "EOF"] | ["#", "UNIT", ..] => {}
            // Held back, because only the type that follows says which name it needs.
            ["#", "HELP", _, text] => help = Some(*text),
            ["#", "TYPE", name, kind] => {
                bare_family = (*kind == "counter").then_some(*name).filter(|name| bare.contains(*name));
                let suffix = if *kind == "counter" && bare_family.is_none() { "_total" } else { "" };
                if let Some(text) = help.take() {
                    out.push_str(&format!("# HELP {name}{suffix} {text}\n"));
                }
                out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            _ => push_sample(&mut out, line, bare_family),
        }
    }
    out
}

fn push_sample(out: &mut String, line: &str, bare_family: Option<&str>) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
    match bare_family.filter(|bare| name.strip_suffix("_total") == Some(bare)) {
        Some(bare) => out.push_str(bare),
        None => out.push_str(name),
    }
    let rest = rest.strip_prefix("{}").unwrap_or(rest);
    // The bound is always the first label; its value has no quotes in it.
    let bound = rest.strip_prefix("{le=\"").filter(|_| name.ends_with("_bucket"));
    match bound.and_then(|bound| bound.split_once('"')) {
        Some((bound, rest)) => {
            let bound = bound.strip_suffix(".0").unwrap_or(bound);
            out.push_str(&format!("{{le=\"{bound}\"{rest}"));
        }
        None => out.push_str(rest),
    }
    out.push('\n');
}
