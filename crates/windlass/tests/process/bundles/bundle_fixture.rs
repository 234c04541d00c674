//! A server that reconciles Bundles, with helpers that inspect its objects.

use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_pki::{Certificate, CertificateAuthority, Validity};

pub use windlass_testkit::retry as wait_for;

use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

/// Trust namespace, from which Bundles read their sources.
pub const TRUST: &str = "cert-manager";

/// A server with a trust namespace.
pub struct BundleFixture {
    admin: Option<Kubectl>,
}

impl BundleFixture {
    pub fn start() -> Self {
        Self::with_flags(&[])
    }

    /// Starts a server with additional flags for `windlass up`.
    pub fn with_flags(flags: &[&str]) -> Self {
        Self::in_data_dir(TestDataDir::new(), flags)
    }

    /// Starts a server with this data directory and additional flags.
    pub fn in_data_dir(place: TestDataDir, flags: &[&str]) -> Self {
        let scene = Self { admin: Some(Kubectl::with_server(place.start_with(flags))) };
        scene.kubectl_ok(&["create", "namespace", TRUST]);
        scene
    }

    /// Restarts the server with these flags.
    pub fn restart(&mut self, flags: &[&str]) {
        let Kubectl { server, .. } = self.admin.take().unwrap();
        let place = Arc::into_inner(server).unwrap().stop();
        self.admin = Some(Kubectl::with_server(place.start_with(flags)));
    }

    pub fn admin(&self) -> &Kubectl {
        self.admin.as_ref().unwrap()
    }

    pub fn kubectl_ok(&self, args: &[&str]) -> String {
        self.admin().ok(args)
    }

    /// Applies objects in YAML or JSON.
    pub fn apply(&self, manifest: &str) {
        self.admin().ok_with(manifest, &["apply", "-f", "-"]);
    }

    /// Stores text in a ConfigMap of the trust namespace.
    pub fn source(&self, name: &str, key: &str, text: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": name, "namespace": TRUST}, "data": {key: text}});
        self.apply(&object.to_string());
    }

    /// Stores text in a Secret of the trust namespace.
    pub fn secret_source(&self, name: &str, key: &str, text: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Secret",
                            "metadata": {"name": name, "namespace": TRUST},
                            "stringData": {key: text}});
        self.apply(&object.to_string());
    }

    /// Creates or changes a Bundle.
    pub fn bundle(&self, name: &str, sources: Value, target: Value) {
        self.apply(&bundle(name, sources, target).to_string());
    }

    /// Applies a JSON merge patch to a Bundle.
    pub fn patch(&self, name: &str, patch: Value) {
        let patch = patch.to_string();
        self.kubectl_ok(&["patch", "bundle", name, "--type=merge", "-p", &patch]);
    }

    /// Waits until the latest generation of a Bundle is synced.
    pub fn synced(&self, name: &str) -> Value {
        self.condition(name, "True", "Synced")
    }

    /// Waits until the latest generation of a Bundle fails for this reason; returns the message.
    pub fn fails(&self, name: &str, reason: &str) -> String {
        self.condition(name, "False", reason)["message"].as_str().unwrap().to_owned()
    }

    /// The same for the first failure with this reason, which must also have an event. Repetitions
    /// are counted in that event.
    pub fn failed(&self, name: &str, reason: &str) -> String {
        let message = self.fails(name, reason);
        let about = format!("--field-selector=involvedObject.name={name},reason={reason}");
        wait_for(|| {
            let events = self.admin().json(&["get", "events", "-A", &about]);
            let mut all = events["items"].as_array().unwrap().iter();
            let reported = |event: &Value| event["message"] == message.as_str();
            let good = all.any(|event| reported(event) && event["type"] == "Warning");
            good.then_some(()).ok_or(format!("no event says {message}: {events:#}"))
        });
        message
    }

    fn condition(&self, name: &str, status: &str, reason: &str) -> Value {
        wait_for(|| {
            let object = self.admin().json(&["get", "bundle", name]);
            let found = object["status"]["conditions"][0].clone();
            let fresh = found["observedGeneration"] == object["metadata"]["generation"];
            let good = fresh && found["status"] == status && found["reason"] == reason;
            good.then_some(found).ok_or(format!("not {reason}: {object:#}"))
        })
    }

    /// Lists the objects of a kind and a name in all namespaces.
    pub fn list_named(&self, kind: &str, name: &str) -> Vec<Value> {
        let named = format!("--field-selector=metadata.name={name}");
        let list = self.admin().json(&["get", kind, "-A", &named]);
        list["items"].as_array().unwrap().clone()
    }

    pub fn target_namespaces(&self, kind: &str, name: &str) -> Vec<String> {
        let all = self.list_named(kind, name);
        all.iter().map(|it| it["metadata"]["namespace"].as_str().unwrap().to_owned()).collect()
    }

    pub fn namespaces(&self) -> Vec<String> {
        let all = self.kubectl_ok(&["get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}"]);
        all.split_whitespace().map(str::to_owned).collect()
    }

    /// Waits until exactly these namespaces have targets, each with this text.
    pub fn wait_for_targets(&self, namespaces: &[String], kind: &str, name: &str, key: &str, text: &str) {
        wait_for(|| {
            let found = self.list_named(kind, name);
            let places = found.iter().map(|it| it["metadata"]["namespace"].as_str().unwrap());
            let good = places.eq(namespaces.iter().map(String::as_str))
                && found.iter().all(|it| value(kind, it, key).as_deref() == Some(text));
            good.then_some(()).ok_or(format!("wanted {text} in {namespaces:?}, found {found:#?}"))
        });
    }

    /// Waits until every namespace has a target with this text.
    pub fn wait_for_targets_everywhere(&self, kind: &str, name: &str, key: &str, text: &str) {
        self.wait_for_targets(&self.namespaces(), kind, name, key, text);
    }

    /// Gets one target object; it must exist.
    pub fn target(&self, kind: &str, namespace: &str, name: &str) -> Value {
        self.admin().json(&["get", kind, name, "-n", namespace])
    }
}

/// Builds a Bundle manifest from its sources and target.
pub fn bundle(name: &str, sources: Value, target: Value) -> Value {
    json!({"apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
           "metadata": {"name": name}, "spec": {"sources": sources, "target": target}})
}

/// Returns the value of a key in a ConfigMap or Secret.
fn value(kind: &str, object: &Value, key: &str) -> Option<String> {
    let text = object["data"][key].as_str()?;
    match kind {
        "secrets" => String::from_utf8(decoded(text)).ok(),
        _ => Some(text.to_owned()),
    }
}

pub fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// Creates a self-signed CA that is valid for ten years.
pub fn authority(name: &str) -> CertificateAuthority {
    authority_until(name, OffsetDateTime::now_utc() + time::Duration::days(3650))
}

/// Creates a self-signed CA that expires at this time.
pub fn authority_until(name: &str, end: OffsetDateTime) -> CertificateAuthority {
    let from = OffsetDateTime::now_utc() - time::Duration::DAY;
    let validity = Validity::new(from, end).unwrap();
    windlass_testkit::ca_with_validity(name, validity)
}

/// Creates a self-signed root certificate (PEM).
pub fn root(name: &str) -> String {
    authority(name).certificate().to_pem()
}

/// Returns the content of targets: each certificate once, in the order of fingerprints, without a
/// final newline.
pub fn joined(certificates: &[&str]) -> String {
    let mut all = certificates
        .iter()
        .map(|text| Certificate::from_pem(text.as_bytes()).unwrap())
        .map(|certificate| (certificate.fingerprint(), certificate.to_pem().trim_end().to_owned()))
        .collect::<Vec<_>>();
    all.sort();
    all.dedup();
    all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}
