use super::*;
use windlass_pki::KeyType;

fn request(status: Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
        "metadata": {"name": "req-1"}, "spec": {}, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn an_answer_is_read_whatever_is_missing() {
    let condition = |kind: &str, reason: &str, message: &str| json!([{"type": kind, "status": "True", "reason": reason, "message": message}]);
    let refused = |by, why: &str| Some(RequestOutcome::Refused { by, why: why.into() });
    let issued = |chain: &str, begin| Some(RequestOutcome::Issued { chain: chain.into(), begin });
    let begin = time::macros::datetime!(2026-03-01 13:00 UTC);
    let table = [
        (json!(null), None),
        (json!({}), None),
        (json!({"conditions": []}), None),
        (json!({"conditions": condition("Other", "", "")}), None),
        (
            json!({"conditions": condition("Denied", "No", "never\nat all")}),
            refused(RefusalKind::Denied, "No: never"),
        ),
        (json!({"conditions": condition("Failed", "", "")}), refused(RefusalKind::Failed, "no reason given")),
        (json!({"conditions": condition("Issued", "", "")}), issued("", None)),
        (
            json!({
                "conditions": condition("Issued", "", ""), "certificateChain": "chain",
                "beginRefreshAt": "2026-03-01T13:00:00Z",
            }),
            issued("chain", Some(begin)),
        ),
        (
            json!({
                "conditions": condition("Issued", "", ""), "certificateChain": "chain",
                "beginRefreshAt": "some day",
            }),
            issued("chain", None),
        ),
    ];
    for (status, expected) in table {
        assert_eq!(request_outcome(&request(status.clone())), expected, "{status}");
    }
}

#[test]
fn a_key_comes_with_the_proof_that_the_server_knows() {
    let fields = |kind, older| {
        let key = PrivateKey::generate_type(kind).unwrap();
        let material = key_material(&key, "uid", older).unwrap();
        let shown = public_key(&Value::Object(material.clone())).unwrap();
        assert_eq!(shown, key.public_key().as_der());
        material.keys().cloned().collect::<Vec<_>>()
    };
    for kind in [KeyType::EcdsaP256, KeyType::EcdsaP521, KeyType::Ed25519] {
        assert_eq!(fields(kind, false), ["stubPKCS10Request"]);
        assert_eq!(fields(kind, true), ["pkixPublicKey", "proofOfPossession"]);
    }
    assert_eq!(fields(KeyType::EcdsaP384, true), ["stubPKCS10Request"], "there is no older proof");
}
