//! Tests of a CA whose key is in a PKCS#11 token.

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

/// A cluster with a signer whose CA key is in a token.
pub struct TokenSignerCluster {
    pub world: TestCluster,
    pub ca: CertificateAuthority,
    pub files: tempfile::TempDir,
}

/// Starts the controllers of the signer in this file, whose CA key of this kind is generated in a token.
pub async fn start_token_signer(
    hsm: &SoftHsm,
    kind: &str,
    (signer, text): (&str, &str),
    controllers: &str,
) -> TokenSignerCluster {
    hsm.init_token("cas");
    hsm.generate_key("cas", kind, "ca", "01");
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
    let owner = ("windlass.dev/signer-name".to_owned(), signer.to_owned());
    secret.metadata.annotations = Some([owner].into());
    let certificate = ByteString(ca.certificate().to_pem().into_bytes());
    secret.data = Some([("tls.crt".to_owned(), certificate)].into());
    world.api::<Secret>("windlass-system").create(&PostParams::default(), &secret).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("signers.yaml");
    std::fs::write(&file, text).unwrap();
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    let settings =
        SignerSettings { file: Some(file.clone()), tokens: Some(module), ..SignerSettings::default() };
    world.run_controllers_with(ControllerOptions {
        custom: signers::open_with(&file, &settings, &clock).unwrap(),
        signers: settings,
        controllers: controllers.parse().unwrap(),
        ..ControllerOptions::new(clock)
    });
    TokenSignerCluster { world, ca, files }
}

async fn request(api: &Api<Csr>, name: &str) {
    let usages = &["server auth"];
    let asked =
        CsrTemplate { signer: "example.com/token", subject: "CN=x", names: &[], usages, seconds: None };
    asked.create(api, name).await;
}

/// Removes the token: requests wait with a reason, and are answered once it is back.
async fn sign_with_token(hsm: &SoftHsm, kind: &str) {
    let signer = ("example.com/token", SIGNER);
    let started = start_token_signer(hsm, kind, signer, "custom-signer-controller").await;
    let TokenSignerCluster { world, ca, files: _files } = started;
    let verify = |request: &Csr| verify_chain(request, &ca.certificate().to_pem(), OffsetDateTime::now_utc());
    let api: Api<Csr> = Api::all(world.client_as("alice", &["system:masters"]));
    request(&api, "before").await;
    verify(&wait_until(&api, "before", "be answered", is_settled).await.unwrap());

    hsm.remove_tokens();
    // The library may sign with what it has in memory until it is initialized again.
    let mut number = 0;
    let name = loop {
        let name = format!("without-{number}");
        request(&api, &name).await;
        let answered =
            |found: Option<&Csr>| is_settled(found) || found.is_some_and(|csr| delay(csr).is_some());
        let found = wait_until(&api, &name, "be answered or delayed", answered).await.unwrap();
        if let Some(reason) = delay(&found) {
            assert_eq!(reason, "SigningFailed");
            break name;
        }
        number += 1;
        assert!(number < 1000, "a removed token signs");
    };
    hsm.insert_tokens();
    verify(&wait_until(&api, &name, "be answered", is_settled).await.unwrap());
    world.shut_down().await;
}

/// Returns why a request waits for its certificate.
fn delay(request: &Csr) -> Option<&str> {
    condition(request, "windlass.dev/SigningDelayed")?.reason.as_deref()
}

fn run(test: &str, kind: &str) {
    SoftHsm::run_test(&format!("custom_signers::tokens::{test}"), |hsm| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(sign_with_token(hsm, kind));
    });
}

#[test]
fn an_ecdsa_key_in_a_token_signs_and_recovers() {
    run("an_ecdsa_key_in_a_token_signs_and_recovers", "EC:prime256v1");
}

#[test]
fn an_rsa_key_in_a_token_signs_and_recovers() {
    run("an_rsa_key_in_a_token_signs_and_recovers", "rsa:3072");
}
