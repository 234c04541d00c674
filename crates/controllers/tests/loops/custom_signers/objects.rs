//! Tests of Signer objects: created, changed, deleted, and applied from the signers file.

use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::wait::await_condition;
use serde_json::Value;

use super::*;
use crate::fixture::PATIENCE;

fn resource() -> ApiResource {
    ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: "Signer".into(),
        plural: "signers".into(),
    }
}

fn objects(site: &SignerFixture) -> Api<DynamicObject> {
    Api::all_with(site.world.client.clone(), &resource())
}

fn object(name: &str, ca: Value) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({"spec": {
        "signerName": format!("example.com/{name}"),
        "ca": ca,
        "requests": {
            "commonNames": ["*"],
            "usages": ["server auth"],
            "maxDuration": "48h",
            "approval": {"automatic": {"users": ["alice"]}},
        },
        "publish": {},
    }}))
}

fn template(signer: &str) -> CsrTemplate<'_> {
    CsrTemplate { signer, subject: "CN=x", names: &[], usages: &["server auth"], seconds: None }
}

async fn issue(site: &SignerFixture, signer: &str, name: &str) -> Csr {
    template(signer).create(&site.requests_as("alice", "x"), name).await;
    site.wait_until_settled(name).await
}

/// Waits until an object, or its absence, is as wanted.
pub async fn wait_for(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    good: impl Fn(Option<&DynamicObject>) -> bool,
) -> Option<DynamicObject> {
    let waiting = await_condition(api.clone(), name, |found: Option<&DynamicObject>| good(found));
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found.unwrap(),
        Err(_) => {
            panic!("{name} does not {what}: {:?}", api.get_opt(name).await.unwrap().map(|found| found.data))
        }
    }
}

/// Returns status and reason of a condition.
fn condition_of<'a>(object: &'a DynamicObject, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}

async fn wait_for_condition(
    site: &SignerFixture,
    name: &str,
    kind: &str,
    wanted: (&str, &str),
) -> DynamicObject {
    let good =
        |found: Option<&DynamicObject>| found.is_some_and(|found| condition_of(found, kind) == Some(wanted));
    let what = format!("have {kind} {wanted:?}");
    wait_for(&objects(site), name, &what, good).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_signs_changes_and_stops() {
    let site = SignerFixture::start(" []\n").await;
    let api = objects(&site);
    template("example.com/web").create(&site.requests_as("alice", "x"), "early").await;
    api.create(&PostParams::default(), &object("web", json!({"selfSigned": {}}))).await.unwrap();
    assert!(site.wait_until_settled("early").await.status.unwrap().certificate.is_some());
    let ready = wait_for_condition(&site, "web", "Ready", ("True", "Ready")).await;
    assert_eq!(ready.data["status"]["observedGeneration"], 1);
    let published = wait_for_condition(&site, "web", "Published", ("True", "Published")).await;
    assert_eq!(condition_of(&published, "CAExpiring"), Some(("False", "Valid")));
    let authorities = published.data["status"]["authorities"].as_array().unwrap().clone();
    assert_eq!((authorities.len(), &authorities[0]["state"]), (1, &json!("Active")));
    assert_eq!(authorities[0]["subject"], "CN=example.com/web");
    let issued = |found: Option<&DynamicObject>| {
        found.is_some_and(|found| found.data["status"]["lastIssuedTime"].is_string())
    };
    wait_for(&api, "web", "have issued", issued).await.unwrap();
    let counted = |found: Option<&DynamicObject>| {
        let authority = found.map(|found| &found.data["status"]["authorities"][0]);
        authority.is_some_and(|authority| {
            let numbers = (&authority["issuedCertificates"], &authority["unexpiredCertificates"]);
            numbers == (&json!(1), &json!(1)) && authority["latestExpiry"].is_string()
        })
    };
    wait_for(&api, "web", "count its certificates", counted).await.unwrap();

    // A change applies to the next request and keeps the CA.
    let patch = Patch::Merge(json!({"spec": {"requests": {"maxDuration": "1h"}}}));
    api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let shorter = async {
        for round in 0.. {
            let request = issue(&site, "example.com/web", &format!("short-{round}")).await;
            let text = request.status.unwrap().certificate.unwrap().0;
            let validity = Certificate::from_pem(&text).unwrap().validity();
            if validity.not_after() - validity.not_before() < 2 * time::Duration::HOUR {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shorter).await.unwrap();
    let observed = |found: Option<&DynamicObject>| {
        found.is_some_and(|found| found.data["status"]["observedGeneration"] == 2)
    };
    let changed = wait_for(&api, "web", "be observed", observed).await.unwrap();
    assert_eq!(changed.data["status"]["authorities"][0]["id"], authorities[0]["id"]);

    // An invalid pattern turns the signer off and says where.
    let patch = Patch::Merge(json!({"spec": {"requests": {"dnsNames": ["a.*.b"]}}}));
    api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let invalid = wait_for_condition(&site, "web", "Ready", ("False", "InvalidSpec")).await;
    let message = invalid.data["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.requests.dnsNames[0]: \"a.*.b\" is not a pattern"), "{message}");
    let patch = Patch::Merge(json!({"spec": {"requests": {"dnsNames": null}}}));
    api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    wait_for_condition(&site, "web", "Ready", ("True", "Ready")).await;

    // A deleted signer signs nothing; the next one of the name has the same CA.
    let _ = api.delete("web", &DeleteParams::default()).await.unwrap();
    wait_for(&api, "web", "be gone", |found| found.is_none()).await;
    api.create(&PostParams::default(), &object("other", json!({"selfSigned": {}}))).await.unwrap();
    wait_for_condition(&site, "other", "Ready", ("True", "Ready")).await;
    template("example.com/web").create(&site.requests_as("alice", "x"), "late").await;
    issue(&site, "example.com/other", "after").await;
    let late = site.requests().get("late").await.unwrap();
    assert!(!is_settled(Some(&late)), "{late:?}");
    api.create(&PostParams::default(), &object("web", json!({"selfSigned": {}}))).await.unwrap();
    site.wait_until_settled("late").await;
    let again = wait_for_condition(&site, "web", "Ready", ("True", "Ready")).await;
    assert_eq!(again.data["status"]["authorities"][0]["id"], authorities[0]["id"]);
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_the_file_are_objects() {
    const ENTRY: &str = "- name: example.com/filed\n  ca: {selfSigned: {directory: filed}}\n  requests: \
        {commonNames: ['*'], usages: [server auth], maxDuration: 1h, approval: {automatic: {users: [alice]}}}\n";
    let site = SignerFixture::start(&format!("{ENTRY}  limits: {{pendingRequests: 9}}\n")).await;
    let (api, name) = (objects(&site), "filed.example.com");
    let write = |signers: &str| {
        let text = format!("apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n{signers}");
        std::fs::write(site.files.path().join("signers.yaml"), text).unwrap();
    };
    let applied = wait_for_condition(&site, name, "Ready", ("True", "Ready")).await;
    assert_eq!(applied.data["spec"]["ca"], json!({"signersFile": {}}));
    assert_eq!(applied.labels()["app.kubernetes.io/managed-by"], "windlass");
    let file = &applied.annotations()["windlass.dev/signers-file"];
    assert!(file.ends_with("/signers.yaml"), "{file}");
    let managers = applied.managed_fields().iter().filter_map(|each| each.manager.as_deref());
    assert!(managers.into_iter().any(|manager| manager == "windlass-signers-file"));
    let request = issue(&site, "example.com/filed", "one").await;
    let ca = std::fs::read_to_string(site.files.path().join("filed/ca.crt")).unwrap();
    verify_chain(&request, &ca, *site.now.lock().unwrap());

    // A field that the entry does not have any more is removed; one of another manager stays.
    let patch = Patch::Merge(json!({"spec": {"crl": {"duration": "12h"}}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    write(ENTRY);
    let without =
        |found: Option<&DynamicObject>| found.is_some_and(|found| found.data["spec"]["limits"].is_null());
    let changed = wait_for(&api, name, "lose its limits", without).await.unwrap();
    assert_eq!(changed.data["spec"]["crl"], json!({"duration": "12h"}));
    // A change of a field of the file is reverted, and so is a deletion.
    let patch = Patch::Merge(json!({"spec": {"requests": {"maxDuration": "99h"}}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let reverted = |found: Option<&DynamicObject>| {
        found.is_some_and(|found| found.data["spec"]["requests"]["maxDuration"] == "1h")
    };
    wait_for(&api, name, "be reverted", reverted).await.unwrap();
    let before = api.get(name).await.unwrap().uid();
    let _ = api.delete(name, &DeleteParams::default()).await.unwrap();
    let recreated = |found: Option<&DynamicObject>| found.is_some_and(|found| found.uid() != before);
    wait_for(&api, name, "be applied again", recreated).await.unwrap();
    let request = issue(&site, "example.com/filed", "two").await;
    verify_chain(&request, &ca, *site.now.lock().unwrap());

    // Objects of others stay when the entry is removed.
    api.create(&PostParams::default(), &object("mine", json!({"selfSigned": {}}))).await.unwrap();
    write(" []\n");
    wait_for(&api, name, "be gone", |found| found.is_none()).await;
    wait_for_condition(&site, "mine", "Ready", ("True", "Ready")).await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_ca_is_reported_on_the_object() {
    let site = SignerFixture::start(" []\n").await;
    let api = objects(&site);
    api.create(&PostParams::default(), &object("none", json!({"secretName": "nothing"}))).await.unwrap();
    api.create(&PostParams::default(), &object("filed", json!({"signersFile": {}}))).await.unwrap();
    for (name, words) in
        [("none", "Secret windlass-system/nothing: it does not exist"), ("filed", "has no entry")]
    {
        // The first report may precede the first read of the Secret.
        let reported = async {
            loop {
                let found = wait_for_condition(&site, name, "Ready", ("False", "SignerUnavailable")).await;
                let message = found.data["status"]["conditions"][0]["message"].as_str().unwrap();
                if message.contains(words) {
                    return found;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(crate::fixture::PATIENCE, reported).await.expect(words);
        assert_eq!(condition_of(&found, "CAExpiring"), Some(("Unknown", "NoCA")));
    }
    site.world.shut_down().await;
}
