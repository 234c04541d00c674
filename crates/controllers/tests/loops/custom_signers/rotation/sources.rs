//! Tests of rotations of CAs that others provide.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;
use crate::fixture::object;

fn provided(source: &str) -> String {
    format!(
        "- {{name: example.com/made, ca: {{{source}}}, publish: {{}}, requests: {{commonNames: ['*'], \
         usages: [server auth], maxDuration: 48h, approval: {{automatic: {{users: [alice]}}}}}}}}\n"
    )
}

/// Entries of a Secret as cert-manager writes them.
fn entries(ca: &CertificateAuthority) -> Value {
    let (certificate, key) = (ca.certificate().to_pem(), ca.key().to_pem().unwrap().to_string());
    let encode = |text: &str| ByteString(text.as_bytes().to_vec());
    json!({"tls.crt": encode(&certificate), "tls.key": encode(&key), "ca.crt": encode(&certificate)})
}

/// A Secret whose content is replaced, as cert-manager does, becomes a rotation; a restart forgets the old key, and
/// requests wait for the new one then.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_secret_becomes_a_rotation() {
    let (old, new) = (authority("old", 90), authority("new", 90));
    let files = tempfile::tempdir().unwrap();
    let mut fixture =
        RotationFixture::start_in(files, &provided("secretName: mine"), "example.com/made").await;
    let client = fixture.site.world.client.clone();
    if fixture.site.world.namespaces().get_opt("windlass-system").await.unwrap().is_none() {
        fixture.site.world.create_namespace("windlass-system").await;
    }
    let secrets: Api<Secret> = Api::namespaced(client, "windlass-system");
    let annotations = json!({"windlass.dev/signer-name": "example.com/made"});
    let secret = json!({"metadata": {"name": "mine", "annotations": annotations},
        "type": "kubernetes.io/tls", "data": entries(&old)});
    secrets.create(&PostParams::default(), &object(secret)).await.unwrap();
    fixture.site.wait_until_published(MAIN, &[old.certificate()]).await;
    fixture.deliver("n1", MAIN).await;
    assert!(is_of(old.certificate(), &fixture.issue("one").await));

    let replaced = Patch::Merge(json!({ "data": entries(&new) }));
    secrets.patch("mine", &PatchParams::default(), &replaced).await.unwrap();
    fixture.site.wait_until_published(MAIN, &[old.certificate(), new.certificate()]).await;
    let found = fixture.rotations.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 1);
    let name = found[0].name_any();
    assert_eq!(found[0].data["spec"]["trigger"], "SourceChanged");
    fixture.wait_until_held(&name, "WaitingForTrust", "ConsumersLagging").await;
    assert!(is_of(old.certificate(), &fixture.issue("two").await));

    fixture.restart().await;
    let template = CsrTemplate {
        signer: "example.com/made",
        subject: "CN=a.example.com",
        names: &[],
        usages: &["server auth"],
        seconds: None,
    };
    let requests = fixture.site.requests_as("alice", "x");
    template.create(&requests, "waits").await;
    let delayed = |request: Option<&Csr>| {
        request.is_some_and(|r| condition(r, "windlass.dev/SigningDelayed").is_some())
    };
    wait_until(&requests, "waits", "be put off", delayed).await.unwrap();
    fixture.wait_until_held(&name, "WaitingForTrust", "ConsumersLagging").await;
    fixture.deliver("n1", MAIN).await;
    assert!(is_of(new.certificate(), &fixture.site.wait_until_settled("waits").await));
    assert_eq!(fixture.complete(&name, &["n1"]).await, "Completed");
    fixture.site.wait_until_published(MAIN, &[new.certificate()]).await;
    fixture.site.world.shut_down().await;
}

/// Controllers that may not read CARotations let times decide, as where there are none.
#[tokio::test(flavor = "multi_thread")]
async fn without_permission_to_read_rotations_times_decide() {
    let files = tempfile::tempdir().unwrap();
    let (old, new) = (authority("old", 90), authority("new", 90));
    write_ca(files.path(), &old, &[]);
    let signer = provided("files: {certificate: tls.crt, key: tls.key}");
    let mut fixture = RotationFixture::start_in(files, &signer, "example.com/made").await;
    fixture.site.wait_until_published(MAIN, &[old.certificate()]).await;
    fixture.site.world.stop_controllers().await;

    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let kinds = ["signers", "signers/status", "nodetrusts", "ledgersegments", "ledgersegments/status"];
    let rules = [
        rule("", &["*"]),
        rule("certificates.k8s.io", &["*"]),
        rule("events.k8s.io", &["*"]),
        rule("windlass.dev", &kinds),
    ];
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "limited"}, "rules": rules});
    let binding = json!({
        "metadata": {"name": "limited"}, "subjects": [{"kind": "User", "name": "limited", "apiGroup": group}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "limited"},
    });
    let admin = fixture.site.world.client.clone();
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles.create(&PostParams::default(), &object(role)).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings.create(&PostParams::default(), &object(binding)).await.unwrap();
    fixture.site.world.client = fixture.site.world.client_as("limited", &["system:authenticated"]);
    let file = fixture.site.files.path().join("signers.yaml");
    fixture.site.world.run_controllers_with(options(&file, fixture.site.clock()));
    fixture.site.world.client = admin;

    assert!(is_of(old.certificate(), &fixture.issue("one").await));
    write_ca(fixture.site.files.path(), &new, &[]);
    fixture.site.wait_until_published(MAIN, &[new.certificate(), old.certificate()]).await;
    *fixture.site.now.lock().unwrap() += HOUR;
    let deadline = tokio::time::Instant::now() + crate::fixture::PATIENCE;
    for number in 0.. {
        if is_of(new.certificate(), &fixture.issue(&format!("two-{number}")).await) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the new CA does not sign");
    }
    assert_eq!(fixture.rotations.list(&ListParams::default()).await.unwrap().items.len(), 0);
    fixture.site.world.shut_down().await;
}
