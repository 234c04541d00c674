//! Test of lists whose CA key is in a PKCS#11 token that is removed and inserted again.

use windlass_testkit::SoftHsm;

use super::*;
use crate::custom_signers::tokens::{TokenSignerCluster, start_token_signer};

const SIGNERS: &str = "apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n\
    - name: example.com/web\n  \
      ca: {pkcs11: {uri: 'pkcs11:token=cas;object=ca', certificateSecretName: token-ca}}\n  \
      requests: {commonNames: ['*'], usages: [server auth], maxDuration: 1h}\n";

async fn sign_with_removed_token(hsm: &SoftHsm) {
    let controllers = "custom-signer-controller,certificate-revocation-controller";
    let started = start_token_signer(hsm, "EC:prime256v1", (SIGNER, SIGNERS), controllers).await;
    let TokenSignerCluster { world, ca, files } = started;
    let site = CrlFixture { world, ahead: Arc::default(), files, ca };
    site.wait_for_list(&site.ca, "be signed", |_| true).await;
    hsm.remove_tokens();
    site.revoke("0a", "keyCompromise").await;
    let waiting = async {
        let failed =
            |line: &str| line.starts_with("windlass_crl_sign_failures_total") && !line.ends_with(" 0");
        while !site.world.metrics().lines().any(failed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "a failure is counted");
    hsm.insert_tokens();
    site.wait_for_list(&site.ca, "have the revocation", |list| list.len() == 1).await;
    site.world.shut_down().await;
}

#[test]
fn a_removed_token_delays_the_list() {
    SoftHsm::run_test("revocation::removed_token::a_removed_token_delays_the_list", |hsm| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(sign_with_removed_token(hsm));
    });
}
