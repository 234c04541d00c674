use std::fs;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;

/// A watched projections file. Time is virtual, so polls cause no real delay.
struct FileWatchFixture {
    dir: TempDir,
    reads: Arc<AtomicUsize>,
    projections: watch::Receiver<Arc<HostProjections>>,
    error: watch::Receiver<Option<String>>,
    task: JoinHandle<Infallible>,
}

impl FileWatchFixture {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("projections.yaml");
        fs::write(&path, text).unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let files = FileSystem::with_hook(Arc::new(move |_, read| {
            counted.fetch_add(usize::from(read.ends_with("projections.yaml")), SeqCst);
            io::Result::Ok(())
        }));
        let held = Arc::new(ReloadableFile::new(HostProjections::new()));
        let (projections, error) = (held.subscribe(), held.subscribe_error());
        let task = tokio::spawn(watch_file(path, files, held));
        Self { dir, reads, projections, error, task }
    }

    fn write(&self, name: &str, text: &str) {
        // Like an editor: replaced by a rename.
        let (path, new) = (self.dir.path().join(name), self.dir.path().join("new"));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
    }

    async fn names(&mut self) -> Vec<String> {
        self.projections.changed().await.unwrap();
        let found = self.projections.borrow_and_update();
        found.iter().map(|projection| projection.name.clone()).collect()
    }

    async fn error(&mut self) -> Option<String> {
        self.error.changed().await.unwrap();
        self.error.borrow_and_update().clone()
    }
}

impl Drop for FileWatchFixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn file(names: &[&str], more: &str) -> String {
    let one = |name: &&str| {
        format!(
            "- name: {name}\n  directory: /{name}\n  \
             projected: {{sources: [{{clusterTrustBundle: {{name: a, path: ca.pem}}}}]}}\n{more}"
        )
    };
    let all = names.iter().map(one).collect::<String>();
    format!("apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n{all}")
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_reloaded() {
    let mut world = FileWatchFixture::new(&file(&["a"], ""));
    assert_eq!(world.names().await, ["a"]);
    world.write("projections.yaml", &file(&["a", "b"], ""));
    assert_eq!(world.names().await, ["a", "b"]);
    world.write("projections.yaml", &file(&["b"], ""));
    assert_eq!(world.names().await, ["b"]);
    assert!(!world.error.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_invalid_file_changes_nothing_and_is_reported() {
    let mut world = FileWatchFixture::new(&file(&["a"], ""));
    assert_eq!(world.names().await, ["a"]);
    world.write("projections.yaml", &file(&["A"], ""));
    assert!(
        world
            .error()
            .await
            .unwrap()
            .contains("projections.yaml:4:9: projections[0].name: \"A\" is not valid: ")
    );
    world.write("projections.yaml", "");
    assert!(world.error().await.unwrap().ends_with("projections.yaml: is empty"));
    fs::remove_file(world.dir.path().join("projections.yaml")).unwrap();
    assert!(world.error().await.unwrap().ends_with("projections.yaml: file not found"));
    assert!(!world.projections.has_changed().unwrap());
    world.write("projections.yaml", &file(&["a"], ""));
    assert_eq!(world.error().await, None);
    assert!(!world.projections.has_changed().unwrap(), "it is the same as before");
}

#[tokio::test(start_paused = true)]
async fn another_password_is_another_projection() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    let more = format!(
        "  keystores: [{{path: t.jks, format: JKS, trustAnchorsPath: ca.pem, passwordFile: {}}}]\n",
        password.display()
    );
    let mut world = FileWatchFixture::new(&file(&["a"], &more));
    assert_eq!(world.names().await, ["a"]);
    let found = |world: &FileWatchFixture| {
        let projections = world.projections.borrow();
        projections[0].stores[0].kind.passphrase().unwrap().password().is_ok()
    };
    assert!(!found(&world));
    fs::write(&password, "changeit\n").unwrap();
    assert_eq!(world.names().await, ["a"]);
    assert!(found(&world));
    let before = world.projections.borrow().clone();
    fs::write(&password, "otherword\n").unwrap();
    assert_eq!(world.names().await, ["a"]);
    assert_ne!(before, *world.projections.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_stays_is_not_read_again() {
    let mut world = FileWatchFixture::new(&file(&["a"], ""));
    assert_eq!(world.names().await, ["a"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reads = world.reads.load(SeqCst);
    assert!(reads <= 2, "read {reads} times");
    assert!(!world.projections.has_changed().unwrap());
}
