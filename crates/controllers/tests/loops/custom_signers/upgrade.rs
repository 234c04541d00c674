//! Test of an upgrade from a version without Signer objects: CAs, published bundles and pending requests survive.

use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;

use super::*;

const FILE: &str = include_str!("../../../../../examples/custom-signer/signers.yaml");
const BUNDLE: &str = "example.com:server-tls:anchors";

/// A bundle as the version before wrote it.
fn written_before(ca: &Certificate) -> Bundle {
    let fingerprint: String = ca.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    crate::fixture::object(json!({
        "metadata": {
            "name": BUNDLE,
            "labels": {"app.kubernetes.io/managed-by": "windlass", "example.com/stage": "live"},
            "annotations": {
                "windlass.dev/anchor": fingerprint,
                "windlass.dev/anchors": json!({fingerprint: {"maxDurationSeconds": 2160 * 3600}}).to_string(),
            },
        },
        "spec": {"signerName": "example.com/server-tls", "trustBundle": ca.to_pem()},
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_and_its_cas_bundles_and_requests_survive_an_upgrade() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("ca/server-tls");
    std::fs::create_dir_all(&folder).unwrap();
    let ca = authority("example.com/server-tls", 900);
    std::fs::write(folder.join("ca.crt"), ca.certificate().to_pem()).unwrap();
    std::fs::write(folder.join("ca.key"), ca.key().to_pem().unwrap().as_bytes()).unwrap();
    let mut world = TestCluster::without_controllers().await;
    let bundles: Api<Bundle> = Api::all(world.client.clone());
    let bundle = written_before(ca.certificate());
    let bundle = bundles.create(&PostParams::default(), &bundle).await.unwrap();
    let requests: Api<Csr> = Api::all(world.client.clone());
    let asked = CsrTemplate {
        signer: "example.com/server-tls",
        subject: "CN=web.example.com",
        names: &["DNS:web.example.com"],
        usages: &["digital signature", "server auth"],
        seconds: None,
    };
    asked.create(&requests, "pending").await;
    approve(&requests, "pending").await;

    let file = files.path().join("signers.yaml");
    std::fs::write(&file, FILE).unwrap();
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    world.run_controllers_with(ControllerOptions {
        custom: signers::open(&file, &clock).unwrap(),
        signers: SignerSettings { file: Some(file), ..SignerSettings::default() },
        controllers: "custom-signer-controller".parse().unwrap(),
        ..ControllerOptions::new(clock)
    });
    let request = wait_until(&requests, "pending", "be answered", is_settled).await.unwrap();
    verify_chain(&request, &bundle.spec.trust_bundle, OffsetDateTime::now_utc());
    let resource = ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: "Signer".into(),
        plural: "signers".into(),
    };
    let objects: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
    let published = async {
        loop {
            let found = objects.get_opt("server-tls.example.com").await.unwrap();
            let status =
                found.map(|found| found.data["status"]["conditions"].to_string()).unwrap_or_default();
            if status.contains("\"Published\"") && status.matches("\"status\":\"True\"").count() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, published).await.unwrap();
    let after = bundles.get(BUNDLE).await.unwrap();
    assert_eq!(after.resource_version(), bundle.resource_version(), "the bundle is left as it is");
    assert_eq!(std::fs::read_to_string(folder.join("ca.crt")).unwrap(), ca.certificate().to_pem());
    world.shut_down().await;
}
