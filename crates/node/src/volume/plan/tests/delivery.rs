//! End-to-end tests of volumes down to the disk, after those of KEP-3257 and Kubernetes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::super::definition::VolumeDefinition;
use super::super::super::writer::tests::{visible, volume};
use super::super::super::writer::{VolumeWriter, WriteOutcome};
use super::{
    CredentialBundle, CredentialState, OptionalApi, TestPlanInputs, TrustAnchors, VolumeAction, VolumePath,
    VolumeReaders, Zeroizing, bundle, certificates, decide, sources,
};
use crate::testing::START;
use windlass_runtime::durable::FileSystem;

/// A volume, and the actions of the loop.
struct DeliveryFixture {
    _dir: tempfile::TempDir,
    writer: VolumeWriter,
    definition: VolumeDefinition,
}

#[derive(Debug, PartialEq, Eq)]
enum DeliveryOutcome {
    Wrote,
    Same,
    Kept(String),
    Waits(String),
}

impl DeliveryFixture {
    fn new(volume_sources: &[Value]) -> Self {
        let (dir, writer) = volume();
        Self { _dir: dir, writer, definition: sources(volume_sources).unwrap() }
    }

    fn anchors(which: Value) -> Self {
        let mut which = which;
        which["path"] = json!("ca.pem");
        Self::new(&[json!({ "clusterTrustBundle": which })])
    }

    /// Plans and writes once, as a process that has just started.
    fn deliver(&self, known: &TestPlanInputs) -> DeliveryOutcome {
        let writer = VolumeWriter::new(self.writer.directory(), FileSystem::default());
        let was_ready = writer.read().unwrap().is_some();
        match decide(&self.definition, VolumeReaders::default(), &known.plan_inputs(), was_ready) {
            VolumeAction::Write(payload) => match writer.write(&payload, START).unwrap() {
                WriteOutcome::Changed => DeliveryOutcome::Wrote,
                WriteOutcome::Unchanged => DeliveryOutcome::Same,
            },
            VolumeAction::Keep(blocked) => DeliveryOutcome::Kept(blocked.to_string()),
            VolumeAction::Wait(blocked) => DeliveryOutcome::Waits(blocked.to_string()),
        }
    }

    fn files(&self) -> BTreeMap<String, String> {
        visible(self.writer.directory())
    }

    fn ca(&self) -> String {
        self.files().remove("ca.pem").unwrap()
    }
}

fn pem(texts: &[&str]) -> String {
    TrustAnchors::from_pem(&texts.concat()).0.to_pem()
}

const ZERO: &str = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
const GONE: &str = "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"b\" not found";

#[test]
fn by_name() {
    let texts = certificates(2);
    let mut known = TestPlanInputs::with_bundles([bundle("b", "", &[], &texts[0])]);
    let story = DeliveryFixture::anchors(json!({"name": "b"}));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[0]]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Same);
    known.set(bundle("b", "", &[], &texts[1]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[1]]));
}

#[test]
fn a_signers_bundle_by_name_is_as_new_as_any() {
    let texts = certificates(2);
    let mut known = TestPlanInputs::with_bundles([bundle("a.b:c:d", "a.b/c", &[], &texts[0])]);
    let story = DeliveryFixture::anchors(json!({"name": "a.b:c:d"}));
    story.deliver(&known);
    known.set(bundle("a.b:c:d", "a.b/c", &[], &texts[1]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[1]]));
}

#[test]
fn several_by_signer_and_labels() {
    let texts = certificates(4);
    let live = [("env", "live")];
    let mut known = TestPlanInputs::with_bundles([
        bundle("a.b:c:1", "a.b/c", &live, &texts[0]),
        bundle("a.b:c:2", "a.b/c", &live, &texts[1..3].concat()),
        bundle("a.b:c:3", "a.b/c", &[("env", "canary")], &texts[3]),
        bundle("x.y:z:1", "x.y/z", &live, &texts[3]),
    ]);
    let labels = json!({"matchLabels": {"env": "live"}});
    let story = DeliveryFixture::anchors(json!({"signerName": "a.b/c", "labelSelector": labels}));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[0], &texts[1], &texts[2]]));
    // Another bundle without new anchors causes no write.
    known.set(bundle("a.b:c:4", "a.b/c", &live, &texts[1]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Same);
    // The canary becomes live, and a live one is removed.
    known.set(bundle("a.b:c:3", "a.b/c", &live, &texts[3]));
    known.remove("a.b:c:1");
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[1], &texts[2], &texts[3]]));
}

#[test]
fn missing_and_optional_starts_with_an_empty_file() {
    let texts = certificates(1);
    let which = [
        json!({"name": "b", "optional": true}),
        json!({"signerName": "a.b/c", "optional": true}),
        json!({"signerName": "a.b/c", "labelSelector": {}, "optional": true}),
    ];
    for which in which {
        let story = DeliveryFixture::anchors(which.clone());
        assert_eq!(story.deliver(&TestPlanInputs::new()), DeliveryOutcome::Wrote, "{which}");
        assert_eq!(story.ca(), "", "{which}");
        assert_eq!(story.deliver(&TestPlanInputs::new()), DeliveryOutcome::Same, "{which}");
    }
    // The file is filled when there are anchors, and empty again without them.
    let mut known = TestPlanInputs::new();
    let story = DeliveryFixture::anchors(json!({"name": "b", "optional": true}));
    story.deliver(&known);
    known.set(bundle("b", "", &[], &texts[0]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[0]]));
    known.remove("b");
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), "");
}

#[test]
fn missing_and_not_optional_blocks() {
    let texts = certificates(1);
    let cases = [
        (json!({"name": "b"}), GONE),
        (json!({"signerName": "a.b/c", "labelSelector": {}}), ZERO),
        (json!({"signerName": "a.b/c"}), ZERO),
    ];
    for (which, why) in cases {
        let story = DeliveryFixture::anchors(which.clone());
        assert_eq!(story.deliver(&TestPlanInputs::new()), DeliveryOutcome::Waits(why.to_owned()), "{which}");
        assert!(!story.writer.directory().exists(), "{which}: not even a directory");
    }
    // The volume becomes ready when there is a bundle.
    let mut known = TestPlanInputs::new();
    let story = DeliveryFixture::anchors(json!({"name": "b"}));
    story.deliver(&known);
    known.set(bundle("b", "", &[], &texts[0]));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
}

#[test]
fn delivered_anchors_survive_deletion() {
    let texts = certificates(2);
    let cases = [
        (json!({"name": "b"}), bundle("b", "", &[], &texts[0]), GONE),
        (
            json!({"signerName": "a.b/c", "labelSelector": {}}),
            bundle("a.b:c:d", "a.b/c", &[], &texts[0]),
            ZERO,
        ),
    ];
    for (which, there, why) in cases {
        let mut known = TestPlanInputs::with_bundles([there.clone()]);
        let story = DeliveryFixture::anchors(which);
        assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
        known.remove(&there.name);
        assert_eq!(story.deliver(&known), DeliveryOutcome::Kept(why.to_owned()));
        assert_eq!(story.ca(), pem(&[&texts[0]]));
        known.set(bundle(&there.name, &there.signer, &[], &texts[1]));
        assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
        assert_eq!(story.ca(), pem(&[&texts[1]]));
        // The same while the server is unavailable, or no longer serves the API.
        for bundles in [OptionalApi::Unsynced, OptionalApi::Missing, OptionalApi::Off] {
            known.bundles = bundles;
            assert!(matches!(story.deliver(&known), DeliveryOutcome::Kept(_)));
            assert_eq!(story.ca(), pem(&[&texts[1]]));
        }
    }
}

#[test]
fn nothing_and_everything_on_one_node() {
    let texts = certificates(2);
    let known = TestPlanInputs::with_bundles([
        bundle("a.b:c:1", "a.b/c", &[], &texts[0]),
        bundle("a.b:c:2", "a.b/c", &[("k", "v")], &texts[1]),
    ]);
    let everything = DeliveryFixture::anchors(json!({"signerName": "a.b/c", "labelSelector": {}}));
    let nothing = DeliveryFixture::anchors(json!({"signerName": "a.b/c"}));
    let optional = DeliveryFixture::anchors(json!({"signerName": "a.b/c", "optional": true}));
    for _ in 0..2 {
        everything.deliver(&known);
        assert_eq!(everything.ca(), pem(&[&texts[0], &texts[1]]));
        assert_eq!(nothing.deliver(&known), DeliveryOutcome::Waits(ZERO.to_owned()));
        optional.deliver(&known);
        assert_eq!(optional.ca(), "");
    }
}

#[test]
fn a_hundred_and_fifty_bundles() {
    let texts = certificates(150);
    let name = |number: usize| format!("a.b:c:{number}");
    let all = texts.iter().enumerate();
    let mut known =
        TestPlanInputs::with_bundles(all.map(|(number, text)| bundle(&name(number), "a.b/c", &[], text)));
    let story = DeliveryFixture::anchors(json!({"signerName": "a.b/c", "labelSelector": {}}));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca().matches("BEGIN CERTIFICATE").count(), 150);
    // Nothing is written, whatever the order in which they arrive again.
    for (number, text) in texts.iter().enumerate().rev() {
        known.remove(&name(number));
        known.set(bundle(&name(number), "a.b/c", &[], text));
    }
    assert_eq!(story.deliver(&known), DeliveryOutcome::Same);
    known.remove(&name(75));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca().matches("BEGIN CERTIFICATE").count(), 149);
}

#[test]
fn one_source_that_fails_holds_back_all_of_them() {
    let texts = certificates(2);
    let mut known = TestPlanInputs::with_bundles([bundle("b", "", &[], &texts[0])]);
    let pair = |n: &str| {
        CredentialState::Available(CredentialBundle {
            key: Zeroizing::new(format!("key {n}")),
            chain: n.to_owned(),
        })
    };
    let story = DeliveryFixture::new(&[
        json!({"clusterTrustBundle": {"name": "b", "path": "ca.pem"}}),
        json!({"podCertificate": {
            "signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "pair",
        }}),
    ]);
    assert_eq!(story.deliver(&known), DeliveryOutcome::Waits("no credentials yet".to_owned()));
    known.certificates.insert(1, pair("1"));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    let before = story.files();
    // Both change, but one is unavailable: readers keep a consistent pair.
    known.set(bundle("b", "", &[], &texts[1]));
    known.certificates.insert(1, CredentialState::Unavailable("denied".to_owned()));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Kept("denied".to_owned()));
    assert_eq!(story.files(), before);
    known.certificates.insert(1, pair("2"));
    assert_eq!(story.deliver(&known), DeliveryOutcome::Wrote);
    assert_eq!(story.ca(), pem(&[&texts[1]]));
    assert_eq!(story.files()["pair"], "key 22");
    let path = VolumePath::parse("pair").unwrap();
    assert_eq!(story.writer.read().unwrap().unwrap().get(&path).unwrap().bytes.len(), 6);
}
