//! Test of lists whose CA key is in a PKCS#11 token that is removed and inserted again.

use k8s_openapi::api::core::v1::Secret;
use windlass_controllers::pkcs11::{TokenKey, TokenModule};
use windlass_pki::{ExternalKey, PublicKey, Subject, Validity};
use windlass_testkit::{SoftHsm, random_serial};

use super::*;

const SIGNERS: &str = "apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n\
    - name: example.com/web\n  \
      ca: {pkcs11: {uri: 'pkcs11:token=cas;object=ca', certificateSecretName: token-ca}}\n  \
      requests: {commonNames: ['*'], usages: [server auth], maxDuration: 1h}\n";

async fn sign_with_removed_token(hsm: &SoftHsm) {
    hsm.init_token("cas");
    hsm.generate_key("cas", "EC:prime256v1", "ca", "01");
    let module = Arc::new(TokenModule::load(&hsm.module(), &hsm.pin_file()).unwrap());
    let public = PublicKey::from_der(&hsm.public_key("cas", "01")).unwrap();
    let uri = "pkcs11:token=cas;object=ca".parse().unwrap();
    let key: Arc<dyn ExternalKey> = Arc::new(TokenKey::new(module.clone(), uri, public).unwrap());
    let validity = Validity::lasting(OffsetDateTime::now_utc(), time::Duration::days(9)).unwrap();
    let subject = Subject::new("token", &[]).unwrap();
    let ca = CertificateAuthority::self_signed(&subject, validity, key, random_serial()).unwrap();

    let mut world = TestCluster::without_controllers().await;
    world.create_namespace("windlass-system").await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("token-ca".into());
    let owner = ("windlass.dev/signer-name".to_owned(), SIGNER.to_owned());
    secret.metadata.annotations = Some([owner].into());
    let certificate = ByteString(ca.certificate().to_pem().into_bytes());
    secret.data = Some([("tls.crt".to_owned(), certificate)].into());
    world.api::<Secret>("windlass-system").create(&PostParams::default(), &secret).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("signers.yaml");
    std::fs::write(&file, SIGNERS).unwrap();
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    let settings =
        SignerSettings { file: Some(file.clone()), tokens: Some(module), ..SignerSettings::default() };
    world.run_controllers_with(ControllerOptions {
        custom: signers::open_with(&file, &settings, &clock).unwrap(),
        signers: settings,
        controllers: "custom-signer-controller,certificate-revocation-controller".parse().unwrap(),
        ..ControllerOptions::new(clock)
    });
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
