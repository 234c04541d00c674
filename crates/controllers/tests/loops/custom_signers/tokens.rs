//! Test of a CA whose key is in a PKCS#11 token.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use windlass_controllers::pkcs11::{TokenKey, TokenModule};
use windlass_pki::{ExternalKey, PublicKey};
use windlass_testkit::SoftHsm;

use super::*;

const SIGNER: &str = "apiVersion: windlass.dev/v1\nkind: Signers\nsigners:\n\
    - name: example.com/token\n  \
      ca: {pkcs11: {uri: 'pkcs11:token=cas;object=ca', certificateSecretName: token-ca}}\n  \
      requests: {commonNames: ['*'], usages: [server auth], maxDuration: 1h, \
      approval: {automatic: {users: [alice]}}}\n";

async fn sign_with_token(hsm: &SoftHsm) {
    hsm.init_token("cas");
    hsm.generate_key("cas", "EC:prime256v1", "ca", "01");
    let module = Arc::new(TokenModule::load(&hsm.module(), &hsm.pin_file()).unwrap());
    let public = PublicKey::from_der(&hsm.public_key("cas", "01")).unwrap();
    let uri = "pkcs11:token=cas;object=ca".parse().unwrap();
    let key: Arc<dyn ExternalKey> = Arc::new(TokenKey::new(module.clone(), uri, public).unwrap());
    let now = OffsetDateTime::now_utc();
    let validity = Validity::lasting(now, time::Duration::days(9)).unwrap();
    let ca = CertificateAuthority::self_signed(&Subject::new("token", &[]).unwrap(), validity, key, serial());
    let ca = ca.unwrap();

    let mut world = TestCluster::without_controllers().await;
    world.create_namespace("windlass-system").await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("token-ca".into());
    let owner = ("windlass.dev/signer-name".to_owned(), "example.com/token".to_owned());
    secret.metadata.annotations = Some([owner].into());
    let certificate = ByteString(ca.certificate().to_pem().into_bytes());
    secret.data = Some([("tls.crt".to_owned(), certificate)].into());
    world.api::<Secret>("windlass-system").create(&PostParams::default(), &secret).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("signers.yaml");
    std::fs::write(&file, SIGNER).unwrap();
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    let settings =
        SignerSettings { file: Some(file.clone()), tokens: Some(module), ..SignerSettings::default() };
    world.run_controllers_with(ControllerOptions {
        custom: signers::open_with(&file, &settings, &clock).unwrap(),
        signers: settings,
        controllers: "custom-signer-controller".parse().unwrap(),
        ..ControllerOptions::new(clock)
    });
    let api: Api<Csr> = Api::all(world.client_as("alice", &["system:masters"]));
    let usages = &["server auth"];
    let asked =
        CsrTemplate { signer: "example.com/token", subject: "CN=x", names: &[], usages, seconds: None };
    asked.create(&api, "one").await;
    let request = wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    verify_chain(&request, &ca.certificate().to_pem(), OffsetDateTime::now_utc());
    world.shut_down().await;
}

#[test]
fn a_key_in_a_token_signs() {
    SoftHsm::run_test("custom_signers::tokens::a_key_in_a_token_signs", |hsm| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(sign_with_token(hsm));
    });
}
