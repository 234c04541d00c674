//! Rules of trust-manager's webhook for Bundles, and Windlass' additional rules.

use serde_json::Value;

use super::RESOURCE;
use crate::field::{FieldErrors, FieldPath};
use crate::meta::{ObjectMetaView, validate_annotations, validate_labels};
use crate::names::{self, LABEL_MAX};
use crate::schema::{Schema, ValidationStyle};
use crate::selector::labels::validate_label_selector;
use crate::signer_name::{SignerName, bundle_prefix};

/// Names of ConfigMaps that Kubernetes maintains. A target has the name of its Bundle, so a Bundle
/// with such a name would overwrite them, with an owner reference that deletes them together with
/// the Bundle.
///
/// - `kube-root-ca.crt`: in every namespace; pods verify the API server with it.
/// - `extension-apiserver-authentication`: in `kube-system`; extension servers use it to decide
///   which client certificates and front proxies to trust.
/// - `cluster-info`: in `kube-public`; joining nodes verify the API server with it.
pub const RESERVED_NAMES: [&str; 3] =
    ["kube-root-ca.crt", "extension-apiserver-authentication", "cluster-info"];

/// Returns true if Bundles may not have this name.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED_NAMES.contains(&name)
}

/// Validates a new Bundle. An existing Bundle with a reserved name, created before names were
/// reserved, can still be changed.
pub fn validate_new(object: &Value) -> FieldErrors {
    let mut errors = validate(object);
    let name = ObjectMetaView::from_object(object).name();
    if is_reserved_name(name) {
        let words = "is reserved: Kubernetes keeps a ConfigMap with this name";
        errors.invalid_str(&FieldPath::new("metadata").child("name"), name, words);
    }
    errors
}

/// Validates a Bundle before it is stored: against the schema and, if that passes, the rules.
pub fn validate(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    validate_schema(object, &mut errors);
    if errors.is_empty() {
        validate_rules(object, &mut errors);
    }
    errors
}

/// Checks an object against the schema and its rules.
pub fn validate_schema(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::CustomResource, object, errors);
}

/// Validates a Bundle against the rules that are not in the schema.
pub fn validate_rules(object: &Value, errors: &mut FieldErrors) {
    let name = ObjectMetaView::from_object(object).name();
    // The name is a label value on every target.
    if name.len() > LABEL_MAX {
        let words = format!("must be no more than {LABEL_MAX} characters");
        errors.invalid_str(&FieldPath::new("metadata").child("name"), name, &words);
    }
    let spec = &object["spec"];
    let (sources, target) = (array(&spec["sources"]), &spec["target"]);
    let path = FieldPath::new("spec").child("sources");
    let (mut effective, mut defaults) = (0_usize, 0_usize);
    for (index, source) in sources.iter().enumerate() {
        let kinds = check_source(&path.index(index), source, errors);
        effective += kinds - usize::from(source["useDefaultCAs"] == false);
        defaults += usize::from(!source["useDefaultCAs"].is_null());
    }
    if effective == 0 {
        errors.forbidden(&path, "must define at least one source");
    }
    if defaults > 1 {
        let words = format!("must request default CAs either once or not at all but got {defaults} requests");
        errors.forbidden(&path, &words);
    }
    check_cycles(&path, sources, name, target, errors);
    check_target(&FieldPath::new("spec").child("target"), target, errors);
}

/// Validates one source. Returns the number of source kinds set.
fn check_source(path: &FieldPath, source: &Value, errors: &mut FieldErrors) -> usize {
    for kind in ["configMap", "secret"] {
        if !source[kind].is_null() {
            check_object_source(&path.child(kind), kind, &source[kind], errors);
        }
    }
    let trust_bundle = &source["clusterTrustBundle"];
    let signer = text(trust_bundle, "signerName");
    let at = path.child("clusterTrustBundle");
    if !signer.is_empty() {
        SignerName::parse(&at.child("signerName"), signer, errors);
    }
    validate_label_selector(&at.child("labelSelector"), &trust_bundle["labelSelector"], errors);
    let kinds = ["configMap", "secret", "inLine", "useDefaultCAs", "clusterTrustBundle"];
    let kinds = kinds.into_iter().filter(|kind| !source[*kind].is_null()).count();
    if kinds != 1 {
        let words =
            format!("must define exactly one source type for each item but found {kinds} defined types");
        errors.forbidden(path, &words);
    }
    kinds
}

fn check_object_source(path: &FieldPath, kind: &str, source: &Value, errors: &mut FieldErrors) {
    const ONE: &str = "must validate one and only one schema (oneOf): [name, selector].";
    let (name, key) = (text(source, "name"), text(source, "key"));
    let all = source["includeAllKeys"] == true;
    match (name.is_empty(), source["selector"].is_null()) {
        (true, true) => {
            let words = format!("{ONE} Found none valid");
            errors.invalid_str(path, "name: ' ', selector: nil", &words);
        }
        (false, false) => {
            let shown = format!("name: {name}, selector: {{}}");
            errors.invalid_str(path, &shown, &format!("{ONE} Found both set"));
        }
        (true, false) | (false, true) => {}
    }
    match (key.is_empty(), all) {
        (true, false) => {
            let words = format!("source {kind} key must be defined when includeAllKeys is false");
            errors.invalid_str(path, "key: ' ', includeAllKeys: false", &words);
        }
        (false, true) => {
            let words = format!("source {kind} key cannot be defined when includeAllKeys is true");
            errors.invalid_str(path, &format!("key: {key}, includeAllKeys: true"), &words);
        }
        (true, true) | (false, false) => {}
    }
    validate_label_selector(&path.child("selector"), &source["selector"], errors);
}

/// Rejects a Bundle that is its own source.
fn check_cycles(path: &FieldPath, sources: &[Value], name: &str, target: &Value, errors: &mut FieldErrors) {
    const WORDS: &str = "cannot define the same source as target";
    for kind in ["configMap", "secret"] {
        if target[kind].is_null() {
            continue;
        }
        let key = text(&target[kind], "key");
        for (index, source) in sources.iter().enumerate() {
            let source = &source[kind];
            if !source.is_null() && text(source, "name") == name && text(source, "key") == key {
                let at = path.index(index).child(kind).child(name).child(key);
                errors.forbidden(&at, WORDS);
            }
        }
    }
    let kind = "clusterTrustBundle";
    if target[kind].is_null() {
        return;
    }
    let signer = text(&target[kind], "signerName");
    let prefix = if signer.is_empty() { String::new() } else { bundle_prefix(signer) };
    for (index, source) in sources.iter().enumerate() {
        let found = text(&source[kind], "name");
        if found.strip_prefix(prefix.as_str()) == Some(name) {
            errors.forbidden(&path.index(index).child(kind).child(found), WORDS);
        }
    }
}

fn check_target(path: &FieldPath, target: &Value, errors: &mut FieldErrors) {
    check_keys(path, target, errors);
    for kind in ["configMap", "secret", "clusterTrustBundle"] {
        check_metadata(&path.child(kind).child("metadata"), &target[kind]["metadata"], errors);
    }
    let signer = text(&target["clusterTrustBundle"], "signerName");
    if !signer.is_empty() {
        let at = path.child("clusterTrustBundle").child("signerName");
        SignerName::parse(&at, signer, errors);
    }
    let at = path.child("namespaceSelector");
    validate_label_selector(&at, &target["namespaceSelector"], errors);
}

fn check_keys(path: &FieldPath, target: &Value, errors: &mut FieldErrors) {
    let mut taken = Vec::new();
    for kind in ["configMap", "secret"] {
        if !target[kind].is_null() {
            let key = text(&target[kind], "key");
            check_key(&path.child(kind).child("key"), key, errors);
            taken.push(key);
        }
    }
    for format in ["jks", "pkcs12"] {
        let wanted = &target["additionalFormats"][format];
        if wanted.is_null() {
            continue;
        }
        let (at, key) = (path.child("additionalFormats").child(format).child("key"), text(wanted, "key"));
        check_key(&at, key, errors);
        if taken.contains(&key) {
            errors.invalid_str(&at, key, "key must be unique across all target output keys");
        }
        taken.push(key);
    }
}

/// A key that is invalid in every object would be rejected in every namespace.
fn check_key(path: &FieldPath, key: &str, errors: &mut FieldErrors) {
    errors.invalid_each(path, key, names::config_map_key(key));
}

fn check_metadata(path: &FieldPath, metadata: &Value, errors: &mut FieldErrors) {
    for field in ["annotations", "labels"] {
        let (at, entries) = (path.child(field), &metadata[field]);
        for key in entries.as_object().into_iter().flat_map(|entries| entries.keys()) {
            for prefix in ["trust.cert-manager.io/", "trust-manager.io/"] {
                if key.starts_with(prefix) {
                    errors.invalid_str(&at, key, &format!("{prefix}* {field} are not allowed"));
                }
            }
        }
        match field {
            "annotations" => validate_annotations(&at, entries, errors),
            _ => validate_labels(&at, entries, errors),
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
