//! Merges and orders the lists of a strategic merge patch.
//!
//! Elements named by the patch follow the patch's order (or that of `$setElementOrder`); the others
//! keep their order, each before the first patched element that it preceded. Lookups hash the keys:
//! both lists come from a client and may be long.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{
    ELEMENT_ORDER, ListRule, MergeContext, PATCH, PatchError, SchemaView, go_map, go_value, merge_map, strip,
    unknown_directive, wrong_type,
};

/// Merges a patch's list into an object's list.
pub(super) fn merge(
    work: &MergeContext<'_>,
    rule: ListRule<'_>,
    target: Vec<Value>,
    patch: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    if target.is_empty() && patch.is_empty() {
        return Ok(target);
    }
    work.spend_elements(target.iter().chain(&patch).map(|element| weight(rule, element)).sum())?;
    match rule {
        ListRule::Replace => match strip(Value::Array(patch)) {
            Value::Array(list) => Ok(list),
            _ => unreachable!("a list without its directives is a list"),
        },
        ListRule::Scalars => {
            check_elements(&target, &patch)?;
            if target.iter().chain(&patch).any(Value::is_object) {
                let what = "cannot merge lists without merge key for type struct";
                return Err(PatchError::Directive(what.into()));
            }
            let order = target.clone();
            let mut seen = HashSet::new();
            let both = target.into_iter().chain(patch.iter().cloned());
            let merged = both.filter(|v| seen.insert(v.to_string())).collect();
            apply_element_order(MergeKey { key: None }, merged, &patch, &order)
        }
        ListRule::ByKey(key, view) => merge_by_key(work, key, view, target, patch),
    }
}

fn merge_by_key(
    work: &MergeContext<'_>,
    key: &'static str,
    view: SchemaView<'_>,
    target: Vec<Value>,
    patch: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    check_elements(&target, &patch)?;
    let ids = MergeKey { key: Some(key) };
    let (mut merged, patch) = apply_directives(key, target, patch)?;
    let order = key_values(ids, &merged);
    let mut places: HashMap<String, usize> = HashMap::new();
    for (i, element) in merged.iter().enumerate() {
        if object(element)?.contains_key(key) {
            places.entry(ids.element_id(element)?).or_insert(i);
        }
    }
    for element in &patch {
        let id = ids.element_id(element)?;
        match places.get(&id) {
            Some(&at) => {
                let (Value::Object(old), Value::Object(new)) = (merged[at].take(), element.clone()) else {
                    unreachable!("only objects have a merge key");
                };
                merged[at] = Value::Object(merge_map(work, view, old, new)?);
            }
            None => {
                places.insert(id, merged.len());
                merged.push(strip(element.clone()));
            }
        }
    }
    apply_element_order(ids, merged, &patch, &order)
}

/// Returns the cost of visiting an element: higher if its key is long.
fn weight(rule: ListRule<'_>, element: &Value) -> usize {
    let id = match rule {
        ListRule::ByKey(key, _) => element.get(key),
        ListRule::Scalars => Some(element),
        ListRule::Replace => None,
    };
    1 + id.and_then(Value::as_str).map_or(0, str::len) / 64
}

/// Returns the elements reduced to their keys: sufficient for ordering, and cheap to copy.
fn key_values(ids: MergeKey, list: &[Value]) -> Vec<Value> {
    let alone = |element: &Value| match ids.key.and_then(|key| Some((key, element.get(key)?))) {
        Some((key, id)) => Value::Object(Map::from_iter([(key.to_owned(), id.clone())])),
        None => element.clone(),
    };
    list.iter().map(alone).collect()
}

/// Executes `$patch` directives and returns target and patch without them.
fn apply_directives(
    key: &str,
    mut target: Vec<Value>,
    patch: Vec<Value>,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut replace = false;
    let mut doomed = HashSet::new();
    let mut plain = Vec::with_capacity(patch.len());
    for element in patch {
        let map = object(&element)?;
        match map.get(PATCH) {
            None => plain.push(element),
            Some(Value::String(how)) if how == "delete" => {
                let id = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
                doomed.insert(id.to_string());
            }
            Some(Value::String(how)) if how == "replace" => replace = true,
            Some(Value::String(how)) if how == "merge" => {
                let what = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Directive(what.into()));
            }
            Some(how) => return Err(unknown_directive(how, map)),
        }
    }
    if replace {
        return Ok((plain.into_iter().map(strip).collect(), Vec::new()));
    }
    if !doomed.is_empty() {
        target.retain(|e| e.get(key).is_none_or(|id| !doomed.contains(&id.to_string())));
    }
    Ok((target, plain))
}

/// Merges a list and orders it by `$setElementOrder`. Returns `None` if neither side has a list.
pub(super) fn merge_ordered(
    work: &MergeContext<'_>,
    rule: ListRule<'_>,
    target: Option<Value>,
    patch: Option<Value>,
    order: Value,
) -> Result<Option<Vec<Value>>, PatchError> {
    let list = |value: Value| match value {
        Value::Array(list) => Ok(list),
        other => Err(wrong_type("[]interface {}", &other)),
    };
    let order = list(order)?;
    let ids = match rule {
        ListRule::ByKey(key, _) => MergeKey { key: Some(key) },
        ListRule::Scalars | ListRule::Replace => MergeKey { key: None },
    };
    let target = target.map(list).transpose()?;
    let patch = patch.map(list).transpose()?;
    if let Some(patch) = &patch {
        check_order(ids, patch, &order)?;
    }
    let before = key_values(ids, target.as_deref().unwrap_or_default());
    let merged = match (target, patch) {
        (None, None) => return Ok(None),
        (Some(target), None) => target,
        (target, Some(patch)) => merge(work, rule, target.unwrap_or_default(), patch)?,
    };
    apply_element_order(ids, merged, &order, &before).map(Some)
}

/// Checks that the patch's elements appear in the order list, in the same order.
fn check_order(ids: MergeKey, patch: &[Value], order: &[Value]) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patch.iter().filter(|e| e.get(PATCH).is_none()) {
        let id = ids.element_id(element)?;
        let mut found = false;
        for wanted in rest.by_ref() {
            if ids.element_id(wanted)? == id {
                found = true;
                break;
            }
        }
        if !found {
            let (patch, order) = (Value::from(patch), Value::from(order));
            return Err(PatchError::Directive(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                go_value(&patch),
                go_value(&order),
            )));
        }
    }
    Ok(())
}

/// Orders a merged list: elements in `wanted` follow its order; the others keep their positions
/// relative to the list `before`.
fn apply_element_order(
    ids: MergeKey,
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
) -> Result<Vec<Value>, PatchError> {
    let (wanted, before) = (positions(ids, wanted)?, positions(ids, before)?);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for element in merged {
        let id = ids.element_id(&element)?;
        let place = before.get(&id).copied();
        match wanted.get(&id) {
            Some(&rank) => named.push((rank, place, element)),
            None => others.push((place, element)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, element) in named {
        while let Some((_, other)) = others
            .next_if(|(other, _)| matches!((other, place), (Some(other), Some(place)) if *other < place))
        {
            result.push(other);
        }
        result.push(element);
    }
    result.extend(others.map(|(_, other)| other));
    Ok(result)
}

fn positions(ids: MergeKey, list: &[Value]) -> Result<HashMap<String, usize>, PatchError> {
    let mut places = HashMap::with_capacity(list.len());
    for (i, element) in list.iter().enumerate() {
        places.entry(ids.element_id(element)?).or_insert(i);
    }
    Ok(places)
}

/// Key that identifies list elements: a member, or the whole element for scalars.
#[derive(Clone, Copy)]
struct MergeKey {
    key: Option<&'static str>,
}

impl MergeKey {
    fn element_id(self, element: &Value) -> Result<String, PatchError> {
        let Some(key) = self.key else { return Ok(element.to_string()) };
        let map = object(element)?;
        Ok(map.get(key).ok_or_else(|| no_merge_key(map, key))?.to_string())
    }
}

/// Checks that all elements of both lists have one type and are not lists.
fn check_elements(target: &[Value], patch: &[Value]) -> Result<(), PatchError> {
    let mut kind = None;
    for element in target.iter().chain(patch) {
        if element.is_array() {
            return Err(PatchError::Failed("lists of lists are not supported".into()));
        }
        let this = std::mem::discriminant(element);
        if *kind.get_or_insert(this) != this {
            let lists = Value::Array(vec![Value::from(target), Value::from(patch)]);
            let what = format!("list element types are not identical: {}", go_value(&lists));
            return Err(PatchError::Directive(what));
        }
    }
    Ok(())
}

/// Removes the scalars in `doomed` from a list.
pub(super) fn delete_scalars(list: &mut Vec<Value>, doomed: &[Value]) {
    let doomed: HashSet<String> = doomed.iter().map(Value::to_string).collect();
    list.retain(|v| !doomed.contains(&v.to_string()));
}

fn object(element: &Value) -> Result<&Map<String, Value>, PatchError> {
    element.as_object().ok_or_else(|| wrong_type("map[string]interface {}", element))
}

fn no_merge_key(map: &Map<String, Value>, key: &str) -> PatchError {
    let map = go_map(map);
    PatchError::Directive(format!("map: {map} does not contain declared merge key: {key}"))
}
