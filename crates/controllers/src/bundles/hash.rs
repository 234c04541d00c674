//! Hash of the input from which a target was built.
//!
//! The hash equals that of trust-manager, so that neither writes anything when one replaces the other. It does not
//! cover the keys, which are in the managed fields, nor the actual labels and annotations, which [`super::target`]
//! compares.

use aws_lc_rs::digest::{Context, SHA256};
use windlass_api::trust_bundle::{AdditionalFormats, StorePassword, TargetMetadata};

/// Computes the SHA-256 of the PEM text, the passwords, the profile, the annotations and the labels.
pub fn target_hash(
    pem: &str,
    formats: Option<&AdditionalFormats>,
    metadata: Option<&TargetMetadata>,
) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    hash.update(pem.as_bytes());
    let secret = |password: Option<&StorePassword>, hash: &mut Context| {
        hash.update(password.map_or("", StorePassword::expose).as_bytes());
    };
    if let Some(jks) = formats.and_then(|formats| formats.jks.as_ref()) {
        secret(jks.password.as_ref(), &mut hash);
    }
    if let Some(pkcs12) = formats.and_then(|formats| formats.pkcs12.as_ref()) {
        secret(pkcs12.password.as_ref(), &mut hash);
        hash.update(pkcs12.profile.as_deref().unwrap_or_default().as_bytes());
    }
    if let Some(metadata) = metadata {
        for (key, value) in metadata.annotations.iter().chain(&metadata.labels) {
            hash.update(key.as_bytes());
            hash.update(value.as_bytes());
        }
    }
    let mut sum = [0; 32];
    sum.copy_from_slice(hash.finish().as_ref());
    sum
}

/// Formats the hash as in the annotation.
pub fn encode_hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Hashes PEM text with formats and metadata given as JSON.
    fn hash(pem: &str, formats: Value, metadata: Value) -> String {
        let formats: Option<AdditionalFormats> = serde_json::from_value(formats).unwrap();
        let metadata: Option<TargetMetadata> = serde_json::from_value(metadata).unwrap();
        encode_hex(&target_hash(pem, formats.as_ref(), metadata.as_ref()))
    }

    fn jks(password: &str) -> Value {
        json!({"jks": {"key": "j", "password": password}})
    }

    fn pkcs12(password: &str, profile: &str) -> Value {
        let mut store = json!({"key": "p", "password": password});
        if !profile.is_empty() {
            store["profile"] = profile.into();
        }
        json!({"pkcs12": store})
    }

    fn metadata(annotation: &str, label: &str) -> Value {
        json!({"annotations": {"annotation1": annotation}, "labels": {"annotation1": label}})
    }

    #[test]
    fn the_recipe_is_trust_managers() {
        let none = Value::Null;
        // Same result as `sha256sum`.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let data = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7";
        assert_eq!(hash("", none.clone(), none.clone()), empty);
        assert_eq!(hash("data", none.clone(), none.clone()), data);
        // The parts are hashed without separators.
        assert_eq!(hash("", jks("data"), none.clone()), data);
        assert_eq!(hash("d", pkcs12("ata", ""), none.clone()), data);
        assert_eq!(hash("", none.clone(), json!({"annotations": {"da": "t"}, "labels": {"a": ""}})), data);
        let both = json!({"jks": {"key": "", "password": "a"}, "pkcs12": {"key": "", "password": "t"}});
        assert_eq!(hash("d", both, json!({"labels": {"a": ""}})), data);
        let mut profile = Context::new(&SHA256);
        profile.update(b"datapwModern2023");
        assert_eq!(hash("data", pkcs12("pw", "Modern2023"), none), encode_hex(profile.finish().as_ref()));
    }

    #[test]
    fn relevant_changes_change_the_hash() {
        let none = Value::Null;
        let same = [
            (none.clone(), json!({})),
            (none.clone(), json!({"jks": {"key": "j"}})),
            (none.clone(), jks("")),
            (none.clone(), json!({"pkcs12": {"key": "p"}})),
            (none.clone(), pkcs12("", "")),
            (json!({"jks": {"key": "a", "password": "x"}}), json!({"jks": {"key": "b", "password": "x"}})),
        ];
        for (one, other) in same {
            let (one, other) = (hash("data", one, none.clone()), hash("data", other, none.clone()));
            assert_eq!(one, other);
        }
        let different = [
            (none.clone(), jks("nonempty")),
            (none.clone(), pkcs12("nonempty", "")),
            (jks("password"), jks("wrong")),
            (pkcs12("password", ""), pkcs12("wrong", "")),
            (pkcs12("password", "LegacyRC2"), pkcs12("password", "LegacyDES")),
            (pkcs12("password", "LegacyRC2"), pkcs12("password", "Modern2023")),
        ];
        for (one, other) in different {
            let (one, other) = (hash("data", one, none.clone()), hash("data", other, none.clone()));
            assert_ne!(one, other);
        }
        let target = hash("data", json!({}), metadata("value1", "value1"));
        assert_eq!(target, hash("data", none.clone(), metadata("value1", "value1")));
        for other in [
            json!({"annotations": {"annotation1": "value1"}}),
            json!({"labels": {"annotation1": "value1"}}),
            metadata("value2", "value1"),
            metadata("value1", "value2"),
        ] {
            assert_ne!(target, hash("data", none.clone(), other));
        }
    }

    #[test]
    fn the_order_of_metadata_does_not_matter() {
        let one = json!({"labels": {"label1": "v", "label2": "v", "label3": "v"}});
        let other: Value =
            serde_json::from_str(r#"{"labels": {"label3": "v", "label1": "v", "label2": "v"}}"#).unwrap();
        assert_eq!(hash("data", Value::Null, one), hash("data", Value::Null, other));
    }
}
