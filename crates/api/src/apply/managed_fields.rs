//! Entries of `metadata.managedFields`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::FieldManager;
use super::set::FieldSet;

/// Operation through which a manager owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagedFieldsOperation {
    /// The fields were set by server-side apply.
    Apply,
    /// The fields were set by a create, update or patch.
    Update,
}

/// One parsed entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedFieldsEntry {
    /// Name of the field manager, as sent by the client.
    pub manager: String,
    /// Operation through which the manager owns the fields.
    pub operation: ManagedFieldsOperation,
    /// API version at which the manager wrote.
    pub api_version: String,
    /// Time of the manager's last change, in RFC 3339.
    pub time: Option<String>,
    /// Subresource through which the manager wrote; empty for the main resource.
    pub subresource: String,
    /// Fields that this manager owns, decoded from `fieldsV1`.
    pub fields: FieldSet,
}

/// Maximum number of Update entries per object; the oldest are merged.
const MAX_UPDATE_MANAGERS: usize = 10;
/// Manager name of merged entries.
const ANCIENT: &str = "ancient-changes";

impl ManagedFieldsEntry {
    pub(super) fn new(who: &FieldManager<'_>, operation: ManagedFieldsOperation, fields: FieldSet) -> Self {
        ManagedFieldsEntry {
            manager: who.manager.into(),
            operation,
            api_version: who.api_version.into(),
            time: Some(who.time.into()),
            subresource: who.subresource.into(),
            fields,
        }
    }

    /// Returns true if the entry belongs to the writer. An applier has one entry regardless of API
    /// version.
    pub(super) fn belongs_to(&self, who: &FieldManager<'_>, operation: ManagedFieldsOperation) -> bool {
        self.operation == operation
            && self.manager == who.manager
            && self.subresource == who.subresource
            && (operation == ManagedFieldsOperation::Apply || self.api_version == who.api_version)
    }

    /// Returns the key that identifies a manager's entry.
    pub(super) fn identity(&self) -> (&str, ManagedFieldsOperation, &str, &str) {
        let version = match self.operation {
            ManagedFieldsOperation::Apply => "",
            ManagedFieldsOperation::Update => &self.api_version,
        };
        (&self.manager, self.operation, version, &self.subresource)
    }
}

/// Owned [`ManagedFieldsEntry::identity`] for hash lookups while entries change: a client may send
/// thousands.
#[derive(PartialEq, Eq, Hash)]
struct ManagerIdentity(String, ManagedFieldsOperation, String, String);

impl ManagerIdentity {
    fn from_entry(manager: &ManagedFieldsEntry) -> ManagerIdentity {
        let (name, operation, version, subresource) = manager.identity();
        ManagerIdentity(name.into(), operation, version.into(), subresource.into())
    }
}

/// Parses `metadata.managedFields` from a client. If a manager has two entries, the later one wins.
pub fn parse(managed_fields: &Value) -> Result<Vec<ManagedFieldsEntry>, String> {
    let mut managers: Vec<ManagedFieldsEntry> = Vec::new();
    let mut places: HashMap<ManagerIdentity, usize> = HashMap::new();
    let Value::Array(entries) = managed_fields else { return Err("not a list".into()) };
    for (i, entry) in entries.iter().enumerate() {
        let mut manager = parse_entry(entry.clone()).map_err(|what| format!("entry {i}: {what}"))?;
        let fields = Value::Object(std::mem::take(&mut manager.fields.0));
        manager.fields = FieldSet::decode(&fields)?;
        manager.time = match manager.time {
            Some(time) => Some(canonical_time(&time).ok_or("time is not in RFC 3339")?),
            None => None,
        };
        match places.entry(ManagerIdentity::from_entry(&manager)) {
            Entry::Occupied(place) => managers[*place.get()] = manager,
            Entry::Vacant(place) => {
                place.insert(managers.len());
                managers.push(manager);
            }
        }
    }
    Ok(managers)
}

/// Parses a list that this server stored. An invalid list counts as empty.
pub(super) fn parse_trusted(managed_fields: Value) -> Vec<ManagedFieldsEntry> {
    match managed_fields {
        Value::Array(entries) => {
            entries.into_iter().map(parse_entry).collect::<Result<_, _>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Parses one entry without copying its field set.
fn parse_entry(entry: Value) -> Result<ManagedFieldsEntry, String> {
    let Value::Object(mut entry) = entry else { return Err("not an object".into()) };
    let mut text = |name: &str| match entry.remove(name) {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Ok(String::new()),
        Some(_) => Err(format!("{name} is no string")),
    };
    let operation = match text("operation")?.as_str() {
        "Apply" => ManagedFieldsOperation::Apply,
        "Update" => ManagedFieldsOperation::Update,
        _ => return Err("operation must be `Apply` or `Update`".into()),
    };
    let api_version = text("apiVersion")?;
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".into());
    }
    match text("fieldsType")?.as_str() {
        "FieldsV1" => {}
        "" => return Err("missing fieldsType".into()),
        other => return Err(format!("invalid fieldsType {other:?}")),
    }
    let (manager, subresource) = (text("manager")?, text("subresource")?);
    let time = Some(text("time")?).filter(|time| !time.is_empty());
    let fields = match entry.remove("fieldsV1") {
        Some(Value::Object(tree)) => FieldSet(tree),
        None | Some(Value::Null) => FieldSet::default(),
        Some(_) => return Err("fieldsV1 is no object".into()),
    };
    Ok(ManagedFieldsEntry { manager, operation, api_version, time, subresource, fields })
}

fn canonical_time(text: &str) -> Option<String> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let time = time.to_offset(time::UtcOffset::UTC).replace_nanosecond(0).ok()?;
    time.format(&Rfc3339).ok()
}

/// Encodes `metadata.managedFields` in the order of Kubernetes: appliers first, then by time.
pub fn encode(mut managers: Vec<ManagedFieldsEntry>) -> Value {
    fn order(m: &ManagedFieldsEntry) -> (ManagedFieldsOperation, Option<&str>, &str, &str, &str) {
        (m.operation, m.time.as_deref(), &m.manager, &m.api_version, &m.subresource)
    }
    managers.sort_by(|a, b| order(a).cmp(&order(b)));
    managers.into_iter().map(encode_entry).collect()
}

fn encode_entry(manager: ManagedFieldsEntry) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.into(), value);
    put("apiVersion", manager.api_version.into());
    put("fieldsType", "FieldsV1".into());
    put("fieldsV1", manager.fields.encode());
    if !manager.manager.is_empty() {
        put("manager", manager.manager.into());
    }
    let operation = match manager.operation {
        ManagedFieldsOperation::Apply => "Apply",
        ManagedFieldsOperation::Update => "Update",
    };
    put("operation", operation.into());
    if !manager.subresource.is_empty() {
        put("subresource", manager.subresource.into());
    }
    if let Some(time) = manager.time {
        put("time", time.into());
    }
    Value::Object(entry)
}

/// Merges the oldest Update entries of the same API version until the limit is met.
pub(super) fn cap_update_entries(managers: &mut Vec<ManagedFieldsEntry>) {
    let updates = |managers: &[ManagedFieldsEntry]| {
        managers.iter().filter(|m| m.operation == ManagedFieldsOperation::Update).count()
    };
    let mut excess = updates(managers).saturating_sub(MAX_UPDATE_MANAGERS);
    if excess == 0 {
        return;
    }
    managers.sort_by(|a, b| (&a.time, a.identity()).cmp(&(&b.time, b.identity())));
    // Index of each version's bucket: its oldest entry, into which later ones are merged.
    let mut buckets: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<ManagedFieldsEntry> = Vec::with_capacity(managers.len());
    for manager in managers.drain(..) {
        if excess == 0 || manager.operation != ManagedFieldsOperation::Update {
            kept.push(manager);
            continue;
        }
        match buckets.entry(manager.api_version.clone()) {
            Entry::Occupied(bucket) => {
                let into = &mut kept[*bucket.get()];
                into.manager = ANCIENT.into();
                into.subresource = String::new();
                into.fields.union(&manager.fields);
                into.time = manager.time;
                excess -= 1;
            }
            Entry::Vacant(bucket) => {
                bucket.insert(kept.len());
                kept.push(manager);
            }
        }
    }
    *managers = merge_duplicate_entries(kept);
}

/// Merges entries of the same identity, which renaming may have produced.
fn merge_duplicate_entries(managers: Vec<ManagedFieldsEntry>) -> Vec<ManagedFieldsEntry> {
    let mut places: HashMap<ManagerIdentity, usize> = HashMap::new();
    let mut united: Vec<ManagedFieldsEntry> = Vec::with_capacity(managers.len());
    for manager in managers {
        match places.entry(ManagerIdentity::from_entry(&manager)) {
            Entry::Occupied(place) => {
                let twin = &mut united[*place.get()];
                twin.fields.union(&manager.fields);
                twin.time = std::cmp::max(twin.time.take(), manager.time);
            }
            Entry::Vacant(place) => {
                place.insert(united.len());
                united.push(manager);
            }
        }
    }
    united
}
