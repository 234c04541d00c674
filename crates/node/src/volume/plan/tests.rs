//! Tests of the files that result from given inputs.

mod delivery;
mod revocation_lists;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::super::definition::tests::{read, sources};
use super::super::path::VolumePath;
use super::super::revocation_lists::RevocationListIndex;
use super::super::trust_anchors::tests::{bundle, certificates};
use super::super::trust_anchors::{TrustAnchors, TrustBundle, TrustBundleIndex};
use super::{
    BlockedReason, CredentialBundle, CredentialState, OptionalApi, PlanInputs, VolumeAction, VolumePayload,
    VolumeReaders, decide, plan,
};

/// Plan inputs that tests can change.
struct TestPlanInputs {
    pod: Option<Pod>,
    allocatable: BTreeMap<String, String>,
    bundles: OptionalApi<TrustBundleIndex>,
    revocation_lists: OptionalApi<RevocationListIndex>,
    config_maps: BTreeMap<String, Option<Arc<ConfigMap>>>,
    secrets: BTreeMap<String, Option<Arc<Secret>>>,
    tokens: BTreeMap<usize, CredentialState<Zeroizing<String>>>,
    certificates: BTreeMap<usize, CredentialState<CredentialBundle>>,
}

impl TestPlanInputs {
    fn new() -> Self {
        Self {
            pod: None,
            allocatable: BTreeMap::new(),
            bundles: OptionalApi::Synced(TrustBundleIndex::default()),
            revocation_lists: OptionalApi::Unsynced,
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
        }
    }

    fn with_bundles(bundles: impl IntoIterator<Item = TrustBundle>) -> Self {
        let mut known = Self::new();
        bundles.into_iter().for_each(|bundle| known.set(bundle));
        known
    }

    fn set(&mut self, bundle: TrustBundle) {
        let OptionalApi::Synced(bundles) = &mut self.bundles else { panic!("no bundles") };
        bundles.set(bundle);
    }

    fn remove(&mut self, name: &str) {
        let OptionalApi::Synced(bundles) = &mut self.bundles else { panic!("no bundles") };
        bundles.remove(name);
    }

    fn plan_inputs(&self) -> PlanInputs<'_> {
        PlanInputs {
            pod: self.pod.as_ref(),
            allocatable: &self.allocatable,
            bundles: &self.bundles,
            revocation_lists: &self.revocation_lists,
            config_maps: &self.config_maps,
            secrets: &self.secrets,
            tokens: &self.tokens,
            certificates: &self.certificates,
        }
    }

    fn plan(&self, volume: &[Value]) -> Result<VolumePayload, BlockedReason> {
        plan(&sources(volume).unwrap(), VolumeReaders::default(), &self.plan_inputs())
    }

    /// Returns path, contents and mode of every file, or why there are none.
    fn files(&self, volume: &[Value]) -> Result<Vec<(String, String, u32)>, String> {
        self.plan(volume).map(|payload| shown(&payload)).map_err(|blocked| blocked.to_string())
    }
}

fn shown(payload: &VolumePayload) -> Vec<(String, String, u32)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let files = payload.files();
    files.map(|(path, file)| (path.to_string(), text(&file.bytes), file.mode)).collect()
}

fn file(path: &str, contents: &str, mode: u32) -> (String, String, u32) {
    (path.to_owned(), contents.to_owned(), mode)
}

fn parsed<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Returns such a source with additional fields in its object.
fn source(kind: &str, more: &Value) -> Value {
    json!({ kind: more })
}

#[test]
fn anchors_come_by_name_or_by_signer_and_labels() {
    let texts = certificates(3);
    let known = TestPlanInputs::with_bundles([
        bundle("plain", "", &[], &format!("# mine\n{0}{0}", texts[0])),
        bundle("a.b:c:one", "a.b/c", &[("env", "live")], &texts[1]),
        bundle("a.b:c:two", "a.b/c", &[("env", "live")], &texts[2]),
        bundle("a.b:c:three", "a.b/c", &[("env", "canary")], &texts[0]),
    ]);
    let pem = |texts: &[&str]| TrustAnchors::from_pem(&texts.concat()).0.to_pem();
    let live = json!({"matchLabels": {"env": "live"}});
    let missing = "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \
                   \"gone\" not found";
    let zero = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    let all = pem(&[&texts[0], &texts[1], &texts[2]]);
    // Selection, result, and result if optional.
    let cases = [
        (json!({"name": "plain"}), Ok(pem(&[&texts[0]]))),
        (json!({"name": "a.b:c:one"}), Ok(pem(&[&texts[1]]))),
        (json!({"name": "gone"}), Err(missing)),
        (json!({"signerName": "a.b/c", "labelSelector": live}), Ok(pem(&[&texts[1], &texts[2]]))),
        (json!({"signerName": "a.b/c", "labelSelector": {}}), Ok(all)),
        (json!({"signerName": "a.b/c"}), Err(zero)),
        (json!({"signerName": "x.y/z", "labelSelector": {}}), Err(zero)),
        (json!({"signerName": "a.b/c", "labelSelector": {"matchLabels": {"env": "test"}}}), Err(zero)),
    ];
    for (mut which, expected) in cases {
        which["path"] = json!("ca.pem");
        let files = known.files(&[source("clusterTrustBundle", &which)]);
        let wanted = expected.clone().map(|text| vec![file("ca.pem", &text, 0o644)]);
        assert_eq!(files, wanted.map_err(str::to_owned), "{which}");
        which["optional"] = json!(true);
        let files = known.files(&[source("clusterTrustBundle", &which)]).unwrap();
        assert_eq!(files, [file("ca.pem", &expected.unwrap_or_default(), 0o644)], "{which}");
    }
}

#[test]
fn an_api_that_is_not_there_is_an_error_even_for_what_is_optional() {
    let cases = [
        (
            OptionalApi::Off,
            "ClusterTrustBundle projection: the feature gate ClusterTrustBundleProjection is off",
        ),
        (
            OptionalApi::Missing,
            "ClusterTrustBundle projection: the server does not serve \
             clustertrustbundles.certificates.k8s.io",
        ),
        (OptionalApi::Unsynced, "ClusterTrustBundle informer has not yet synced"),
    ];
    for (bundles, expected) in cases {
        let mut known = TestPlanInputs::new();
        known.bundles = bundles;
        for optional in [false, true] {
            let which = json!({"name": "a", "path": "p", "optional": optional});
            let files = known.files(&[source("clusterTrustBundle", &which)]);
            assert_eq!(files, Err(expected.to_owned()));
        }
        // A volume without bundles is not affected.
        known.tokens.insert(0, CredentialState::Available(Zeroizing::new("t".to_owned())));
        known.files(&[json!({"serviceAccountToken": {"path": "t"}})]).unwrap();
    }
}

#[test]
fn objects_are_whole_or_by_item() {
    let mut known = TestPlanInputs::new();
    let map = json!({"data": {"a": "A", "b": "B"}, "binaryData": {"c": "Qw=="}});
    let secret = json!({"data": {"a": "QQ==", "b": "Qg==", "c": "Qw=="}});
    known.config_maps.insert("o".to_owned(), Some(parsed(map)));
    known.secrets.insert("o".to_owned(), Some(parsed(secret)));
    known.config_maps.insert("gone".to_owned(), None);
    known.secrets.insert("gone".to_owned(), None);
    let kinds = [
        ("configMap", "configmap", "configmap references non-existent config key"),
        ("secret", "secret", "references non-existent secret key"),
    ];
    for (kind, word, no_key) in kinds {
        let all = vec![file("a", "A", 0o644), file("b", "B", 0o644), file("c", "C", 0o644)];
        let items = json!([{"key": "c", "path": "x/c", "mode": 0o400}, {"key": "a", "path": "a"}]);
        let some = vec![file("a", "A", 0o644), file("x/c", "C", 0o400)];
        let more = json!([{"key": "a", "path": "a"}, {"key": "z", "path": "z"}]);
        let unsynced = format!("failed to sync {word} cache: timed out waiting for the condition");
        // Object, result, and result if optional.
        let none = Vec::new();
        let cases = [
            (json!({"name": "o"}), Ok(all.clone()), Ok(all)),
            (json!({"name": "o", "items": items}), Ok(some.clone()), Ok(some)),
            (
                json!({"name": "o", "items": more}),
                Err(format!("{no_key}: z")),
                Ok(vec![file("a", "A", 0o644)]),
            ),
            (json!({"name": "gone"}), Err(format!("{word} \"gone\" not found")), Ok(none.clone())),
            (json!({"name": "gone", "items": more}), Err(format!("{word} \"gone\" not found")), Ok(none)),
            (json!({"name": "unknown"}), Err(unsynced.clone()), Err(unsynced)),
        ];
        for (mut which, needed, optional) in cases {
            assert_eq!(known.files(&[source(kind, &which)]), needed, "{kind} {which}");
            which["optional"] = json!(true);
            assert_eq!(known.files(&[source(kind, &which)]), optional, "{kind} {which}");
        }
    }
}

#[test]
fn credentials_are_written_to_the_paths_that_are_named() {
    let mut known = TestPlanInputs::new();
    let pair = CredentialBundle { key: Zeroizing::new("KEY\n".to_owned()), chain: "CHAIN\n".to_owned() };
    known.certificates.insert(1, CredentialState::Available(pair));
    known.certificates.insert(2, CredentialState::Unavailable("denied".to_owned()));
    let certificate = |more: Value| {
        let mut source = json!({"signerName": "a.b/c", "keyType": "ED25519"});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "podCertificate": source })
    };
    let bundle = || certificate(json!({"credentialBundlePath": "b"}));
    let cases = [
        (bundle(), vec![file("b", "KEY\nCHAIN\n", 0o644)]),
        (
            certificate(json!({"keyPath": "k", "certificateChainPath": "c"})),
            vec![file("c", "CHAIN\n", 0o644), file("k", "KEY\n", 0o644)],
        ),
        (certificate(json!({"certificateChainPath": "c"})), vec![file("c", "CHAIN\n", 0o644)]),
    ];
    for (source, files) in cases {
        // By the index in the list, also after an empty entry.
        assert_eq!(known.files(&[json!({}), source]), Ok(files));
    }
    assert_eq!(known.files(&[bundle()]), Err("no credentials yet".to_owned()));
    let last = [json!({}), json!({}), bundle()];
    assert_eq!(known.files(&last), Err("denied".to_owned()));
}

#[test]
fn tokens_are_written_as_they_are() {
    let mut known = TestPlanInputs::new();
    let volume = [json!({"serviceAccountToken": {"path": "token"}})];
    known.files(&volume).unwrap_err();
    known.tokens.insert(0, CredentialState::Unavailable("failed to fetch token: no".to_owned()));
    assert_eq!(known.files(&volume), Err("failed to fetch token: no".to_owned()));
    known.tokens.insert(0, CredentialState::Available(Zeroizing::new("abc".to_owned())));
    assert_eq!(known.files(&volume), Ok(vec![file("token", "abc", 0o644)]));
}

#[test]
fn a_pod_is_described() {
    let mut known = TestPlanInputs::new();
    let pod = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1",
            "labels": {"b": "2", "a": "1"},
            "annotations": {"example.com/Note": "two\nlines \"quoted\""},
        },
        "spec": {"containers": [
            {"name": "c", "resources": {
                "limits": {"cpu": "1500m", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "250m"},
            }},
            {"name": "free"},
        ], "initContainers": [{"name": "first", "resources": {"limits": {"cpu": "7"}}}]},
    });
    known.pod = Some(serde_json::from_value(pod).unwrap());
    known.allocatable =
        [("cpu", "4"), ("memory", "8Gi")].map(|(name, amount)| (name.to_owned(), amount.to_owned())).into();
    let field = |path: &str| json!({"path": "p", "fieldRef": {"fieldPath": path}});
    let amount = |container: &str, resource: &str, divisor: Value| {
        json!({"path": "p", "resourceFieldRef": {
            "containerName": container, "resource": resource, "divisor": divisor,
        }})
    };
    let no_divisor = || Value::Null;
    let cases = [
        (field("metadata.name"), Ok("web")),
        (field("metadata.namespace"), Ok("shop")),
        (field("metadata.uid"), Ok("u-1")),
        (field("metadata.labels"), Ok("a=\"1\"\nb=\"2\"")),
        (field("metadata.annotations"), Ok("example.com/Note=\"two\\nlines \\\"quoted\\\"\"")),
        (field("metadata.labels['b']"), Ok("2")),
        (field("metadata.labels['z']"), Ok("")),
        (field("metadata.annotations['example.com/Note']"), Ok("two\nlines \"quoted\"")),
        (field("spec.nodeName"), Err("unsupported fieldPath: spec.nodeName")),
        (field("metadata.name['a']"), Err("fieldPath \"metadata.name['a']\" does not support subscript")),
        (amount("c", "limits.cpu", no_divisor()), Ok("2")),
        (amount("c", "limits.cpu", json!("1m")), Ok("1500")),
        (amount("c", "limits.cpu", json!("0")), Ok("2")),
        (amount("c", "limits.memory", json!("1Mi")), Ok("1024")),
        (amount("c", "limits.memory", no_divisor()), Ok("1073741824")),
        (amount("c", "limits.hugepages-2Mi", json!("1Mi")), Ok("4")),
        (amount("c", "requests.cpu", no_divisor()), Ok("1")),
        (amount("c", "requests.memory", no_divisor()), Ok("0")),
        (amount("free", "limits.cpu", no_divisor()), Ok("4")),
        (amount("free", "limits.memory", json!("1Gi")), Ok("8")),
        (amount("first", "limits.cpu", no_divisor()), Ok("7")),
        (amount("x", "limits.cpu", no_divisor()), Err("container x not found")),
        (amount("c", "limits.gpu", no_divisor()), Err("unsupported container resource : limits.gpu")),
    ];
    for (item, expected) in cases {
        let files = known.files(&[json!({"downwardAPI": {"items": [item]}})]);
        let expected = expected.map(|text| vec![file("p", text, 0o644)]).map_err(str::to_owned);
        assert_eq!(files, expected, "{item}");
    }
    let name = field("metadata.name");
    known.pod = None;
    let files = known.files(&[json!({"downwardAPI": {"items": [name]}})]);
    assert_eq!(files, Err("downwardAPI: there is no pod".to_owned()));
}

#[test]
fn modes_and_owners_are_those_of_the_definition_and_the_pod() {
    let texts = certificates(1);
    let mut known = TestPlanInputs::with_bundles([bundle("a", "", &[], &texts[0])]);
    let map = json!({"data": {"k": "K", "l": "L"}});
    known.config_maps.insert("m".to_owned(), Some(parsed(map)));
    known.tokens.insert(2, CredentialState::Available(Zeroizing::new("t".to_owned())));
    let volume = |more: Value| {
        let mut volume = json!({"defaultMode": 0o444, "sources": [
            {"clusterTrustBundle": {"name": "a", "path": "ca"}},
            {"configMap": {"name": "m", "items": [
                {"key": "k", "path": "k"}, {"key": "l", "path": "l", "mode": 0o700, "user": 9},
            ]}},
            {"serviceAccountToken": {"path": "token", "user": 8}},
        ]});
        volume.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(volume).unwrap()
    };
    let (user, group) = (Some(5), Some(7));
    // Mode and owner of ca, k, l and token.
    let cases = [
        (
            json!({}),
            VolumeReaders::default(),
            [(0o444, None), (0o444, None), (0o700, Some(9)), (0o444, Some(8))],
        ),
        (
            json!({}),
            VolumeReaders { user: None, group },
            [(0o600, None), (0o444, None), (0o700, Some(9)), (0o600, Some(8))],
        ),
        (
            json!({}),
            VolumeReaders { user, group: None },
            [(0o600, user), (0o444, None), (0o700, Some(9)), (0o600, Some(8))],
        ),
        (
            json!({"defaultUser": 3}),
            VolumeReaders { user, group },
            [(0o600, Some(3)), (0o444, Some(3)), (0o700, Some(9)), (0o600, Some(8))],
        ),
    ];
    for (more, readers, expected) in cases {
        let payload = plan(&volume(more), readers, &known.plan_inputs()).unwrap();
        let got = payload.files().map(|(_, file)| (file.mode, file.owner)).collect::<Vec<_>>();
        assert_eq!(got, expected, "{readers:?}");
        assert_eq!(payload.group(), readers.group);
    }
}

#[test]
fn readers_are_the_users_of_all_containers() {
    let user = |id: Value| json!({"name": "c", "securityContext": {"runAsUser": id}});
    let silent = || json!({"name": "c"});
    let whole = |more: Value, containers: Vec<Value>, init: Vec<Value>| json!({"securityContext": more, "containers": containers, "initContainers": init});
    let cases = [
        (whole(json!({}), vec![silent()], vec![]), (None, None)),
        (whole(json!({"fsGroup": 7}), vec![silent()], vec![]), (None, Some(7))),
        (whole(json!({"runAsUser": 5}), vec![silent(), silent()], vec![]), (Some(5), None)),
        (whole(json!({}), vec![user(json!(5)), silent()], vec![]), (None, None)),
        (whole(json!({}), vec![user(json!(5)), user(json!(5))], vec![]), (Some(5), None)),
        (whole(json!({}), vec![user(json!(5)), user(json!(6))], vec![]), (None, None)),
        (whole(json!({}), vec![user(json!(5))], vec![user(json!(6))]), (None, None)),
        (whole(json!({"runAsUser": 5}), vec![silent()], vec![user(json!(6))]), (None, None)),
    ];
    for (spec, (user, group)) in cases {
        let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(VolumeReaders::from_pod(&pod), VolumeReaders { user, group }, "{spec}");
    }
}

#[test]
fn files_of_two_sources_may_not_conflict() {
    let texts = certificates(1);
    let mut known = TestPlanInputs::with_bundles([bundle("a", "", &[], &texts[0])]);
    let map = json!({"data": {"ca": "K", "dir": "D"}});
    known.config_maps.insert("m".to_owned(), Some(parsed(map)));
    let map = json!({"data": {"..data": "K"}});
    known.config_maps.insert("bad".to_owned(), Some(parsed(map)));
    let anchors = |path: &str| json!({"clusterTrustBundle": {"name": "a", "path": path}});
    let map = |name: &str| json!({"configMap": {"name": name}});
    let conflict = |path: &str| Err(format!("conflicting duplicate paths: {path}"));
    let cases = [
        // The files of an object are known only when the object is.
        ([anchors("ca"), map("m")], conflict("ca")),
        ([map("m"), anchors("ca")], conflict("ca")),
        ([map("m"), anchors("dir/ca")], conflict("dir/ca")),
        ([anchors("dir/ca"), map("m")], conflict("dir")),
        ([anchors("x"), map("bad")], Err("invalid path: must not start with '..': ..data".to_owned())),
    ];
    for (volume, expected) in cases {
        assert_eq!(known.files(&volume), expected, "{volume:?}");
    }
    known.files(&[anchors("x"), map("m")]).unwrap();
}

#[test]
fn all_blocking_problems_are_reported() {
    let mut known = TestPlanInputs::new();
    known.secrets.insert("s".to_owned(), None);
    let volume = [
        json!({"clusterTrustBundle": {"signerName": "a.b/c", "path": "ca"}}),
        json!({"secret": {"name": "s"}}),
        json!({"secret": {"name": "s"}}),
    ];
    let blocked = known.plan(&volume).unwrap_err();
    let text = "[combination of signerName and labelSelector matched zero ClusterTrustBundles, \
                secret \"s\" not found]";
    assert_eq!(blocked.to_string(), text);
    let event = format!("MountVolume.SetUp failed for volume \"v\" : {text}");
    assert_eq!(blocked.failed_mount("v"), event);
}
