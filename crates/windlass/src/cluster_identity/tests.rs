use std::sync::Arc;

use time::OffsetDateTime;
use windlass_store::{EmbeddedOptions, EmbeddedStore};

use super::*;
use crate::datadir::{self, ServerSite};

struct IdentityFixture {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl IdentityFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(EmbeddedOptions::new(dir.path().join("store"))).unwrap();
        Self { dir, store: Arc::new(store) }
    }

    /// Returns the identity of a server with a data directory of this name.
    fn server_identity(&self, name: &str) -> ServerIdentity {
        ServerIdentity {
            layout: DataDirLayout::new(self.dir.path().join(name)),
            host: Some("alpha".into()),
            serving: true,
            clients: true,
            accounts: None,
            replaces: false,
        }
    }

    /// Performs the steps of a start: check, create files, record.
    async fn start(&self, own: &ServerIdentity) -> Result<Option<String>> {
        let recorded = own.check(&*self.store, "etcd at X").await?;
        let site = ServerSite {
            listen: "127.0.0.1:6443".parse()?,
            hostname: None,
            names: Vec::new(),
            external_url: None,
            write_kubeconfig: true,
            makes_kubelet_serving_ca: recorded.is_none(),
        };
        drop(datadir::prepare(own.layout.clone(), site, OffsetDateTime::now_utc())?);
        own.ensure_recorded(&*self.store, "etcd at X").await
    }

    async fn reconcile_error(&self, own: &ServerIdentity) -> String {
        format!("{:#}", self.start(own).await.expect_err("it must not start"))
    }
}

fn copy(from: &ServerIdentity, to: &ServerIdentity, files: &[&str]) {
    fs::create_dir_all(to.pki_dir()).unwrap();
    for file in files {
        fs::copy(from.layout.pki_file(file), to.layout.pki_file(file)).unwrap();
    }
}

const SHARED: [&str; 8] = [
    "ca.crt",
    "ca.key",
    "client-ca.crt",
    "client-ca.key",
    "sa.pub",
    "sa.key",
    "kubelet-serving-ca.crt",
    "kubelet-serving-ca.key",
];

#[tokio::test]
async fn the_first_value_is_recorded_and_others_must_match() {
    let scene = IdentityFixture::new();
    let (first, second) = (scene.server_identity("first"), scene.server_identity("second"));
    scene.start(&first).await.unwrap();
    scene.start(&first).await.unwrap();

    let said = scene.reconcile_error(&second).await;
    let all = "Missing files: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt in ";
    assert!(said.contains(all), "{said}");
    assert!(!second.layout.root().exists(), "nothing may be made: {said}");
    for file in SHARED {
        assert!(said.contains(&format!(" {}", first.layout.pki_file(file).display())), "{said}");
    }
    copy(&first, &second, &SHARED);
    scene.start(&second).await.unwrap();

    let record = scene.store.get(KEY).await.unwrap().unwrap();
    let text = String::from_utf8(record.value.to_vec()).unwrap();
    let key = fs::read_to_string(first.layout.pki_file("sa.key")).unwrap();
    let body = key.lines().nth(1).unwrap();
    assert!(text.matches("sha256:").count() == 4 && !text.contains(body), "{text}");
}

#[tokio::test]
async fn differing_parts_are_named() {
    for (index, names) in [["ca"], ["client-ca"], ["sa"]].into_iter().enumerate() {
        let scene = IdentityFixture::new();
        let (first, second) = (scene.server_identity("first"), scene.server_identity("second"));
        scene.start(&first).await.unwrap();
        let same: Vec<_> =
            SHARED.into_iter().filter(|file| !file.starts_with(&format!("{}.", names[0]))).collect();
        copy(&first, &second, &same);
        let said = scene.reconcile_error(&second).await;
        let wanted = PARTS[index].files();
        assert!(said.contains(&format!("Missing files: {} in ", wanted[0])), "{said}");
        // This server has a different CA there.
        let foreign = scene.server_identity("foreign");
        let elsewhere = IdentityFixture::new();
        elsewhere.start(&foreign).await.unwrap();
        copy(&foreign, &second, &wanted);
        let said = scene.reconcile_error(&second).await;
        assert!(said.contains(&format!("Different files: {} in ", wanted[0])), "{said}");
        for file in SHARED {
            let reported = said.contains(&first.layout.pki_file(file).display().to_string());
            assert_eq!(reported, wanted.contains(&file), "{file}: {said}");
        }
    }
}

#[tokio::test]
async fn only_one_of_two_first_servers_starts() {
    let scene = IdentityFixture::new();
    let (one, two) = (scene.server_identity("one"), scene.server_identity("two"));
    let elsewhere = IdentityFixture::new();
    elsewhere.start(&one).await.unwrap();
    IdentityFixture::new().start(&two).await.unwrap();
    let (first, second) =
        tokio::join!(one.ensure_recorded(&*scene.store, "X"), two.ensure_recorded(&*scene.store, "X"));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test]
async fn flag_authorities_are_not_recorded_and_the_next_server_completes_the_record() {
    let scene = IdentityFixture::new();
    let own = scene.server_identity("own");
    scene.start(&own).await.unwrap();

    let other = IdentityFixture::new();
    let keys = ServiceAccountKeys::from_layout(&own.layout);
    let named = ServerIdentity {
        serving: false,
        clients: false,
        accounts: Some(keys),
        ..other.server_identity("named")
    };
    other.start(&named).await.unwrap();
    // The serving CA is not recorded yet; the token key is.
    let said = other.reconcile_error(&other.server_identity("empty")).await;
    assert!(said.contains("Missing files: sa.pub in "), "{said}");
    let joins = other.server_identity("joins");
    copy(&own, &joins, &SHARED);
    other.start(&joins).await.unwrap();
    let said = other.reconcile_error(&other.server_identity("empty")).await;
    let all = "Missing files: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt in ";
    assert!(said.contains(all), "{said}");
}

#[tokio::test]
async fn keys_of_tokens_change_one_server_after_the_other() {
    let scene = IdentityFixture::new();
    let (old, new) = (scene.server_identity("old"), scene.server_identity("new"));
    scene.start(&old).await.unwrap();
    IdentityFixture::new().start(&new).await.unwrap();
    let with = |signing: &ServerIdentity, verifying: &[&ServerIdentity]| {
        let verifying = verifying.iter().map(|own| own.layout.pki_file("sa.pub")).collect();
        let signing = signing.layout.pki_file("sa.key");
        ServerIdentity {
            accounts: Some(ServiceAccountKeys { signing, verifying }),
            ..scene.server_identity("old")
        }
    };
    scene.start(&with(&old, &[&old, &new])).await.unwrap();
    scene.start(&with(&new, &[&old, &new])).await.unwrap();
    let said = scene.reconcile_error(&with(&new, &[&new])).await;
    assert!(said.contains("--service-account-key-file") && !said.contains("cp -p"), "{said}");
    let replaces = ServerIdentity { replaces: true, ..with(&new, &[&old, &new]) };
    scene.start(&replaces).await.unwrap();
    scene.start(&with(&new, &[&new])).await.unwrap();
    scene.reconcile_error(&with(&old, &[&old])).await;
}

#[tokio::test]
async fn authorities_are_replaced_on_purpose_only() {
    let scene = IdentityFixture::new();
    let (old, new) = (scene.server_identity("old"), scene.server_identity("new"));
    scene.start(&old).await.unwrap();
    scene.start(&ServerIdentity { replaces: true, ..scene.server_identity("new") }).await.unwrap();
    scene.start(&new).await.unwrap();
    let said = scene.reconcile_error(&old).await;
    assert!(said.contains(&format!("{}/ca.key", new.pki_dir().display())), "{said}");
    assert!(said.contains("--record-authorities"), "{said}");
}

#[test]
fn files_of_other_machines_are_fetched_from_there() {
    let own =
        ServerIdentity { host: Some("beta".into()), ..IdentityFixture::new().server_identity("my data") };
    let record = ClusterIdentityRecord::new(Some("alpha".into()), "/var/lib/windlass/pki".into());
    let text = own.commands(&record, &["sa.pub"]);
    let here = own.pki_dir();
    let here = here.display();
    assert_eq!(
        text,
        format!("  mkdir -p -m 700 '{here}'\n  scp -p alpha:/var/lib/windlass/pki/sa.pub '{here}'/")
    );
    let unnamed = ServerIdentity { host: None, ..own };
    let record = ClusterIdentityRecord::new(None, record.directory);
    assert!(unnamed.commands(&record, &["sa.pub"]).contains(" SERVER:/var/lib/"));
}

#[test]
fn a_record_of_another_version_is_not_guessed_at() {
    let record = ClusterIdentityRecord::new(None, "/d".into());
    assert_eq!(ClusterIdentityRecord::read(&record.to_json().unwrap()).unwrap(), record);
    let newer = br#"{"version":2,"directory":"/d"}"#;
    assert!(ClusterIdentityRecord::read(newer).unwrap_err().to_string().contains("version 2"));
    assert!(ClusterIdentityRecord::read(b"rubbish").is_err());
}

/// Restores the state of a release without the CA of kubelet serving certificates, in the store and
/// on disk.
async fn forget_kubelet_serving(scene: &IdentityFixture, own: &ServerIdentity) {
    for file in IdentityPart::KubeletServing.files() {
        let _ = fs::remove_file(own.layout.pki_file(file));
    }
    if let Some((mut record, revision)) = read(&*scene.store).await.unwrap() {
        record.set(IdentityPart::KubeletServing, None);
        let change = KeyChange::Put(record.to_json().unwrap().into());
        let write = WriteRequest { key: KEY.into(), expect: WritePrecondition::Revision(revision), change };
        scene.store.commit(write).await.unwrap();
    }
}

#[tokio::test]
async fn servers_of_an_older_release_are_upgraded_one_after_the_other() {
    let scene = IdentityFixture::new();
    let (first, second) = (scene.server_identity("first"), scene.server_identity("second"));
    scene.start(&first).await.unwrap();
    copy(&first, &second, &SHARED);
    scene.start(&second).await.unwrap();
    forget_kubelet_serving(&scene, &second).await;
    forget_kubelet_serving(&scene, &first).await;

    let file = |own: &ServerIdentity| own.layout.pki_file(IdentityPart::KubeletServing.files()[0]);
    let recorded = scene.start(&first).await.unwrap().expect("it is recorded");
    assert!(file(&first).exists());
    // The second server starts without a CA and does not create one that nobody else would trust.
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(!file(&second).exists());
    let check = recorded_ca(recorded.clone());
    let ca = |own: &ServerIdentity| Certificate::from_pem(&fs::read(file(own)).unwrap()).unwrap();
    assert!(check(&ca(&first)).is_ok());
    // It also starts with a different CA, and does not use it.
    let elsewhere = IdentityFixture::new();
    let foreign = elsewhere.server_identity("foreign");
    elsewhere.start(&foreign).await.unwrap();
    copy(&foreign, &second, &IdentityPart::KubeletServing.files());
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(check(&ca(&second)).is_err());
    copy(&first, &second, &IdentityPart::KubeletServing.files());
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(check(&ca(&second)).is_ok());
    // An unreadable CA does not prevent the start either.
    fs::write(file(&second), "garbage").unwrap();
    scene.start(&second).await.unwrap();
}
