//! Secrets and tokens that a pod references.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::registry::object_fields::text;

/// Container lists, and how error messages call their elements.
const INIT: (&str, &str) = ("initContainers", "init container");
const MAIN: (&str, &str) = ("containers", "container");
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");

/// JSON pointers to secret names in volume sources.
const IN_VOLUMES: &[&str] = &[
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

/// Returns true if the pod references any secret.
pub(super) fn any_secret(spec: &Value) -> bool {
    let named = |object: &Value, at: &str| !text(object, at).is_empty();
    let pulls = items(spec, "imagePullSecrets").any(|secret| named(secret, "/name"));
    let contained = [INIT, MAIN, EPHEMERAL].iter().any(|(list, _)| {
        items(spec, list).any(|container| {
            items(container, "env").any(|env| named(env, "/valueFrom/secretKeyRef/name"))
                || items(container, "envFrom").any(|from| named(from, "/secretRef/name"))
        })
    });
    let mounted = items(spec, "volumes").any(|volume| {
        IN_VOLUMES.iter().any(|at| named(volume, at))
            || projections(volume).any(|source| named(source, "/secret/name"))
    });
    pulls || contained || mounted
}

/// Returns true if the pod projects a service account token.
pub(super) fn any_token(spec: &Value) -> bool {
    items(spec, "volumes").flat_map(projections).any(|s| s.get("serviceAccountToken").is_some())
}

/// Rejects a pod that references secrets that its account does not list.
pub(super) fn check_pod(spec: &Value, account: &Value) -> Result<(), String> {
    let (allowed, owner) = (listed(account, "secrets"), text(account, "/metadata/name"));
    for volume in items(spec, "volumes").filter(|volume| volume.get("secret").is_some()) {
        let secret = text(volume, "/secret/secretName");
        if !allowed.contains(secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account \
                 {owner} does not reference that secret"
            ));
        }
    }
    for list in [INIT, MAIN] {
        check_containers(spec, list, &allowed, owner)?;
    }
    let pulls = listed(account, "imagePullSecrets");
    for (index, secret) in items(spec, "imagePullSecrets").enumerate() {
        let secret = text(secret, "/name");
        if !pulls.contains(secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account \
                 {owner} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Rejects ephemeral containers that reference secrets that the account does not list.
pub(super) fn check_ephemeral(spec: &Value, account: &Value) -> Result<(), String> {
    let (allowed, owner) = (listed(account, "secrets"), text(account, "/metadata/name"));
    check_containers(spec, EPHEMERAL, &allowed, owner)
}

fn check_containers(
    spec: &Value,
    (list, word): (&str, &str),
    allowed: &BTreeSet<&str>,
    owner: &str,
) -> Result<(), String> {
    for container in items(spec, list) {
        let name = text(container, "/name");
        let refused = |how: String, secret: &str| {
            Err(format!(
                "{word} {name} with {how} referencing secret.secretName=\"{secret}\" is not allowed \
                 because service account {owner} does not reference that secret"
            ))
        };
        for env in items(container, "env") {
            let Some(key) = env.pointer("/valueFrom/secretKeyRef") else { continue };
            let secret = text(key, "/name");
            if !allowed.contains(secret) {
                return refused(format!("envVar {}", text(env, "/name")), secret);
            }
        }
        for from in items(container, "envFrom") {
            let Some(reference) = from.get("secretRef") else { continue };
            let secret = text(reference, "/name");
            if !allowed.contains(secret) {
                return refused("envFrom".to_owned(), secret);
            }
        }
    }
    Ok(())
}

fn listed<'a>(account: &'a Value, field: &str) -> BTreeSet<&'a str> {
    items(account, field).map(|secret| text(secret, "/name")).collect()
}

fn projections(volume: &Value) -> impl Iterator<Item = &Value> {
    volume.get("projected").into_iter().flat_map(|projected| items(projected, "sources"))
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_name_a_secret_is_found() {
        let reference = json!({"name": "s"});
        let mut specs = vec![
            json!({"imagePullSecrets": [reference]}),
            json!({"volumes": [{"projected": {"sources": [{"configMap": {}}, {"secret": reference}]}}]}),
        ];
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            specs.push(json!({list: [{"env": [{"valueFrom": {"secretKeyRef": reference}}]}]}));
            specs.push(json!({list: [{}, {"envFrom": [{"secretRef": reference}]}]}));
        }
        for at in IN_VOLUMES {
            let mut parts = at[1..].split('/').rev();
            let inner = parts.next().map(|last| json!({last: "s"}));
            let volume = parts.fold(inner.unwrap(), |inner, part| json!({part: inner}));
            specs.push(json!({"volumes": [{"emptyDir": {}}, volume]}));
        }
        for spec in specs {
            assert!(any_secret(&spec), "{spec}");
        }
        let without = json!({
            "imagePullSecrets": [{}],
            "containers": [{"env": [{"name": "a", "value": "s"}], "envFrom": [{"configMapRef": {"name": "s"}}]}],
            "volumes": [{"configMap": {"name": "s"}}, {"csi": {"driver": "d"}}],
        });
        assert!(!any_secret(&without));
    }

    #[test]
    fn an_account_that_lists_secrets_keeps_its_pods_to_them() {
        let account = json!({
            "metadata": {"name": "sa"},
            "secrets": [{"name": "ok"}],
            "imagePullSecrets": [{"name": "pull"}],
        });
        let because = "is not allowed because service account sa does not reference that";
        let env = |secret: &str| json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret}}}]);
        let from = |secret: &str| json!([{"secretRef": {"name": secret}}]);
        for (make, refused) in [
            (
                (&|s: &str| json!({"volumes": [{"secret": {"secretName": s}}]})) as &dyn Fn(&str) -> Value,
                format!("volume with secret.secretName=\"no\" {because} secret"),
            ),
            (
                &|s| json!({"initContainers": [{"name": "c", "env": env(s)}]}),
                format!(
                    "init container c with envVar E referencing secret.secretName=\"no\" {because} secret"
                ),
            ),
            (
                &|s| json!({"containers": [{"name": "c", "env": env(s)}]}),
                format!("container c with envVar E referencing secret.secretName=\"no\" {because} secret"),
            ),
            (
                &|s| json!({"initContainers": [{"name": "c", "envFrom": from(s)}]}),
                format!(
                    "init container c with envFrom referencing secret.secretName=\"no\" {because} secret"
                ),
            ),
            (
                &|s| json!({"containers": [{"name": "c", "envFrom": from(s)}]}),
                format!("container c with envFrom referencing secret.secretName=\"no\" {because} secret"),
            ),
        ] {
            assert_eq!(check_pod(&make("ok"), &account), Ok(()), "{refused}");
            assert_eq!(check_pod(&make("no"), &account), Err(refused));
        }
        let pulls = json!({"imagePullSecrets": [{"name": "pull"}, {"name": "ok"}]});
        let refused = format!("imagePullSecrets[1].name=\"ok\" {because} imagePullSecret");
        assert_eq!(check_pod(&pulls, &account), Err(refused));
        let debug = json!({"ephemeralContainers": [{"name": "d", "envFrom": from("no")}]});
        let refused = format!(
            "ephemeral container d with envFrom referencing secret.secretName=\"no\" {because} secret"
        );
        assert_eq!(check_ephemeral(&debug, &account), Err(refused));
    }
}
