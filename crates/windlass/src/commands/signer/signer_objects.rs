//! Signer objects of the server: their configuration, what the controllers report about them, and the findings that
//! follow from that.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use windlass_api::conditions::ObjectCondition;
use windlass_api::signer::SignerStatus;
use windlass_controllers::signers::config::SignerConfig;

use super::findings::SignerFinding;
use super::local_signers::LocalSigner;
use super::server::ServerSnapshot;
use super::signing_policy;

#[derive(Debug, Clone)]
pub struct SignerObject {
    /// Name of the object, which need not be that of the signer.
    pub object_name: String,
    pub signer_name: String,
    /// Configuration of the signer; `None` if the spec is invalid.
    pub config: Option<SignerConfig>,
    pub status: SignerStatus,
}

impl SignerObject {
    /// Reads an object; `None` if it names no signer. A status that cannot be parsed counts as absent.
    pub fn from_object(object: &DynamicObject) -> Option<Self> {
        let spec = object.data.get("spec")?;
        let status = object.data.get("status").cloned().unwrap_or_default();
        Some(Self {
            object_name: object.name_any(),
            signer_name: spec.get("signerName")?.as_str()?.to_owned(),
            config: SignerConfig::parse_object(spec).ok(),
            status: serde_json::from_value(status).unwrap_or_default(),
        })
    }

    fn condition(&self, kind: &str) -> Option<&ObjectCondition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Whether the object defines its signer: the spec is valid, and no older object names the same signer.
    fn defines_signer(&self) -> bool {
        let is_duplicate = self.condition("Ready").is_some_and(|ready| ready.reason == "DuplicateSignerName");
        self.config.is_some() && !is_duplicate
    }

    fn findings(&self) -> Vec<SignerFinding> {
        let (object, signer) = (&self.object_name, self.signer_name.as_str());
        let text = |condition: &ObjectCondition| {
            format!("Signer {object}: {}: {}", condition.reason, condition.message)
        };
        let Some(ready) = self.condition("Ready") else {
            let message = format!("Signer {object} has no status; the custom-signer-controller does not run");
            return vec![SignerFinding::error(signer, message)];
        };
        let mut found = Vec::new();
        match (ready.status.as_str(), ready.reason.as_str()) {
            ("True", "PreviousCA") => found.push(SignerFinding::warning(signer, text(ready))),
            ("True", _) => {}
            _ => found.push(SignerFinding::error(signer, text(ready))),
        }
        if let Some(expiring) = self.condition("CAExpiring").filter(|each| each.status == "True") {
            found.push(SignerFinding::warning(signer, text(expiring)));
        }
        let is_configured = |each: &&ObjectCondition| each.reason != "NotConfigured";
        if let Some(published) =
            self.condition("Published").filter(|each| each.status == "False").filter(is_configured)
        {
            found.push(SignerFinding::error(signer, text(published)));
        }
        found
    }
}

/// Lists the signers that objects define and that are not among the known ones, in the form of local signers. Their CAs
/// are not on this machine.
pub fn additional_signers(known: &[LocalSigner], seen: &ServerSnapshot) -> Vec<LocalSigner> {
    let is_new = |object: &&SignerObject| known.iter().all(|each| each.name() != object.signer_name);
    let objects = seen.signers.iter().filter(|object| object.defines_signer()).filter(is_new);
    objects.filter_map(|object| object.config.as_ref()).map(LocalSigner::custom).collect()
}

/// Reports what the controllers say about the objects.
pub fn findings(seen: &ServerSnapshot) -> Vec<SignerFinding> {
    seen.signers.iter().flat_map(SignerObject::findings).collect()
}

/// Formats the authorities of a signer, one per line.
pub fn authorities_text(object: &SignerObject) -> String {
    let lines = object.status.authorities.iter().map(|authority| {
        let until = authority.not_after.as_deref().unwrap_or("<unknown>");
        let subject = authority.subject.as_deref().unwrap_or("<unknown>");
        let count = authority.unexpired_certificates.unwrap_or_default();
        let (state, id) = (authority.state.name(), &authority.id);
        format!("{state}: {subject}, id {id}, expires {until}, unexpired certificates: {count}")
    });
    let mut lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        lines.push("none".to_owned());
    }
    let mut text = String::new();
    signing_policy::field(&mut text, "", "Authorities", &lines);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_runtime::discovery::SIGNERS;

    use super::*;

    fn object(status: Value) -> SignerObject {
        let mut object = DynamicObject::new("web", &SIGNERS.resources().next().unwrap());
        object.data = json!({
            "spec": {
                "signerName": "a.b/web",
                "ca": {"selfSigned": {}},
                "requests": {"usages": ["any"], "maxDuration": "24h"},
            },
            "status": status,
        });
        SignerObject::from_object(&object).unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        let time = "2026-06-01T12:00:00Z";
        json!({"type": kind, "status": status, "reason": reason, "message": "text", "lastTransitionTime": time})
    }

    #[test]
    fn conditions_become_findings() {
        let ready = || condition("Ready", "True", "Ready");
        let published = condition("Published", "False", "TrustBundleFull");
        let table = [
            (json!({}), vec!["error: Signer web has no status; the custom-signer-controller does not run"]),
            (json!({"conditions": [ready()]}), vec![]),
            (
                json!({"conditions": [condition("Ready", "False", "InvalidSpec")]}),
                vec!["error: Signer web: InvalidSpec: text"],
            ),
            (
                json!({"conditions": [condition("Ready", "True", "PreviousCA")]}),
                vec!["warning: Signer web: PreviousCA: text"],
            ),
            (
                json!({"conditions": [ready(), condition("CAExpiring", "True", "ExpiresSoon"), published]}),
                vec!["warning: Signer web: ExpiresSoon: text", "error: Signer web: TrustBundleFull: text"],
            ),
            (json!({"conditions": [ready(), condition("Published", "False", "NotConfigured")]}), vec![]),
        ];
        for (status, wanted) in table {
            let found = object(status.clone()).findings();
            let found: Vec<String> =
                found.iter().map(|each| format!("{}: {}", each.severity.name(), each.message)).collect();
            assert_eq!(found, wanted, "{status}");
        }
    }

    #[test]
    fn signers_of_objects_are_listed_once() {
        let seen = |status| ServerSnapshot { signers: vec![object(status)], ..ServerSnapshot::default() };
        let known = additional_signers(&[], &seen(json!({})));
        assert_eq!(known.iter().map(LocalSigner::name).collect::<Vec<_>>(), ["a.b/web"]);
        assert!(additional_signers(&known, &seen(json!({}))).is_empty());
        let duplicate = json!({"conditions": [condition("Ready", "False", "DuplicateSignerName")]});
        assert!(additional_signers(&[], &seen(duplicate)).is_empty());
    }

    #[test]
    fn authorities_are_shown_with_their_states() {
        let authority = json!({
            "id": "ab12",
            "subject": "CN=x",
            "notAfter": "2036-06-01T12:00:00Z",
            "state": "Active",
            "unexpiredCertificates": 3,
        });
        let shown = authorities_text(&object(json!({"authorities": [authority]})));
        let wanted = "Active: CN=x, id ab12, expires 2036-06-01T12:00:00Z, unexpired certificates: 3\n";
        assert_eq!(shown, format!("{:<30}{wanted}", "Authorities:"));
        assert_eq!(authorities_text(&object(json!({}))), format!("{:<30}none\n", "Authorities:"));
    }
}
