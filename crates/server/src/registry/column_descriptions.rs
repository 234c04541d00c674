//! Descriptions of table columns, as Kubernetes words them.

use std::collections::HashMap;
use std::sync::LazyLock;

/// One column per line: `plural, column = description`, with `\n` for a line break.
const SOURCE: &str = include_str!("column_descriptions.txt");

static BY_COLUMN: LazyLock<HashMap<(&str, &str), String>> = LazyLock::new(|| lines().collect());

/// Returns the description of a column; empty if Kubernetes has none.
pub(crate) fn get(plural: &'static str, column: &'static str) -> &'static str {
    BY_COLUMN.get(&(plural, column)).map_or("", String::as_str)
}

fn lines() -> impl Iterator<Item = ((&'static str, &'static str), String)> {
    SOURCE.lines().filter_map(|line| {
        let (column, description) = line.split_once(" = ")?;
        Some((column.split_once(", ")?, description.replace("\\n", "\n")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::KINDS;

    #[test]
    fn descriptions_and_columns_belong_together() {
        assert_eq!(lines().count(), SOURCE.lines().filter(|line| !line.starts_with('#')).count());
        for ((plural, column), _) in lines() {
            let kind = KINDS.iter().find(|kind| kind.plural == plural).unwrap();
            let known = kind.columns.iter().any(|c| c.name == column && c.description.is_none());
            assert!(known, "{plural} have no column {column}");
        }
        for kind in KINDS {
            for column in kind.columns.iter().filter(|column| column.description.is_none()) {
                // Kubernetes looks this one up in the wrong type and finds none.
                let missing = (kind.plural, column.name) == ("runtimeclasses", "Handler");
                assert_eq!(get(kind.plural, column.name).is_empty(), missing, "{kind:?} {}", column.name);
            }
        }
    }
}
