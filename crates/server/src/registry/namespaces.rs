//! Namespaces, which contain other objects.

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names::{dns1123_label_rule, qualified_name};

use super::kind::{Kind, Scope, SelectableField, ServedVersion, Subresource, SubresourceAction};
use super::object_fields::{map, non_null, part, restore_field, text, texts};
use super::table_cells;

/// Finalizer that every new namespace has.
pub(crate) const FINALIZER: &str = "kubernetes";

/// Label that repeats a namespace's name, for use in selectors.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Descriptor of Namespace, with the finalize and status subresources.
pub(crate) const KIND: Kind = Kind {
    name: "Namespace",
    plural: "namespaces",
    short_names: &["ns"],
    scope: Scope::Cluster,
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Namespace")],
    subresources: &[
        Subresource { name: "finalize", action: SubresourceAction::Finalize },
        Subresource::status(
            |new, old, _| restore_field(new, old, "spec"),
            |new, old, _, errors| validate_status(new, old, errors),
        ),
    ],
    name_rule: dns1123_label_rule,
    selectable: &[SelectableField::new("status.phase", &["/status/phase"])],
    columns: &[table_cells::NAME, table_cells::column("Status"), table_cells::AGE],
    row: |object, now| {
        vec![table_cells::name(object), text(object, "/status/phase").into(), table_cells::age(object, now)]
    },
    defaults: |object| {
        default_phase(object);
        label_name(object);
    },
    prepare_create,
    prepare_update: |new, old| {
        restore_field(new, old, "status");
        let finalizers = non_null(old, "/spec/finalizers").cloned();
        let spec = part(new, "spec");
        match finalizers {
            Some(list) => spec.insert("finalizers".into(), list),
            None => spec.remove("finalizers"),
        };
    },
    validate_create: |object, errors| validate_finalizers(object, |path, _| path.clone(), errors),
    validate_update: |new, _, errors| validate_finalizers(new, |path, _| path.clone(), errors),
    prepare_delete: |object| {
        part(object, "status").insert("phase".into(), "Terminating".into());
        // Deletion waits for the contents, however long that takes.
        part(object, "metadata").remove("deletionGracePeriodSeconds");
    },
    delete_collection: false,
    // The contents are deleted first; the namespace controller then removes the finalizer.
    may_vanish: |object| super::object_fields::list(object, "/spec/finalizers").is_empty(),
    ..Kind::DEFAULT
};

/// Resets what `namespaces/finalize` cannot change.
pub(crate) fn prepare_finalize(new: &mut Value, old: &Value) {
    restore_field(new, old, "status");
}

/// Validates an update through `namespaces/finalize`.
pub(crate) fn validate_finalize(new: &Value, errors: &mut FieldErrors) {
    validate_finalizers(new, FieldPath::index, errors);
}

fn default_phase(object: &mut Value) {
    super::object_fields::default(part(object, "status"), "phase", "Active");
}

fn label_name(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    if !name.is_empty() {
        let metadata = part(object, "metadata");
        let labels = metadata.entry("labels").or_insert(Value::Null);
        map(labels).insert(NAME_LABEL.into(), name.into());
    }
}

fn prepare_create(object: &mut Value) {
    // Repeated, because a generated name did not exist when defaults were set.
    label_name(object);
    map(object).insert("status".into(), json!({"phase": "Active"}));
    let has = texts(object, "/spec/finalizers").any(|finalizer| finalizer == FINALIZER);
    if !has {
        match part(object, "spec").entry("finalizers").or_insert(Value::Null) {
            Value::Array(list) => list.push(FINALIZER.into()),
            other => *other = json!([FINALIZER]),
        }
    }
}

fn validate_finalizers(object: &Value, at: fn(&FieldPath, usize) -> FieldPath, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("finalizers");
    for (i, finalizer) in texts(object, "/spec/finalizers").enumerate() {
        let path = at(&path, i);
        errors.invalid_each(&path, finalizer, qualified_name(finalizer));
        let standard = [FINALIZER, "orphan", "foregroundDeletion"].contains(&finalizer);
        if !finalizer.contains('/') && !standard {
            errors.invalid_str(
                &path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut FieldErrors) {
    let (phase, condition) = match non_null(new, "/metadata/deletionTimestamp") {
        None => ("Active", "empty"),
        Some(_) => ("Terminating", "not empty"),
    };
    let actual = text(new, "/status/phase");
    if actual != phase {
        let detail = format!("may only be '{phase}' if `deletionTimestamp` is {condition}");
        errors.invalid_str(&FieldPath::new("status").child("Phase"), actual, &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::{cells, created, error_texts, refusals};
    use super::*;

    #[test]
    fn a_new_namespace_gets_label_finalizer_and_phase() {
        let object = json!({
            "metadata": {"name": "ns-a", "labels": {"team": "a"}},
            "spec": {}, "status": {"phase": "Terminating"}
        });
        assert_eq!(
            created(&KIND, object),
            json!({
                "metadata": {
                    "name": "ns-a",
                    "labels": {"kubernetes.io/metadata.name": "ns-a", "team": "a"}
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
            })
        );
        let object = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["x.io/f"]}});
        assert_eq!(created(&KIND, object)["spec"]["finalizers"], json!(["x.io/f", "kubernetes"]));
    }

    #[test]
    fn an_update_keeps_finalizers_and_status() {
        let old = json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let mut new = json!({"spec": {}, "status": {"phase": "Terminating"}});
        (KIND.prepare_update)(&mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn finalizers_are_qualified() {
        let object = json!({"spec": {"finalizers": ["kubernetes", "a.io/b", "mine"]}});
        let words = "Invalid value: \"mine\": name is neither a standard finalizer name nor is it \
                     fully qualified";
        assert_eq!(refusals(&KIND, &object), [format!("spec.finalizers: {words}")]);
        let mut errors = FieldErrors::new();
        validate_finalize(&object, &mut errors);
        assert_eq!(error_texts(&errors), [format!("spec.finalizers[2]: {words}")]);
    }

    #[test]
    fn the_phase_agrees_with_deletion() {
        let table = [
            (json!({"status": {"phase": "Active"}}), vec![]),
            (
                json!({"status": {"phase": "Terminating"}}),
                vec![
                    "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if \
                     `deletionTimestamp` is empty",
                ],
            ),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                       "status": {"phase": "Active"}}),
                vec![
                    "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if \
                     `deletionTimestamp` is not empty",
                ],
            ),
        ];
        for (object, expected) in table {
            let mut errors = FieldErrors::new();
            validate_status(&object, &Value::Null, &mut errors);
            assert_eq!(error_texts(&errors), expected);
        }
    }

    #[test]
    fn rows() {
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"phase": "Active"}
        });
        assert_eq!(cells(&KIND, &object), json!(["a", "Active", "120m"]));
    }
}
