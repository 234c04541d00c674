//! Tables for the objects and the file together, and for the status.

use kube::core::ApiResource;
use serde_json::json;
use time::OffsetDateTime;
use time::macros::datetime;
use windlass_api::field::{FieldErrors, FieldPath};

use super::file_sync::{FILE_ANNOTATION, FileAction, plan};
use super::status::{AuthorityInfo, SignerObservation, SignerState, compute, is_urgent};
use super::*;
use crate::publisher::anchors::{AnchorRecord, AnchorRecords};
use crate::signers::ListState;
use crate::signers::config::SignersConfig;
use crate::signers::rollout::{PublicationState, RolloutHold};
use crate::signers::{AuthorityStatistics, object_name};

const NOW: OffsetDateTime = datetime!(2026-11-18 12:00 UTC);

fn file(signers: &str) -> SignersConfig {
    let text = format!("{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{signers}]}}");
    SignersConfig::parse(std::path::Path::new("/etc/signers.yaml"), &text).unwrap()
}

fn object(name: &str, created: &str, spec: Value) -> DynamicObject {
    let resource = ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: "Signer".into(),
        plural: "signers".into(),
    };
    let mut object = DynamicObject::new(name, &resource).data(json!({ "spec": spec }));
    let created = format!("2026-01-01T00:00:{created}Z");
    object.metadata.creation_timestamp = serde_json::from_value(created.into()).unwrap();
    object.metadata.uid = Some(format!("uid of {name}"));
    object
}

fn objects(all: impl IntoIterator<Item = DynamicObject>) -> SignerObjects {
    all.into_iter().map(|object| (object.name_any(), object)).collect()
}

fn spec_of(signer: &str) -> Value {
    json!({"signerName": signer, "ca": {"selfSigned": {}}, "pods": {"trustDomain": "a"}})
}

const ENTRY: &str = "{name: a.b/web, ca: {selfSigned: {directory: d}}, pods: {trustDomain: file}}";

#[test]
fn objects_and_entries_define_signers_together() {
    let entries = file(ENTRY);
    let names = |resolution: &SignerResolution| {
        resolution.signers.iter().map(|signer| signer.name.to_string()).collect::<Vec<_>>()
    };
    // Without objects, the entry counts.
    let found = resolve(&entries.signers, &objects([]));
    assert_eq!(found.signers, entries.signers);

    // The object of the entry takes precedence, with the CA of the entry.
    let mut spec = spec_of("a.b/web");
    spec["ca"] = json!({"signersFile": {}});
    spec["limits"] = json!({"pendingRequests": 7});
    let found = resolve(&entries.signers, &objects([object("web", "01", spec.clone())]));
    assert_eq!(names(&found), ["a.b/web"]);
    assert_eq!(found.signers[0].ca, entries.signers[0].ca);
    assert_eq!(found.signers[0].limits.pending_requests, Some(7));
    assert!(matches!(&found.verdicts["web"], ObjectVerdict::Accepted(name) if name.as_str() == "a.b/web"));
    // Without an entry, the reference leads nowhere.
    let found = resolve(&[], &objects([object("web", "01", spec)]));
    assert_eq!(found.signers[0].ca, CaConfig::SignersFile);

    // The older of two objects counts; an invalid object turns its signer off.
    let mut invalid = spec_of("a.b/web");
    invalid["pods"]["trustDomain"] = json!("A B");
    let all = [
        object("a", "02", spec_of("a.b/x")),
        object("b", "01", spec_of("a.b/x")),
        object("c", "01", invalid),
    ];
    let found = resolve(&entries.signers, &objects(all));
    assert_eq!(names(&found), ["a.b/x"]);
    assert!(matches!(&found.verdicts["a"], ObjectVerdict::Duplicate { owner, .. } if owner == "b"));
    let ObjectVerdict::Invalid(error) = &found.verdicts["c"] else { panic!() };
    assert!(error.starts_with("spec.pods.trustDomain: \"A B\" is not a trust domain"), "{error}");
}

#[test]
fn the_file_is_applied_and_removed_entries_are_deleted() {
    let path = "/etc/signers.yaml";
    let entries = file(ENTRY);
    let name = object_name(&entries.signers[0].name);
    let actions = plan(&entries, path, &objects([]));
    let [FileAction::Apply { name: applied, spec }] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((applied, &spec["ca"]), (&name, &json!({"signersFile": {}})));

    // As it was applied, with fields that others added.
    let mut current = object(&name, "01", spec.clone());
    current.data["spec"]["limits"] = json!({"pendingRequests": 7});
    let labels = [("app.kubernetes.io/managed-by".to_owned(), "windlass".to_owned())];
    current.metadata.labels = Some(labels.into());
    let hash: String = windlass_pki::fingerprint(spec.to_string().as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let annotations =
        [(FILE_ANNOTATION.to_owned(), path.to_owned()), ("windlass.dev/signers-file-entry".to_owned(), hash)];
    current.metadata.annotations = Some(annotations.into());
    assert_eq!(plan(&entries, path, &objects([current.clone()])), []);
    // Drift, and another entry.
    let mut drifted = current.clone();
    drifted.data["spec"]["pods"]["trustDomain"] = json!("drift");
    assert_eq!(plan(&entries, path, &objects([drifted])), actions);
    let changed = file(&ENTRY.replace("trustDomain: file", "serviceNames: true"));
    assert_eq!(plan(&changed, path, &objects([current.clone()])).len(), 1);

    // Only objects of this file are deleted.
    let uid = current.uid();
    let delete = FileAction::Delete { name: name.clone(), uid };
    let others = [object("other", "01", spec_of("a.b/other"))];
    let mut all = objects(others);
    all.insert(name.clone(), current.clone());
    assert_eq!(plan(&file(""), path, &all), [delete]);
    assert_eq!(plan(&file(""), "/etc/another.yaml", &all), []);
    // An object that somebody else created for the signer stays the only one.
    let theirs = objects([object("theirs", "01", spec_of("a.b/web"))]);
    assert_eq!(plan(&entries, path, &theirs), []);
}

fn authority(id: &str, days: i64) -> AuthorityInfo {
    AuthorityInfo {
        id: id.to_owned(),
        subject: format!("CN={id}"),
        not_before: NOW - time::Duration::days(100),
        not_after: NOW + time::Duration::days(days),
        anchor: format!("anchor {id}"),
        statistics: None,
    }
}

fn state(newest: &AuthorityInfo) -> SignerState {
    let records = AnchorRecords::from([(newest.anchor.clone(), AnchorRecord::default())]);
    SignerState {
        ca_error: None,
        newest: Some(newest.clone()),
        signing: Ok(newest.clone()),
        held: None,
        published: vec![newest.clone()],
        bundle: Some("a.b:web:anchors".to_owned()),
        publication: PublicationState::Known(records),
        lists: vec![ListState::Published],
        rotation_states: BTreeMap::new(),
        pending_requests: 3,
        last_issued: Some(NOW),
    }
}

fn hold(reason: &'static str) -> RolloutHold {
    RolloutHold { reason, message: "why".to_owned() }
}

/// Computes the status; returns it with `type=status reason` of each condition.
fn status(verdict: ObjectVerdict, signer: Option<SignerState>) -> (Value, String) {
    let observation = SignerObservation { generation: Some(2), verdict, signer };
    let status = compute(&Value::Null, &observation, NOW);
    let text = |condition: &Value| {
        let part = |name: &str| condition[name].as_str().unwrap().to_owned();
        format!("{}={} {}", part("type"), part("status"), part("reason"))
    };
    let conditions = status["conditions"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(", ");
    (status, conditions)
}

fn signer_name(name: &str) -> SignerName {
    SignerName::parse(&FieldPath::new("name"), name, &mut FieldErrors::new()).unwrap()
}

fn accepted() -> ObjectVerdict {
    ObjectVerdict::Accepted(signer_name("a.b/web"))
}

#[test]
fn conditions_show_what_is_wrong() {
    let ca = authority("aa", 90);
    let with = |change: fn(&mut SignerState)| {
        let mut state = state(&authority("aa", 90));
        change(&mut state);
        status(accepted(), Some(state)).1
    };
    let good =
        "Ready=True Ready, CAExpiring=False Valid, CRLPublished=True Published, Published=True Published";
    assert_eq!(status(accepted(), Some(state(&ca))).1, good);
    let unknown = "CAExpiring=Unknown NoCA, CRLPublished=Unknown NotPublished, Published=Unknown Starting";
    assert_eq!(status(accepted(), None).1, format!("Ready=Unknown Starting, {unknown}"));
    let invalid = ObjectVerdict::Invalid("spec.ca: is missing".into());
    assert_eq!(status(invalid, None).1, format!("Ready=False InvalidSpec, {unknown}"));
    let duplicate = ObjectVerdict::Duplicate { signer: signer_name("a.b/web"), owner: "b".into() };
    assert_eq!(status(duplicate, None).1, format!("Ready=False DuplicateSignerName, {unknown}"));
    let found = with(|state| {
        state.ca_error = Some("Secret a/b: it does not exist".into());
        (state.newest, state.signing) = (None, Err(hold("SignerUnavailable")));
    });
    assert_eq!(
        found,
        "Ready=False SignerUnavailable, CAExpiring=Unknown NoCA, CRLPublished=True Published, Published=False NoCA"
    );
    let full = || ListState::failed("ListFull", "why".to_owned());
    let found =
        status(accepted(), Some(SignerState { lists: vec![ListState::Published, full()], ..state(&ca) })).1;
    assert!(found.contains("CRLPublished=False ListFull"), "{found}");
    let found = with(|state| state.ca_error = Some("rejected".into()));
    assert!(found.starts_with("Ready=True PreviousCA"), "{found}");
    let found = with(|state| state.signing = Err(hold("CaNotDelivered")));
    assert!(found.starts_with("Ready=False CaNotDelivered"), "{found}");
    let found = with(|state| state.signing = Ok(authority("aa", 29)));
    assert!(found.contains("CAExpiring=True ExpiresSoon"), "{found}");
    let found = with(|state| state.signing = Ok(authority("aa", 0)));
    assert!(found.starts_with("Ready=False CAExpired, CAExpiring=True Expired"), "{found}");
    // A CA that lasts three days does not expire soon on its first day.
    let found = with(|state| {
        let not_before = NOW - time::Duration::HOUR;
        state.signing = Ok(AuthorityInfo { not_before, ..authority("aa", 3) });
    });
    assert!(found.contains("CAExpiring=False"), "{found}");
    let table: [(PublicationState, &str); 4] = [
        (PublicationState::None, "False NotServed"),
        (PublicationState::Unknown, "Unknown Starting"),
        (PublicationState::Known(AnchorRecords::new()), "False NotPublished"),
        (PublicationState::Full(AnchorRecords::new()), "False TrustBundleFull"),
    ];
    for (publication, wanted) in table {
        let state = SignerState { publication, ..state(&ca) };
        let found = status(accepted(), Some(state)).1;
        assert!(found.ends_with(&format!("Published={wanted}")), "{found}");
    }
    let found = with(|state| state.bundle = None);
    assert!(found.ends_with("Published=False NotConfigured"), "{found}");
}

#[test]
fn authorities_have_states_and_numbers() {
    let (new, mut old, older) = (authority("cc", 90), authority("bb", 60), authority("aa", 30));
    let statistics = AuthorityStatistics { issued: 9, unexpired: 4, latest_expiry: Some(NOW) };
    old.statistics = Some(statistics);
    let mut found = state(&new);
    (found.signing, found.held) = (Ok(old.clone()), Some(hold("CaNotDelivered")));
    found.published = vec![new.clone(), old.clone(), older];
    let status = status(accepted(), Some(found)).0;
    let states = status["authorities"].as_array().unwrap();
    let states: Vec<_> =
        states.iter().map(|each| (each["id"].as_str().unwrap(), each["state"].as_str().unwrap())).collect();
    assert_eq!(states, [("cc", "Prepared"), ("bb", "Active"), ("aa", "Retiring")]);
    let active = &status["authorities"][1];
    assert_eq!((&active["issuedCertificates"], &active["unexpiredCertificates"]), (&json!(9), &json!(4)));
    assert_eq!(active["latestExpiry"], "2026-11-18T12:00:00Z");
    assert_eq!(
        (&status["pendingRequests"], &status["lastIssuedTime"]),
        (&json!(3), &json!("2026-11-18T12:00:00Z"))
    );
    assert_eq!(status["observedGeneration"], 2);
}

#[test]
fn times_stay_and_numbers_are_not_urgent() {
    let observation =
        |signer| SignerObservation { generation: Some(1), verdict: accepted(), signer: Some(signer) };
    let first = compute(&Value::Null, &observation(state(&authority("aa", 90))), NOW);
    let later = NOW + time::Duration::HOUR;
    let mut other = state(&authority("aa", 90));
    (other.pending_requests, other.last_issued) = (4, None);
    let second = compute(&first, &observation(other.clone()), later);
    assert_eq!(second["conditions"], first["conditions"]);
    assert_eq!(second["lastIssuedTime"], first["lastIssuedTime"], "it was before this process");
    assert!(second != first && !is_urgent(&first, &second));
    other.signing = Err(hold("CaNotDelivered"));
    let third = compute(&second, &observation(other), later);
    assert_eq!(third["conditions"][0]["lastTransitionTime"], "2026-11-18T13:00:00Z");
    assert!(is_urgent(&second, &third));
}
