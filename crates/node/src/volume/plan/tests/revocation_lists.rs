//! Certificate revocation lists as PEM and DER.

use super::super::super::definition::{
    ProjectedSource, RevocationListFormat, RevocationListSource, VolumeDefinition,
};
use super::super::super::revocation_lists::PublishedList;
use super::*;
use crate::testing::revocation_list;

fn definition(format: RevocationListFormat, optional: bool) -> VolumeDefinition {
    let path = VolumePath::parse("crl").unwrap();
    let source = RevocationListSource { signer: "a.b/c".into(), optional, path, format };
    VolumeDefinition { default_mode: 0o644, sources: vec![(0, ProjectedSource::RevocationLists(source))] }
}

fn inputs(lists: &[(&str, &str, u64)]) -> TestPlanInputs {
    let mut index = RevocationListIndex::default();
    for (signer, authority, number) in lists {
        let list = PublishedList::new(signer, revocation_list(*number)).unwrap();
        index.set(authority, Arc::new(list));
    }
    TestPlanInputs { revocation_lists: OptionalApi::Synced(index), ..TestPlanInputs::new() }
}

fn files(payload: &VolumePayload) -> Vec<(String, Vec<u8>)> {
    payload.files().map(|(path, file)| (path.as_str().to_owned(), file.bytes.to_vec())).collect()
}

#[test]
fn lists_of_the_signer_are_written_in_the_order_of_their_authorities() {
    let inputs = inputs(&[("a.b/c", "0b", 2), ("a.b/c", "0a", 1), ("other.b/c", "00", 3)]);
    let (pem, der) =
        (definition(RevocationListFormat::Pem, false), definition(RevocationListFormat::Der, false));
    let plan = |definition| plan(definition, VolumeReaders::default(), &inputs.plan_inputs()).unwrap();
    let pem = files(&plan(&pem));
    let [(path, text)] = &pem[..] else { panic!("{pem:?}") };
    assert_eq!(path, "crl");
    let blocks = windlass_pki::pem::blocks(text).unwrap();
    let found: Vec<&[u8]> = blocks.iter().map(|block| &block.contents[..]).collect();
    assert_eq!(found, [&revocation_list(1)[..], &revocation_list(2)]);
    let expected =
        [("crl/0a.crl".to_owned(), revocation_list(1)), ("crl/0b.crl".to_owned(), revocation_list(2))];
    assert_eq!(files(&plan(&der)), expected);
}

#[test]
fn missing_lists_block_a_volume_unless_they_are_optional() {
    let (required, optional) =
        (definition(RevocationListFormat::Pem, false), definition(RevocationListFormat::Pem, true));
    let none = inputs(&[("other.b/c", "00", 1)]);
    let missing = TestPlanInputs { revocation_lists: OptionalApi::Missing, ..TestPlanInputs::new() };
    let unsynced = TestPlanInputs::new();
    let table = [
        (&none, &required, "signer a.b/c has no CertificateRevocationList"),
        (&missing, &optional, "the server does not serve certificaterevocationlists.windlass.dev"),
        (&unsynced, &optional, "CertificateRevocationLists are not yet synced"),
    ];
    for (inputs, definition, reason) in table {
        let blocked = BlockedReason(vec![reason.to_owned()]);
        // The last good files stay.
        let action = decide(definition, VolumeReaders::default(), &inputs.plan_inputs(), true);
        assert_eq!(action, VolumeAction::Keep(blocked));
    }
    let empty = plan(&optional, VolumeReaders::default(), &none.plan_inputs()).unwrap();
    assert_eq!(files(&empty), [("crl".to_owned(), Vec::new())]);
}
