//! Projected volumes: several sources in one directory, among them trust anchors and certificates.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::selector::labels;
use windlass_api::signer_name::{SignerName, is_kubernetes, trust_bundle_name_rule};
use windlass_pki::KeyType;

use super::super::fields::{entries, int, list, optional_text, part, text};
use super::{env, go_json, paths};

/// Minimum and maximum certificate lifetimes that a pod may request; Kubernetes' own signers grant
/// at most one day.
const MIN_LIFETIME: i64 = 3600;
const MAX_LIFETIME: i64 = 91 * 86400;
const MAX_KUBERNETES_LIFETIME: i64 = 86400;
/// Maximum total size of all annotations, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Validates one projected volume source.
pub(super) fn check(volume: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    paths::mode(&path.child("defaultMode"), int(volume, "defaultMode"), errors);
    let mut taken = ProjectedPaths { volume: path, taken: BTreeSet::new() };
    for (index, source) in list(volume, "sources").iter().enumerate() {
        source_rules(source, &path.child("sources").index(index), &mut taken, errors);
    }
}

/// Rejects token sources, which need a service account.
pub(super) fn no_tokens(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let Some(projected) = part(volume, "projected") else { continue };
        let path = path.child("volumes").index(index).child("projected").child("sources");
        for (index, source) in list(projected, "sources").iter().enumerate() {
            if part(source, "serviceAccountToken").is_some() {
                errors.forbidden(
                    &path.index(index).child("serviceAccountToken"),
                    "must not be specified when serviceAccountName is not set",
                );
            }
        }
    }
}

/// Paths used by the volume's sources, compared as written. Tokens and whole objects do not take
/// part: the later source silently wins.
struct ProjectedPaths<'a> {
    volume: &'a FieldPath,
    taken: BTreeSet<String>,
}

impl ProjectedPaths<'_> {
    /// Claims `path`; reports a conflict for `shown` at the volume.
    fn claim_path(&mut self, path: &str, shown: &str, errors: &mut FieldErrors) {
        if !self.taken.insert(path.to_owned()) {
            errors.invalid_str(self.volume, shown, "conflicting duplicate paths");
        }
    }
}

fn source_rules(source: &Value, path: &FieldPath, taken: &mut ProjectedPaths, errors: &mut FieldErrors) {
    let mut count = 0;
    for kind in ["secret", "configMap"] {
        if let Some(object) = part(source, kind) {
            count += 1;
            whole_object(object, &path.child(kind), taken, errors);
        }
    }
    if let Some(downward) = part(source, "downwardAPI") {
        count += 1;
        for file in list(downward, "items") {
            env::downward_file(file, &path.child("downwardAPI"), errors);
            let target = text(file, "path");
            if !target.is_empty() {
                taken.claim_path(target, target, errors);
            }
        }
    }
    if let Some(token) = part(source, "serviceAccountToken") {
        count += 1;
        // The path's error is reported at the volume, not at the source.
        let volume = taken.volume;
        service_account_token(token, &path.child("serviceAccountToken"), volume, errors);
    }
    if let Some(bundle) = part(source, "clusterTrustBundle") {
        count += 1;
        cluster_trust_bundle(bundle, &path.child("clusterTrustBundle"), taken, errors);
    }
    if let Some(certificate) = part(source, "podCertificate") {
        count += 1;
        pod_certificate(certificate, &path.child("podCertificate"), taken, errors);
    }
    if count > 1 {
        errors.forbidden(path, "may not specify more than 1 volume type per source");
    }
}

fn whole_object(object: &Value, path: &FieldPath, taken: &mut ProjectedPaths, errors: &mut FieldErrors) {
    let name = text(object, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    for (index, item) in list(object, "items").iter().enumerate() {
        key_to_path(item, &path.child("items").index(index), errors);
        let target = text(item, "path");
        if !target.is_empty() {
            taken.claim_path(target, name, errors);
        }
    }
}

/// Validates one key of a Secret or ConfigMap and its file path.
pub(super) fn key_to_path(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    super::required(path, item, "key", errors);
    super::required(path, item, "path", errors);
    paths::local_and_not_reserved(&path.child("path"), text(item, "path"), errors);
    paths::mode(&path.child("mode"), int(item, "mode"), errors);
}

fn service_account_token(token: &Value, path: &FieldPath, volume: &FieldPath, errors: &mut FieldErrors) {
    let seconds = int(token, "expirationSeconds").unwrap_or_default();
    let at = path.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(&at, &seconds.into(), "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&at, &seconds.into(), "may not specify a duration larger than 2^32 seconds");
    }
    match text(token, "path") {
        "" => errors.required(&volume.child("path"), ""),
        target => paths::local_and_not_reserved(&volume.child("path"), target, errors),
    }
}

fn cluster_trust_bundle(
    bundle: &Value,
    path: &FieldPath,
    taken: &mut ProjectedPaths,
    errors: &mut FieldErrors,
) {
    let name = optional_text(bundle, "name");
    let signer = optional_text(bundle, "signerName");
    match (name, signer) {
        (Some(_), Some(_)) => {
            errors.invalid_shown(path, &shown_bundle(bundle), "only one of name and signerName may be used")
        }
        (Some(name), None) => bundle_by_name(bundle, name, path, errors),
        (None, Some(signer)) => bundles_by_signer(bundle, signer, path, errors),
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let target = text(bundle, "path");
    super::required(path, bundle, "path", errors);
    paths::local_and_not_reserved(&path.child("path"), target, errors);
    taken.claim_path(target, target, errors);
}

fn bundle_by_name(bundle: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("name");
    if name.is_empty() {
        errors.required(&at, "must be a valid object name");
    }
    // A name with colons is that of a signer's bundle and contains the signer's name.
    let signer = name.rfind(':').map(|colon| name[..colon].replace(':', "/")).unwrap_or_default();
    for words in trust_bundle_name_rule(&signer, name, false) {
        errors.invalid_str(&at, name, &format!("not a valid clustertrustbundlename: {words}"));
    }
    if let Some(selector) = part(bundle, "labelSelector") {
        errors.invalid_shown(
            &path.child("labelSelector"),
            &go_json::label_selector(Some(selector)),
            "labelSelector must be unset if name is specified",
        );
    }
}

fn bundles_by_signer(bundle: &Value, signer: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("signerName");
    if signer.is_empty() {
        errors.required(&at, "must be a valid signer name");
    }
    SignerName::parse(&at, signer, errors);
    if let Some(labels) = part(bundle, "labelSelector") {
        labels::validate_label_selector(&path.child("labelSelector"), labels, errors);
    }
}

/// Formats the source like kube-apiserver, which shows its internal type.
fn shown_bundle(bundle: &Value) -> String {
    go_json::object(&[
        ("Name", go_json::value(part(bundle, "name"))),
        ("SignerName", go_json::value(part(bundle, "signerName"))),
        ("LabelSelector", go_json::label_selector(part(bundle, "labelSelector"))),
        ("Optional", go_json::value(part(bundle, "optional"))),
        ("Path", go_json::string(text(bundle, "path"))),
        ("User", go_json::value(part(bundle, "user"))),
    ])
}

fn pod_certificate(
    certificate: &Value,
    path: &FieldPath,
    taken: &mut ProjectedPaths,
    errors: &mut FieldErrors,
) {
    let signer = text(certificate, "signerName");
    SignerName::parse(&path.child("signerName"), signer, errors);
    user_annotations(certificate, &path.child("userAnnotations"), errors);
    let key_type = text(certificate, "keyType");
    let key_types = KeyType::names(KeyType::POD_CERTIFICATE);
    if !key_types.contains(&key_type) {
        errors.not_supported(&path.child("keyType"), key_type, &key_types);
    }
    if let Some(seconds) = int(certificate, "maxExpirationSeconds") {
        lifetime(seconds, signer, &path.child("maxExpirationSeconds"), errors);
    }
    let mut files = 0;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let target = text(certificate, field);
        if !target.is_empty() {
            files += 1;
            paths::local_and_not_reserved(&path.child(field), target, errors);
            taken.claim_path(target, target, errors);
        }
    }
    if files == 0 {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

fn lifetime(seconds: i64, signer: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let max_seconds = if is_kubernetes(signer) { MAX_KUBERNETES_LIFETIME } else { MAX_LIFETIME };
    if seconds < MIN_LIFETIME {
        let detail = format!("if provided, maxExpirationSeconds must be >= {MIN_LIFETIME}");
        errors.invalid(path, &seconds.into(), &detail);
    }
    if seconds > max_seconds {
        let detail = format!("if provided, maxExpirationSeconds must be <= {max_seconds}");
        errors.invalid(path, &seconds.into(), &detail);
    }
}

fn user_annotations(certificate: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in entries(certificate, "userAnnotations") {
        names::domain_prefixed_key(path, &key.to_lowercase(), errors);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}
