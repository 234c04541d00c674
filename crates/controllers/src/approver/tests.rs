use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::kubelet_serving::{ServingVerdict, evaluate, node_name};
use super::*;

fn recorded(case: &str, username: &str, groups: &[&str]) -> (Csr, CertificateRequest) {
    let cases = include_str!("../../tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = cases.into_iter().find(|each| each["case"] == case).unwrap();
    let mut request: Csr = serde_json::from_value(json!({
        "metadata": {"name": "asked"},
        "spec": {
            "request": "", "signerName": case["signerName"], "usages": case["usages"],
            "username": username, "groups": groups, "uid": "7", "extra": {"scopes": ["a", "b"]},
        },
    }))
    .unwrap();
    request.spec.request = ByteString(case["request"].as_str().unwrap().into());
    let asked = CertificateRequest::from_pem(&request.spec.request.0).unwrap();
    (request, asked)
}

#[test]
fn only_clients_of_nodes_are_recognised() {
    let table: [(&str, &str, &[CsrPermission]); 6] = [
        ("kubelet client", "system:bootstrap:abcdef", &[CsrPermission::NodeClient]),
        ("kubelet client", "system:node:n1", &[CsrPermission::SelfNodeClient, CsrPermission::NodeClient]),
        ("kubelet client", "system:node:n2", &[CsrPermission::NodeClient]),
        ("kubelet client, wrong group", "system:node:n1", &[]),
        ("kubelet client with dns san", "system:node:n1", &[]),
        ("kubelet serving", "system:node:n1", &[]),
    ];
    for (case, username, expected) in table {
        let (request, asked) = recorded(case, username, &[]);
        assert_eq!(required_permissions(&request, &asked), expected, "{case} by {username}");
    }
    // A request that is valid for one signer needs no permission for another.
    let (mut request, asked) = recorded("kubelet client", "system:node:n1", &[]);
    request.spec.signer_name = KubernetesSigner::Client.name().into();
    assert_eq!(required_permissions(&request, &asked), []);
}

#[test]
fn a_review_knows_all_of_the_requester() {
    let (request, _) = recorded("kubelet client", "system:node:n1", &["system:nodes"]);
    let review = serde_json::to_value(access_review(&request, CsrPermission::SelfNodeClient)).unwrap();
    let expected = json!({
        "user": "system:node:n1",
        "uid": "7",
        "groups": ["system:nodes"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "subresource": "selfnodeclient",
            "verb": "create",
            "version": "*",
        },
    });
    assert_eq!(review["spec"], expected);
}

#[test]
fn only_undecided_requests_are_processed() {
    let (mut request, _) = recorded("kubelet client", "u", &[]);
    assert!(is_undecided(&request));
    for (kind, expected) in
        [("Approved", false), ("Denied", false), ("Failed", true), ("example.com/Own", true)]
    {
        for (status, expected) in [("True", expected), ("", expected), ("False", true)] {
            let conditions = json!({"conditions": [{"type": kind, "status": status}]});
            request.status = serde_json::from_value(conditions).unwrap();
            assert_eq!(is_undecided(&request), expected, "{kind} {status}");
        }
    }
}

#[test]
fn a_node_requests_for_itself() {
    let nodes: &[&str] = &["system:nodes", "system:authenticated"];
    let judged = |case: &str, username: &str, groups: &[&str]| {
        let (request, asked) = recorded(case, username, groups);
        node_name(&request, &asked).map(str::to_owned)
    };
    let other = Err(ServingVerdict::Requester("system:node:n1".into()));
    assert_eq!(judged("kubelet serving", "system:node:n1", nodes), Ok("n1".into()));
    assert_eq!(judged("kubelet serving", "system:node:n2", nodes), other);
    assert_eq!(judged("kubelet serving", "system:node:n1", &["system:authenticated"]), other);
    assert_eq!(judged("kubelet serving", "system:node:", nodes), other);
    let foreign = judged("kubelet serving with uri", "system:node:n1", nodes);
    assert_eq!(foreign, Err(ServingVerdict::Foreign));
}

/// The request is for the name `n1` and the address 10.0.0.1.
#[test]
fn names_are_the_nodes_own() {
    let (_, asked) = recorded("kubelet serving", "system:node:n1", &[]);
    let of = |addresses: Value| {
        let node = json!({"metadata": {"name": "n1"}, "status": {"addresses": addresses}});
        evaluate(&asked, Some(&serde_json::from_value(node).unwrap()), &ReservedNames::default())
    };
    let address = |kind: &str, value: &str| json!({"type": kind, "address": value});
    let (name, number) = (address("Hostname", "n1"), address("InternalIP", "10.0.0.1"));
    let foreign = |name: &str| ServingVerdict::Name(name.into());
    let table = [
        (json!([name, number]), ServingVerdict::Good),
        (json!([address("InternalDNS", "n1"), address("ExternalIP", "10.0.0.1")]), ServingVerdict::Good),
        (json!([name, number, address("ExternalDNS", "n1.example.com")]), ServingVerdict::Good),
        (json!([name]), foreign("10.0.0.1")),
        (json!([number]), foreign("n1")),
        (json!([]), foreign("n1")),
        (json!([name, address("InternalIP", "10.0.0.2")]), foreign("10.0.0.1")),
        // A name does not match an address of the same text, and vice versa.
        (json!([name, address("Hostname", "10.0.0.1")]), foreign("10.0.0.1")),
        (json!([address("InternalIP", "n1"), number]), foreign("n1")),
        (json!([address("Other", "n1"), number]), foreign("n1")),
    ];
    for (addresses, expected) in table {
        assert_eq!(of(addresses.clone()), expected, "{addresses}");
    }
    let (reason, message) = foreign("10.0.0.1").objection().unwrap();
    assert_eq!(reason, "AddressMismatch");
    assert!(message.contains("10.0.0.1"));
    assert_eq!(evaluate(&asked, None, &ReservedNames::default()), ServingVerdict::NoNode("n1".into()));
}

/// The names match the Node only because the node wrote them there itself.
#[test]
fn names_of_the_api_server_are_not_approved() {
    let (_, asked) = recorded("kubelet serving", "system:node:n1", &[]);
    let addresses = json!([
        {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"},
    ]);
    let node = json!({"metadata": {"name": "n1"}, "status": {"addresses": addresses}});
    let node: Node = serde_json::from_value(node).unwrap();
    for server in ["N1.", "10.0.0.1", "::ffff:10.0.0.1"] {
        let judgement = evaluate(&asked, Some(&node), &ReservedNames::new([server]));
        assert!(matches!(judgement, ServingVerdict::Reserved(_)), "{server}: {judgement:?}");
        let (reason, message) = judgement.objection().unwrap();
        assert!(reason == "ReservedName" && message.contains("authorized approver"), "{message}");
    }
    assert_eq!(evaluate(&asked, Some(&node), &ReservedNames::new(["n2"])), ServingVerdict::Good);
}
