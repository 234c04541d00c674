//! Encodes list items and their envelope in every format and view.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use windlass_api::decode::{has_tabbed_block, to_yaml_in_style};

use super::history::HistoricalObjects;
use crate::object::Object;
use crate::registry::kind::{Kind, ServedVersion};
use crate::request::negotiation::{MetaVersion, ObjectView, OutputFormat, OutputOptions};
use crate::response::partial;
use crate::table::RowEncoder;

/// Encoded parts of a list around its items.
pub struct ListEnvelope {
    /// Bytes before the first item, including the list's metadata.
    pub head: Vec<u8>,
    /// Separator between two items, such as a comma.
    pub between: &'static [u8],
    /// Bytes after the last item, which close the list.
    pub tail: Vec<u8>,
}

#[derive(Clone, Copy)]
pub struct ItemEncoder {
    view: ItemView,
    syntax: ListSyntax,
}

#[derive(Clone, Copy)]
enum ItemView {
    Object(&'static Kind, &'static ServedVersion),
    Row(RowEncoder),
    Metadata(&'static Kind, &'static ServedVersion, MetaVersion),
}

#[derive(Clone, Copy)]
enum ListSyntax {
    Compact,
    Pretty,
    /// With the key of the array, which the YAML library needs to indent the items.
    Yaml {
        key: &'static str,
        block_scalars: bool,
    },
}

impl ItemEncoder {
    /// Chooses the item encoding of a list; `whole` is the list without its items.
    pub fn new(
        output: OutputOptions,
        kind: &'static Kind,
        served: &'static ServedVersion,
        rows: impl FnOnce(MetaVersion) -> RowEncoder,
    ) -> ItemEncoder {
        let view = match output.view {
            ObjectView::Object | ObjectView::Discovery => ItemView::Object(kind, served),
            ObjectView::Table(version) => ItemView::Row(rows(version)),
            ObjectView::Metadata(version) => ItemView::Metadata(kind, served, version),
        };
        let syntax = match output.format {
            OutputFormat::Json if output.pretty => ListSyntax::Pretty,
            OutputFormat::Json => ListSyntax::Compact,
            OutputFormat::Yaml => ListSyntax::Yaml { key: view.key(), block_scalars: true },
        };
        ItemEncoder { view, syntax }
    }

    /// Builds the envelope of a list; `whole` is the list without its items. Decides the YAML
    /// style, which depends on the whole list.
    pub fn build_envelope(
        &mut self,
        whole: Value,
        objects: &[Arc<Object>],
        past: Option<&HistoricalObjects>,
    ) -> ListEnvelope {
        if let ListSyntax::Yaml { key, .. } = self.syntax {
            let tabbed = has_tabbed_block(&whole)
                || past.is_some_and(|past| past.has_tabs)
                || objects.iter().any(|o| o.has_tabs() && has_tabbed_block(&self.view.value(o)));
            self.syntax = ListSyntax::Yaml { key, block_scalars: !tabbed };
        }
        let key = self.view.key();
        let (mut before, mut after) = (Map::new(), Map::new());
        if let Value::Object(whole) = whole {
            // In key order, which is the order of output.
            for (name, value) in whole.into_iter().filter(|(name, _)| name != key) {
                let part = if *name < *key { &mut before } else { &mut after };
                part.insert(name, value);
            }
        }
        match self.syntax {
            ListSyntax::Compact => compact(key, &before.into(), after),
            ListSyntax::Pretty => pretty(key, &before.into(), after),
            ListSyntax::Yaml { block_scalars, .. } => yaml(key, &before.into(), after, block_scalars),
        }
    }

    /// Builds the envelope of a list of cached item bytes; `None` for other encodings.
    pub fn spliced_envelope(&self, name: &str, metadata: &Value) -> Option<ListEnvelope> {
        let (ItemView::Object(_, served), ListSyntax::Compact) = (self.view, self.syntax) else {
            return None;
        };
        let head = crate::object::head(name, &served.api_version());
        Some(ListEnvelope {
            head: format!("{head}\"metadata\":{metadata},\"items\":[").into_bytes(),
            between: b",",
            tail: b"]}".to_vec(),
        })
    }

    /// Returns the total length of the items, if they are cached bytes.
    pub fn length(&self, objects: &[Arc<Object>], past: Option<&HistoricalObjects>) -> Option<usize> {
        let (ItemView::Object(_, ServedVersion { convert: None, .. }), ListSyntax::Compact) =
            (self.view, self.syntax)
        else {
            return None;
        };
        let cached: usize = objects.iter().map(|object| 1 + object.stored_item().len()).sum();
        Some(cached + past.map_or(0, |past| past.count + past.item_bytes))
    }

    /// Returns the cached bytes of an item after its `{`, if there are at least `least`.
    pub fn cached_bytes(&self, object: &Object, least: usize) -> Option<Bytes> {
        match (self.view, self.syntax) {
            (ItemView::Object(kind, served), ListSyntax::Compact) if object.size() >= least => {
                Some(object.item(kind, served))
            }
            _ => None,
        }
    }

    /// Estimates the size of an item that is not cached in this format.
    pub fn copied_size(&self, object: &Object) -> usize {
        match (self.view, self.syntax) {
            (ItemView::Object(_, ServedVersion { convert: None, .. }), ListSyntax::Compact) => 0,
            _ => object.size(),
        }
    }

    /// Appends one encoded item to `out`, without a separator.
    pub fn write(&self, object: &Object, out: &mut Vec<u8>) {
        match (self.view, self.syntax) {
            (ItemView::Object(kind, served), ListSyntax::Compact) => {
                out.push(b'{');
                match served.convert {
                    None => out.extend_from_slice(object.stored_item()),
                    Some(_) => out.extend_from_slice(&object.item(kind, served)),
                }
            }
            // Writing JSON to memory does not fail.
            (view, ListSyntax::Compact) => {
                let _ = serde_json::to_writer(out, &view.value(object));
            }
            (view, ListSyntax::Pretty) => {
                let text = serde_json::to_vec_pretty(&view.value(object)).unwrap_or_default();
                // Line breaks in strings are escaped, so all others belong to the layout.
                for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
                    if number > 0 {
                        out.extend_from_slice(b"\n    ");
                    }
                    out.extend_from_slice(line);
                }
            }
            (view, ListSyntax::Yaml { key, block_scalars }) => {
                let value = view.value(object);
                let list = json!({ key: [value] });
                let text = to_yaml_in_style(&list, block_scalars);
                match text.strip_prefix(key).and_then(|rest| rest.strip_prefix(":\n")) {
                    Some(item) => out.extend_from_slice(item.as_bytes()),
                    // The YAML library failed; JSON is valid YAML too.
                    None => out.extend_from_slice(format!("- {}\n", list[key][0]).as_bytes()),
                }
            }
        }
    }
}

impl ItemView {
    /// Returns the key of the array in the list.
    fn key(self) -> &'static str {
        match self {
            ItemView::Row(_) => "rows",
            ItemView::Object(..) | ItemView::Metadata(..) => "items",
        }
    }

    fn value(self, object: &Object) -> Value {
        match self {
            ItemView::Object(kind, served) => {
                let mut value = object.value(kind, served);
                if let Value::Object(fields) = &mut value {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                value
            }
            ItemView::Row(rows) => rows.row(object),
            ItemView::Metadata(kind, served, version) => partial(kind, served, version, object),
        }
    }
}

fn compact(key: &str, before: &Value, after: Map<String, Value>) -> ListEnvelope {
    let mut head = before.to_string();
    head.pop(); // the brace
    let tail = if after.is_empty() {
        "]}".to_owned()
    } else {
        format!("],{}", &Value::from(after).to_string()[1..])
    };
    ListEnvelope { head: format!("{head},\"{key}\":[").into_bytes(), between: b",", tail: tail.into_bytes() }
}

fn pretty(key: &str, before: &Value, after: Map<String, Value>) -> ListEnvelope {
    let head = format!("{before:#}");
    let head = head.strip_suffix("\n}").unwrap_or(&head);
    let tail = if after.is_empty() {
        "\n  ]\n}\n".to_owned()
    } else {
        let after = format!("{:#}", Value::from(after));
        format!("\n  ],{}\n", after.strip_prefix('{').unwrap_or(&after))
    };
    ListEnvelope {
        head: format!("{head},\n  \"{key}\": [\n    ").into_bytes(),
        between: b",\n    ",
        tail: tail.into_bytes(),
    }
}

fn yaml(key: &str, before: &Value, after: Map<String, Value>, block_scalars: bool) -> ListEnvelope {
    let head = to_yaml_in_style(before, block_scalars);
    let tail = if after.is_empty() { String::new() } else { to_yaml_in_style(&after.into(), block_scalars) };
    ListEnvelope { head: format!("{head}{key}:\n").into_bytes(), between: b"", tail: tail.into_bytes() }
}
