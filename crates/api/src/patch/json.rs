//! JSON patch (RFC 6902), with kube-apiserver's deviations.
//!
//! Where kube-apiserver differs from the RFC, its behaviour is kept: a negative index counts from
//! the end, `replace` creates a missing member, `test` treats a missing member as equal to `null`,
//! and `copy` of a missing member copies `null`.

use serde_json::Value;

use super::PatchError;

/// Maximum number of operations per patch.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum bytes of JSON that all `copy` operations together may add. Doubling copies would
/// otherwise turn a small patch into an object of any size (CVE-2019-1002100).
const MAX_COPIED: usize = 3 << 20;
/// Maximum number of list elements that all operations together may shift, and of values that they
/// may visit to determine depth. Repeated insertion at the head of a long list, or moving a large
/// value around, is otherwise quadratic.
const MAX_WORK: usize = 50_000_000;
/// Maximum nesting depth of the result: what the JSON parser accepts. Operations could otherwise
/// nest values until freeing them overflows the stack.
const MAX_DEPTH: usize = 127;

/// Applies a JSON patch, given as text, to an object.
pub fn json(target: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch: Value = serde_json::from_slice(patch).map_err(|e| PatchError::Malformed(e.to_string()))?;
    let operations = match patch {
        Value::Null => Vec::new(),
        Value::Array(operations) => operations,
        _ => return Err(PatchError::Malformed("a JSON patch is a list of operations".into())),
    };
    if let Some(wrong) = operations.iter().find(|o| !o.is_object() && !o.is_null()) {
        return Err(PatchError::Malformed(format!("an operation is an object, not {wrong}")));
    }
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        return Err(PatchError::TooManyOperations { count, limit: MAX_OPERATIONS });
    }
    let mut document = PatchDocument { root: target.clone(), copied: 0, work: 0 };
    for operation in operations {
        document.apply_operation(operation)?;
    }
    Ok(document.root)
}

/// Object being patched, and the work spent on it.
struct PatchDocument {
    root: Value,
    copied: usize,
    work: usize,
}

impl PatchDocument {
    fn apply_operation(&mut self, mut operation: Value) -> Result<(), PatchError> {
        let value = operation.get_mut("value").map(Value::take);
        let text = |name: &str| match operation.get(name).and_then(Value::as_str) {
            Some(text) => Ok(text),
            None => Err(PatchError::Failed(format!("the operation has no {name:?}: {operation}"))),
        };
        let path = text("path")?;
        match text("op")? {
            "add" => self.add(path, value.unwrap_or_default()),
            "remove" => self.remove(path).map(drop),
            "replace" => self.replace(path, value.unwrap_or_default()),
            "test" => self.test(path, &value.unwrap_or_default()),
            "move" => {
                let moved = self.remove(text("from")?)?;
                self.add(path, moved)
            }
            "copy" => self.copy(text("from")?, path),
            other => Err(PatchError::Failed(format!("Unexpected kind: {other}"))),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        self.check_depth(path, &value)?;
        let (container, key) = parent(&mut self.root, path)?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(list) if key == "-" => list.push(value),
            Value::Array(list) => {
                let at = index(&key, list.len() + 1)?;
                spend(&mut self.work, list.len() - at)?;
                list.insert(at, value);
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<Value, PatchError> {
        let (container, key) = parent(&mut self.root, path)?;
        match container {
            Value::Object(map) => map.remove(&key).ok_or_else(|| missing(path)),
            Value::Array(list) => {
                let at = index(&key, list.len())?;
                spend(&mut self.work, list.len() - at)?;
                Ok(list.remove(at))
            }
            _ => Err(missing(path)),
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                let what = "replace operation value must be object or array";
                return Err(PatchError::Failed(what.into()));
            }
            self.root = value;
            return Ok(());
        }
        self.check_depth(path, &value)?;
        let (container, key) = parent(&mut self.root, path)?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(list) => {
                let at = index(&key, list.len())?;
                list[at] = value;
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn test(&mut self, path: &str, expected: &Value) -> Result<(), PatchError> {
        let found = if path.is_empty() { &self.root } else { get(&mut self.root, path)? };
        if found == expected {
            Ok(())
        } else {
            Err(PatchError::Failed(format!("testing value {path} failed")))
        }
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let source = get(&mut self.root, from)?;
        let mut budget = MAX_COPIED - self.copied;
        if !charge(source, &mut budget) {
            let what = format!(
                "Unable to complete the copy, the accumulated size increase of copy exceeds the \
                 limit {MAX_COPIED}"
            );
            return Err(PatchError::TooLarge(what));
        }
        let copy = source.clone();
        self.copied = MAX_COPIED - budget;
        self.add(path, copy)
    }

    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        let above = path.matches('/').count();
        let mut seen = 0;
        if above + depth(value, &mut seen) > MAX_DEPTH {
            return Err(PatchError::TooLarge("the patch nests too deeply".into()));
        }
        spend(&mut self.work, seen)
    }
}

/// Returns the container of a path's last element, and that element.
fn parent<'v>(root: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), PatchError> {
    let Some(parts) = path.strip_prefix('/') else { return Err(missing(path)) };
    let (up, last) = parts.rsplit_once('/').map_or((None, parts), |(up, last)| (Some(up), last));
    let mut at = root;
    for part in up.into_iter().flat_map(|up| up.split('/')) {
        let part = unescape(part);
        let next = match at {
            Value::Object(map) => map.get_mut(&part),
            Value::Array(list) => {
                let i = index(&part, list.len())?;
                list.get_mut(i)
            }
            _ => None,
        };
        at = next.ok_or_else(|| missing(path))?;
    }
    Ok((at, unescape(last)))
}

/// Returns the value at a path; a missing object member is `null`.
fn get<'v>(root: &'v mut Value, path: &str) -> Result<&'v Value, PatchError> {
    const NULL: &Value = &Value::Null;
    let (container, key) = parent(root, path)?;
    match container {
        Value::Object(map) => Ok(map.get(&key).unwrap_or(NULL)),
        Value::Array(list) => {
            let at = index(&key, list.len())?;
            Ok(&list[at])
        }
        _ => Err(missing(path)),
    }
}

/// Parses a list index below `length`; a negative one counts from the end.
fn index(text: &str, length: usize) -> Result<usize, PatchError> {
    let invalid = || PatchError::Failed(format!("Unable to access invalid index: {text}"));
    let number: i64 = text.parse().map_err(|_| invalid())?;
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let at = if number < 0 { number + length } else { number };
    if (0..length).contains(&at) { usize::try_from(at).map_err(|_| invalid()) } else { Err(invalid()) }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn missing(path: &str) -> PatchError {
    PatchError::Failed(format!("operation does not apply: doc is missing path: {path:?}"))
}

fn spend(work: &mut usize, more: usize) -> Result<(), PatchError> {
    *work += more;
    if *work > MAX_WORK {
        return Err(PatchError::TooLarge("the patch moves too much around".into()));
    }
    Ok(())
}

/// Returns the depth of a value and counts the values visited.
fn depth(value: &Value, seen: &mut usize) -> usize {
    *seen += 1;
    match value {
        Value::Array(list) => 1 + list.iter().map(|v| depth(v, seen)).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(|v| depth(v, seen)).max().unwrap_or(0),
        _ => 0,
    }
}

/// Subtracts a value's JSON size from the budget. Stops as soon as the budget is exhausted.
fn charge(value: &Value, budget: &mut usize) -> bool {
    let own = match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(_) | Value::Object(_) => 3,
    };
    let Some(rest) = budget.checked_sub(own) else { return false };
    *budget = rest;
    match value {
        Value::Array(list) => list.iter().all(|v| charge(v, budget)),
        Value::Object(map) => map.iter().all(|(key, v)| {
            *budget = budget.saturating_sub(key.len() + 3);
            charge(v, budget)
        }),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as j;

    fn run(target: Value, patch: Value) -> Result<Value, PatchError> {
        json(&target, patch.to_string().as_bytes())
    }

    #[test]
    fn operations_change_the_object() {
        for (target, patch, result) in [
            (j!({"a": 1}), j!(null), j!({"a": 1})),
            (j!({"a": 1}), j!([]), j!({"a": 1})),
            (j!({}), j!([{"op": "add", "path": "/a", "value": 1}]), j!({"a": 1})),
            (j!({}), j!([{"op": "add", "path": "/a~1b~0c", "value": 1}]), j!({"a/b~c": 1})),
            (j!({"l": [1, 2]}), j!([{"op": "add", "path": "/l/-", "value": 3}]), j!({"l": [1, 2, 3]})),
            (j!({"l": [1, 2]}), j!([{"op": "add", "path": "/l/0", "value": 3}]), j!({"l": [3, 1, 2]})),
            (j!({"l": [1, 2]}), j!([{"op": "add", "path": "/l/2", "value": 3}]), j!({"l": [1, 2, 3]})),
            (j!({"l": [1, 2]}), j!([{"op": "add", "path": "/l/-1", "value": 3}]), j!({"l": [1, 2, 3]})),
            (j!({"l": [1, 2]}), j!([{"op": "remove", "path": "/l/-1"}]), j!({"l": [1]})),
            (j!({"a": 1}), j!([{"op": "remove", "path": "/a"}]), j!({})),
            (j!({"a": 1}), j!([{"op": "replace", "path": "/a", "value": {"b": 2}}]), j!({"a": {"b": 2}})),
            (j!({}), j!([{"op": "replace", "path": "/a", "value": 1}]), j!({"a": 1})),
            (j!({"a": 1}), j!([{"op": "replace", "path": "", "value": {}}]), j!({})),
            (j!({"a": {"b": 1}}), j!([{"op": "move", "from": "/a/b", "path": "/c"}]), j!({"a": {}, "c": 1})),
            (j!({"a": [1]}), j!([{"op": "copy", "from": "/a", "path": "/c"}]), j!({"a": [1], "c": [1]})),
            (j!({}), j!([{"op": "copy", "from": "/a", "path": "/c"}]), j!({"c": null})),
            (j!({"a": 1}), j!([{"op": "test", "path": "/a", "value": 1}]), j!({"a": 1})),
            (j!({}), j!([{"op": "test", "path": "/a", "value": null}]), j!({})),
            (j!({}), j!([{"op": "test", "path": "/a"}]), j!({})),
            (j!({}), j!([{"op": "test", "path": "", "value": {}}]), j!({})),
            (j!({}), j!([{"op": "add", "path": "/a"}]), j!({"a": null})),
        ] {
            assert_eq!(run(target, patch.clone()), Ok(result), "{patch}");
        }
    }

    #[test]
    fn an_operation_that_does_not_fit_fails() {
        for patch in [
            j!([{"op": "remove", "path": "/zzz"}]),
            j!([{"op": "remove", "path": ""}]),
            j!([{"op": "add", "path": "", "value": {}}]),
            j!([{"op": "add", "path": "a", "value": 1}]),
            j!([{"op": "add", "path": "/x/y", "value": 1}]),
            j!([{"op": "add", "path": "/n/y", "value": 1}]),
            j!([{"op": "add", "path": "/l/3", "value": 1}]),
            j!([{"op": "add", "path": "/l/-4", "value": 1}]),
            j!([{"op": "add", "path": "/l/x", "value": 1}]),
            j!([{"op": "replace", "path": "/l/2", "value": 1}]),
            j!([{"op": "replace", "path": "/l/-", "value": 1}]),
            j!([{"op": "replace", "path": "", "value": 1}]),
            j!([{"op": "move", "from": "/zzz", "path": "/a"}]),
            j!([{"op": "move", "from": "/o", "path": "/o/a"}]),
            j!([{"op": "test", "path": "/n", "value": 2}]),
            j!([{"op": "test", "path": "/n", "value": null}]),
            j!([{"op": "test", "path": "/x/y", "value": null}]),
            j!([{"op": "nope", "path": "/a"}]),
            j!([{"path": "/a"}]),
            j!([{"op": "add"}]),
            j!([{"op": "add", "path": 1, "value": 1}]),
            j!([null]),
        ] {
            let target = j!({"l": [1, 2], "n": 1, "o": {}});
            let result = run(target, patch.clone());
            assert!(matches!(result, Err(PatchError::Failed(_))), "{patch} gave {result:?}");
        }
    }

    #[test]
    fn rejects_malformed_patches() {
        for text in ["", "{", "{}", "1", "[1]", "[[]]", "[{}"] {
            let result = json(&j!({}), text.as_bytes());
            assert!(matches!(result, Err(PatchError::Malformed(_))), "{text} gave {result:?}");
        }
    }

    #[test]
    fn cve_2019_1002100_the_number_of_operations_is_limited() {
        let operation = j!({"op": "test", "path": "/a", "value": null});
        assert!(run(j!({}), Value::Array(vec![operation.clone(); 10_000])).is_ok());
        let error = run(j!({}), Value::Array(vec![operation; 10_001])).unwrap_err();
        let text = "The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn cve_2019_1002100_copies_cannot_blow_up_the_object() {
        let mut patch = vec![j!({"op": "add", "path": "/a", "value": ["x".repeat(1000)]})];
        patch.extend((0..40).map(|_| j!({"op": "copy", "from": "/a", "path": "/a/-"})));
        let error = run(j!({}), Value::Array(patch)).unwrap_err();
        assert!(matches!(error, PatchError::TooLarge(_)), "{error:?}");
    }

    #[test]
    fn operations_cannot_nest_without_end() {
        let mut levels = 2;
        let mut patch = vec![j!({"op": "add", "path": "/a", "value": {"a": {}}})];
        while levels < 100_000 {
            let path = "/a".repeat(levels + 1);
            patch.push(j!({"op": "copy", "from": "/a", "path": path}));
            levels *= 2;
        }
        let error = run(j!({}), Value::Array(patch)).unwrap_err();
        assert_eq!(error, PatchError::TooLarge("the patch nests too deeply".into()));
        let mut deep = j!(1);
        (0..125).for_each(|_| deep = j!({"a": deep}));
        let made = run(j!({}), j!([{"op": "add", "path": "/a", "value": deep}])).unwrap();
        assert!(serde_json::from_str::<Value>(&made.to_string()).is_ok());
    }

    #[test]
    fn shifting_is_limited() {
        let mut patch = vec![j!({"op": "add", "path": "/a", "value": vec![0; 100_000]})];
        patch.extend((0..1000).map(|_| j!({"op": "add", "path": "/a/0", "value": 0})));
        let error = run(j!({}), Value::Array(patch)).unwrap_err();
        assert!(matches!(error, PatchError::TooLarge(_)), "{error:?}");
    }
}
