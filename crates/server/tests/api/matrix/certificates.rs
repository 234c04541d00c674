//! The certificate kinds in the matrix: objects, approvers and signers, and requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::callers::{CANARY, MatrixFixture, binding, create_object};
use super::requests::{MatrixRequest, ResourceLocation, collection, object, patches, request};
use windlass_testkit::TestServer;

const GROUP: &str = "/apis/certificates.k8s.io/v1";
const ANCHOR: &str = include_str!("../conformance/fixtures/ca-p256.pem");

/// Users who may write all subresources and act for the signers in their name: (user, verb,
/// signer).
pub const DECIDERS: &[(&str, &str, &str)] = &[
    ("decider-of-nothing", "approve", ""),
    ("approver-x", "approve", "example.com/x"),
    ("approver-xy", "approve", "example.com/xy"),
    ("approver-domain", "approve", "example.com/*"),
    ("signer-x", "sign", "example.com/x"),
    ("signer-domain", "sign", "example.com/*"),
    ("attester-x", "attest", "example.com/x"),
];

/// Creates the roles of the deciders, and the objects to decide on.
pub async fn prepare(server: &TestServer) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (user, verb, signer) in DECIDERS {
        let mut rules = vec![
            json!({
                "apiGroups": ["certificates.k8s.io"], "verbs": ["get", "list", "watch", "update", "patch"],
                "resources": [
                    "certificatesigningrequests", "certificatesigningrequests/approval",
                    "certificatesigningrequests/status", "podcertificaterequests", "podcertificaterequests/status",
                ],
            }),
            json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources": ["clustertrustbundles"]}),
            json!({"apiGroups": ["windlass.dev"], "verbs": ["*"], "resources": ["*"]}),
        ];
        if !signer.is_empty() {
            rules.push(json!({
                "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
                "resourceNames": [signer], "verbs": [verb],
            }));
        }
        let role = json!({"metadata": {"name": user}, "rules": rules});
        create_object(server, &format!("{rbac}/clusterroles"), role).await;
        create_object(server, &format!("{rbac}/clusterrolebindings"), binding(user, user)).await;
    }
    for signer in ["x", "xy"] {
        create_object(server, &format!("{GROUP}/certificatesigningrequests"), signing(signer, signer)).await;
        let bundle = bundle(&format!("example.com:{signer}:a"), &format!("example.com/{signer}"));
        create_object(server, &format!("{GROUP}/clustertrustbundles"), bundle).await;
    }
    create_object(server, &format!("{GROUP}/clustertrustbundles"), bundle("plain", "")).await;
    for node in ["node-1", "node-2"] {
        let path = format!("{GROUP}/namespaces/team/podcertificaterequests");
        create_object(server, &path, pod_request(server, &format!("of-{node}"), node).await).await;
    }
}

fn signing(name: &str, signer: &str) -> Value {
    let pem = include_bytes!("../conformance/fixtures/csr-p256.pem");
    json!({
        "metadata": {"name": name, "annotations": {"example.com/c": CANARY}},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": format!("example.com/{signer}"),
            "usages": ["digital signature", "client auth"],
        },
    })
}

fn bundle(name: &str, signer: &str) -> Value {
    let mut bundle = json!({
        "metadata": {"name": name, "annotations": {"example.com/c": CANARY}},
        "spec": {"trustBundle": ANCHOR},
    });
    if !signer.is_empty() {
        bundle["spec"]["signerName"] = json!(signer);
    }
    bundle
}

/// Creates a request for the pod of a node, as that node.
async fn pod_request(server: &TestServer, name: &str, node: &str) -> Value {
    let stub = include_bytes!("../conformance/fixtures/pcr-p256.stub.der");
    let account = if node == "node-1" { "build" } else { "default" };
    let uid = async |path: String| server.get(&path).await.expect(200)["metadata"]["uid"].clone();
    json!({
        "metadata": {"name": name, "annotations": {"example.com/c": CANARY}},
        "spec": {
            "signerName": "example.com/x", "podName": format!("on-{node}"),
            "podUID": uid(format!("/api/v1/namespaces/team/pods/on-{node}")).await,
            "serviceAccountName": account,
            "serviceAccountUID": uid(format!("/api/v1/namespaces/team/serviceaccounts/{account}")).await,
            "nodeName": node, "nodeUID": uid(format!("/api/v1/nodes/{node}")).await,
            "maxExpirationSeconds": 86400, "stubPKCS10Request": STANDARD.encode(stub),
        },
    })
}

/// Returns the requests on these kinds.
pub async fn requests(world: &MatrixFixture) -> Vec<MatrixRequest> {
    let mut all = Vec::new();
    let place = |collection, name, shown, new| ResourceLocation { collection, name, shown, new };
    let (csrs, bundles, pods) = (
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "/apis/certificates.k8s.io/v1/clustertrustbundles",
        "/apis/certificates.k8s.io/v1/namespaces/team/podcertificaterequests",
    );
    let of = async |node| pod_request(&world.server, "new", node).await;
    for place in [
        place(csrs, "x", "certificatesigningrequests x", signing("new", "x")),
        place(bundles, "plain", "clustertrustbundles plain", bundle("new", "")),
        place(
            bundles,
            "example.com:x:a",
            "clustertrustbundles x",
            bundle("example.com:x:new", "example.com/x"),
        ),
        place(
            bundles,
            "example.com:xy:a",
            "clustertrustbundles xy",
            bundle("example.com:xy:new", "example.com/xy"),
        ),
        place(pods, "of-node-1", "podcertificaterequests team/of-node-1", of("node-1").await),
        place(pods, "of-node-2", "podcertificaterequests team/of-node-2", of("node-2").await),
    ] {
        all.extend(collection(&place));
        all.extend(object(world, &place).await);
    }
    for name in ["x", "xy"] {
        let approved = json!({"type": "Approved", "status": "True", "reason": "Tested", "message": "m"});
        let shown = format!("certificatesigningrequests/approval {name}");
        all.extend(decision(world, &format!("{csrs}/{name}/approval"), &shown, approved).await);
        let failed = json!({"type": "Failed", "status": "True", "reason": "Tested", "message": "m"});
        let shown = format!("certificatesigningrequests/status {name}");
        all.extend(decision(world, &format!("{csrs}/{name}/status"), &shown, failed).await);
    }
    for node in ["node-1", "node-2"] {
        let denied = json!({
            "type": "Denied", "status": "True", "reason": "Tested", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let shown = format!("podcertificaterequests/status team/of-{node}");
        all.extend(decision(world, &format!("{pods}/of-{node}/status"), &shown, denied).await);
        let everywhere = "/apis/certificates.k8s.io/v1/podcertificaterequests";
        let path = format!("{everywhere}?fieldSelector=spec.nodeName%3D{node}");
        let what = format!("podcertificaterequests of {node}");
        all.push(request("list", &what, Method::GET, path.clone()));
        all.push(request("watch", &what, Method::GET, path));
    }
    all
}

/// Sets a condition on a request, by every write method.
async fn decision(world: &MatrixFixture, path: &str, shown: &str, condition: Value) -> Vec<MatrixRequest> {
    let mut decided = world.server.get(path).await.expect(200);
    decided["status"]["conditions"] = json!([condition]);
    let status = decided["status"].clone();
    let mut update = request("update", shown, Method::PUT, path.to_owned());
    update.body = Some(decided);
    let mut all = vec![request("get", shown, Method::GET, path.to_owned()), update];
    let json = json!([{"op": "add", "path": "/status", "value": status}]);
    all.extend(patches(path, shown, &json!({"status": status}), &json));
    all
}
