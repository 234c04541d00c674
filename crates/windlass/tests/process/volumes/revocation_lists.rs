//! Certificate revocation lists in host projections.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use windlass_pki::{CertificateAuthority, CertificateRevocationList, CrlTemplate};
use windlass_testkit::self_signed_ca;

use super::volume_fixture::{VolumeFixture, wait_until};
use crate::trust_docs::code_blocks;

const PAGE: &str = include_str!("../../../../../docs/host-projections.md");

/// Signs a list, and returns it with its object.
fn list(ca: &CertificateAuthority, number: u64) -> (CertificateRevocationList, Value) {
    let this_update = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap();
    let next_update = this_update + Duration::DAY;
    let list = ca.sign_crl(&CrlTemplate { number, this_update, next_update, revoked: &[] }).unwrap();
    let authority = ca.certificate().authority_id();
    let object = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "CertificateRevocationList",
        "metadata": {"name": authority},
        "spec": {
            "signerName": "example.com/web", "authorityID": authority, "number": number,
            "crl": STANDARD.encode(list.der()),
            "thisUpdate": this_update.format(&Rfc3339).unwrap(),
            "nextUpdate": next_update.format(&Rfc3339).unwrap(),
        },
    });
    (list, object)
}

#[test]
fn lists_are_written_as_the_page_says() {
    let mut world = VolumeFixture::start();
    world.stop_agent();
    let directory = world.path().join("web");
    let section = code_blocks(PAGE, "yaml")[2];
    let text = format!(
        "apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n- name: web\n  directory: {}\n{section}",
        directory.display()
    );
    fs::write(world.path().join("projections.yaml"), text).unwrap();
    world.start_agent("--projections projections.yaml");
    let blocked = |said: &Value| said["volumes"]["blockedVolumes"][0]["message"].clone();
    let said = world.wait_for_agent_status("not blocked", |said| {
        blocked(said).as_str().is_some_and(|why| why.contains("no CertificateRevocationList"))
    });
    assert_eq!(blocked(&said), "signer example.com/web has no CertificateRevocationList");

    let authorities = [self_signed_ca("one"), self_signed_ca("two")];
    let mut lists = authorities.each_ref().map(|ca| list(ca, 1));
    world.apply(&lists.each_ref().map(|(_, object)| object.clone()));
    // A new list of one authority replaces the old one.
    for _ in 0..2 {
        let mut expected = authorities.iter().zip(&lists).collect::<Vec<_>>();
        expected.sort_by_key(|(ca, _)| ca.certificate().authority_id());
        let pem: String = expected.iter().map(|(_, (list, _))| list.to_pem()).collect();
        wait_until("not written", || {
            (fs::read_to_string(directory.join("crl.pem")).ok()? == pem).then_some(())
        });
        for (ca, (list, _)) in expected {
            let file = directory.join(format!("crls/{}.crl", ca.certificate().authority_id()));
            assert_eq!(fs::read(file).unwrap(), list.der());
        }
        lists[0] = list(&authorities[0], 2);
        world.apply(&[lists[0].1.clone()]);
    }
}
