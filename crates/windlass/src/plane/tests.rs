use std::sync::Arc;

use time::OffsetDateTime;
use windlass_store::{Embedded, Options};

use super::*;
use crate::datadir::{self, Site};

struct Scene {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(Options::new(dir.path().join("store"))).unwrap();
        Self { dir, store: Arc::new(store) }
    }

    /// A server with a data directory of this name.
    fn own(&self, name: &str) -> Own {
        Own {
            layout: Layout::new(self.dir.path().join(name)),
            host: Some("alpha".into()),
            serving: true,
            clients: true,
            accounts: None,
            replaces: false,
        }
    }

    /// What a start does: look, make files, look again.
    async fn start(&self, own: &Own) -> Result<Option<String>> {
        let recorded = own.check(&*self.store, "etcd at X").await?;
        let site = Site {
            listen: "127.0.0.1:6443".parse()?,
            hostname: None,
            names: Vec::new(),
            external_url: None,
            write_kubeconfig: true,
            makes_kubelet_serving_ca: recorded.is_none(),
        };
        drop(datadir::prepare(own.layout.clone(), site, OffsetDateTime::now_utc())?);
        own.settle(&*self.store, "etcd at X").await
    }

    async fn refused(&self, own: &Own) -> String {
        format!("{:#}", self.start(own).await.expect_err("it must not start"))
    }
}

fn copy(from: &Own, to: &Own, files: &[&str]) {
    fs::create_dir_all(to.pki()).unwrap();
    for file in files {
        fs::copy(from.layout.pki(file), to.layout.pki(file)).unwrap();
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
async fn the_first_is_recorded_and_the_others_must_have_the_same() {
    let scene = Scene::new();
    let (first, second) = (scene.own("first"), scene.own("second"));
    scene.start(&first).await.unwrap();
    scene.start(&first).await.unwrap();

    let said = scene.refused(&second).await;
    let all = "there is no ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt.";
    assert!(said.contains(all), "{said}");
    assert!(!second.layout.root().exists(), "nothing may be made: {said}");
    for file in SHARED {
        assert!(said.contains(&format!(" {}", first.layout.pki(file).display())), "{said}");
    }
    copy(&first, &second, &SHARED);
    scene.start(&second).await.unwrap();

    let record = scene.store.get(KEY).await.unwrap().unwrap();
    let text = String::from_utf8(record.value.to_vec()).unwrap();
    let key = fs::read_to_string(first.layout.pki("sa.key")).unwrap();
    let body = key.lines().nth(1).unwrap();
    assert!(text.matches("sha256:").count() == 4 && !text.contains(body), "{text}");
}

#[tokio::test]
async fn what_differs_is_named() {
    for (index, names) in [["ca"], ["client-ca"], ["sa"]].into_iter().enumerate() {
        let scene = Scene::new();
        let (first, second) = (scene.own("first"), scene.own("second"));
        scene.start(&first).await.unwrap();
        let same: Vec<_> = SHARED
            .into_iter()
            .filter(|file| !file.starts_with(&format!("{}.", names[0])))
            .collect();
        copy(&first, &second, &same);
        let said = scene.refused(&second).await;
        let wanted = PARTS[index].files();
        assert!(said.contains(&format!("there is no {}.", wanted[0])), "{said}");
        // With one of its own in that place.
        let foreign = scene.own("foreign");
        let elsewhere = Scene::new();
        elsewhere.start(&foreign).await.unwrap();
        copy(&foreign, &second, &wanted);
        let said = scene.refused(&second).await;
        assert!(said.contains(&format!("not theirs: {}.", wanted[0])), "{said}");
        for file in SHARED {
            let told = said.contains(&first.layout.pki(file).display().to_string());
            assert_eq!(told, wanted.contains(&file), "{file}: {said}");
        }
    }
}

#[tokio::test]
async fn of_two_first_servers_one_is_refused() {
    let scene = Scene::new();
    let (one, two) = (scene.own("one"), scene.own("two"));
    let elsewhere = Scene::new();
    elsewhere.start(&one).await.unwrap();
    Scene::new().start(&two).await.unwrap();
    let (first, second) =
        tokio::join!(one.settle(&*scene.store, "X"), two.settle(&*scene.store, "X"));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test]
async fn what_flags_name_is_theirs_and_the_next_server_completes_the_record() {
    let scene = Scene::new();
    let own = scene.own("own");
    scene.start(&own).await.unwrap();

    let other = Scene::new();
    let keys = ServiceAccountKeys::of(&own.layout);
    let named = Own { serving: false, clients: false, accounts: Some(keys), ..other.own("named") };
    other.start(&named).await.unwrap();
    // The serving authority is not recorded yet; the key of tokens is.
    let said = other.refused(&other.own("empty")).await;
    assert!(said.contains("there is no sa.pub."), "{said}");
    let joins = other.own("joins");
    copy(&own, &joins, &SHARED);
    other.start(&joins).await.unwrap();
    let said = other.refused(&other.own("empty")).await;
    let all = "there is no ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt.";
    assert!(said.contains(all), "{said}");
}

#[tokio::test]
async fn keys_of_tokens_change_one_server_after_the_other() {
    let scene = Scene::new();
    let (old, new) = (scene.own("old"), scene.own("new"));
    scene.start(&old).await.unwrap();
    Scene::new().start(&new).await.unwrap();
    let with = |signing: &Own, verifying: &[&Own]| {
        let verifying = verifying.iter().map(|own| own.layout.pki("sa.pub")).collect();
        let signing = signing.layout.pki("sa.key");
        Own { accounts: Some(ServiceAccountKeys { signing, verifying }), ..scene.own("old") }
    };
    scene.start(&with(&old, &[&old, &new])).await.unwrap();
    scene.start(&with(&new, &[&old, &new])).await.unwrap();
    let said = scene.refused(&with(&new, &[&new])).await;
    assert!(said.contains("--service-account-key-file") && !said.contains("cp -p"), "{said}");
    let replaces = Own { replaces: true, ..with(&new, &[&old, &new]) };
    scene.start(&replaces).await.unwrap();
    scene.start(&with(&new, &[&new])).await.unwrap();
    scene.refused(&with(&old, &[&old])).await;
}

#[tokio::test]
async fn authorities_are_replaced_on_purpose_only() {
    let scene = Scene::new();
    let (old, new) = (scene.own("old"), scene.own("new"));
    scene.start(&old).await.unwrap();
    scene.start(&Own { replaces: true, ..scene.own("new") }).await.unwrap();
    scene.start(&new).await.unwrap();
    let said = scene.refused(&old).await;
    assert!(said.contains(&format!("{}/ca.key", new.pki().display())), "{said}");
    assert!(said.contains("--record-authorities"), "{said}");
}

#[test]
fn files_of_other_machines_are_fetched_from_there() {
    let own = Own { host: Some("beta".into()), ..Scene::new().own("my data") };
    let record = Record::of(Some("alpha".into()), "/var/lib/windlass/pki".into());
    let text = own.commands(&record, &["sa.pub"]);
    let here = own.pki();
    let here = here.display();
    assert_eq!(
        text,
        format!(
            "  mkdir -p -m 700 '{here}'\n  scp -p alpha:/var/lib/windlass/pki/sa.pub '{here}'/"
        )
    );
    let unnamed = Own { host: None, ..own };
    let record = Record::of(None, record.directory);
    assert!(unnamed.commands(&record, &["sa.pub"]).contains(" SERVER:/var/lib/"));
}

#[test]
fn a_record_of_another_version_is_not_guessed_at() {
    let record = Record::of(None, "/d".into());
    assert_eq!(Record::read(&record.to_json().unwrap()).unwrap(), record);
    let newer = br#"{"version":2,"directory":"/d"}"#;
    assert!(Record::read(newer).unwrap_err().to_string().contains("version 2"));
    assert!(Record::read(b"rubbish").is_err());
}

/// What a release without the CA of kubelets' serving certificates has recorded and left on disk.
async fn forget_kubelet_serving(scene: &Scene, own: &Own) {
    for file in Part::KubeletServing.files() {
        let _ = fs::remove_file(own.layout.pki(file));
    }
    if let Some((mut record, revision)) = read(&*scene.store).await.unwrap() {
        record.set(Part::KubeletServing, None);
        let change = Change::Put(record.to_json().unwrap().into());
        let write = Write { key: KEY.into(), expect: Expect::Revision(revision), change };
        scene.store.commit(write).await.unwrap();
    }
}

#[tokio::test]
async fn servers_of_an_older_release_are_upgraded_one_after_the_other() {
    let scene = Scene::new();
    let (first, second) = (scene.own("first"), scene.own("second"));
    scene.start(&first).await.unwrap();
    copy(&first, &second, &SHARED);
    scene.start(&second).await.unwrap();
    forget_kubelet_serving(&scene, &second).await;
    forget_kubelet_serving(&scene, &first).await;

    let file = |own: &Own| own.layout.pki(Part::KubeletServing.files()[0]);
    let recorded = scene.start(&first).await.unwrap().expect("it is recorded");
    assert!(file(&first).exists());
    // The second starts without one and does not make one that nobody else would trust.
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(!file(&second).exists());
    let check = recorded_ca(recorded.clone());
    let ca = |own: &Own| Certificate::from_pem(&fs::read(file(own)).unwrap()).unwrap();
    assert!(check(&ca(&first)).is_ok());
    // It starts with another one, too, and does not use it.
    let elsewhere = Scene::new();
    let foreign = elsewhere.own("foreign");
    elsewhere.start(&foreign).await.unwrap();
    copy(&foreign, &second, &Part::KubeletServing.files());
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(check(&ca(&second)).is_err());
    copy(&first, &second, &Part::KubeletServing.files());
    assert_eq!(scene.start(&second).await.unwrap().as_ref(), Some(&recorded));
    assert!(check(&ca(&second)).is_ok());
    // Nor does one that cannot be read keep it from starting.
    fs::write(file(&second), "garbage").unwrap();
    scene.start(&second).await.unwrap();
}
