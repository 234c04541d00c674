//! Runs of a node that is killed, or whose disk fails, at each disk operation.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use time::Duration as Span;
use tokio::sync::watch;
use windlass_testkit::SigningPolicy;

use crate::bootstrap::{BootstrapCredentials, InitialCredential};
use crate::key_pair::CertificateKeyPair;
use crate::node_certificates::NodeCertificateManager;
use crate::testing::node::RotationTestNode;
use crate::testing::{DiskFailure, FailingDisk, START, client_identity};
use windlass_runtime::durable::{self, FileSystem};

/// State of a node before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurvivalScenario {
    /// Only a bootstrap kubeconfig, no certificate.
    Bootstrap,
    /// A certificate that is due for rotation.
    Rotation,
    /// A certificate that has already expired.
    Absence,
    /// The current file is broken; the previous certificate is valid but due for rotation.
    Corruption,
    /// A denied request, so that a new key is needed.
    Denial,
}

const SCENARIOS: [SurvivalScenario; 5] = [
    SurvivalScenario::Bootstrap,
    SurvivalScenario::Rotation,
    SurvivalScenario::Absence,
    SurvivalScenario::Corruption,
    SurvivalScenario::Denial,
];

struct SurvivalFixture {
    node: RotationTestNode,
    scenario: SurvivalScenario,
    /// The usable certificate at the start, if there is one.
    old: Option<CertificateKeyPair>,
}

impl SurvivalFixture {
    async fn new(scenario: SurvivalScenario) -> Self {
        let node = RotationTestNode::new();
        let bootstrap = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": "https://192.0.2.1:6443"}}],
            "users": [{"name": "u", "user": {"token": "abcdef.0123456789abcdef"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        fs::write(node.dir().join("bootstrap"), bootstrap.to_string()).unwrap();
        let store = node.store(FileSystem::default());
        let aged = |hours| client_identity(START - Span::hours(hours));
        let mut world = Self { node, scenario, old: None };
        match scenario {
            SurvivalScenario::Bootstrap => {}
            SurvivalScenario::Rotation => world.old = Some(aged(22)),
            SurvivalScenario::Absence => store.save(&aged(48), START - Span::hours(48)).unwrap(),
            SurvivalScenario::Corruption => world.old = Some(aged(22)),
            SurvivalScenario::Denial => {
                world.node.server.policy(SigningPolicy::Refuse("Denied"));
                let running = world.node.start();
                running.until(|report| report.trouble.is_some()).await;
                running.kill().await;
                world.node.server.policy(SigningPolicy::Sign(world.node.signer(Span::DAY)));
            }
        }
        if let Some(old) = &world.old {
            store.save(old, START - Span::hours(22)).unwrap();
        }
        if scenario == SurvivalScenario::Corruption {
            store.save(&aged(1), START - Span::HOUR).unwrap();
            fs::write(store.current_path(), "half of a certif").unwrap();
        }
        world
    }

    fn boot(&self, files: FileSystem) -> BootstrapCredentials {
        let dir = self.node.dir();
        let store = self.node.store(files.clone());
        BootstrapCredentials::new(&dir.join("kubeconfig"), Some(&dir.join("bootstrap")), store, files)
    }

    /// Runs what the command does, until there is a fresh certificate and a kubeconfig.
    async fn live(&self, files: FileSystem) {
        let boot = self.boot(files.clone());
        // The manager tries regardless of the result.
        let loaded = boot.prepare(self.node.now()).loaded;
        let manager = NodeCertificateManager::new(self.node.setup(files), loaded);
        let (_down, shutdown) = watch::channel(false);
        let mut reports = manager.reports();
        let goal = async {
            let now = || self.node.now();
            let is_new = |report: &crate::node_certificates::NodeCertificateReport| {
                report.held.as_ref().is_some_and(|held| held.rotate_at > now())
            };
            reports.wait_for(is_new).await.unwrap();
            while let Err(error) = boot.write_kubeconfig(now()) {
                tracing::debug!("{error}");
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            // The certificate may be in use before it is stored.
            reports.wait_for(|report| report.trouble.is_none()).await.unwrap();
        };
        tokio::select! {
            () = manager.run(shutdown) => panic!("it ended"),
            () = goal => {}
        }
    }

    /// Runs the same on a failing disk. Returns whether it completed.
    async fn live_on(&self, breaking: &Arc<FailingDisk>) -> bool {
        tokio::select! {
            biased;
            () = breaking.reached.notified() => false,
            () = self.live(breaking.files()) => true,
        }
    }

    /// Checks the invariant: the current certificate can be used.
    fn check_current(&self, what: &str) {
        let current = self.node.store(FileSystem::default()).current_path();
        let current = fs::read(current).ok().and_then(|text| CertificateKeyPair::from_pem(&text).ok());
        let good = current.is_some_and(|held| held.is_valid_at(self.node.now()));
        assert!(good || self.scenario != SurvivalScenario::Rotation, "{what}: nothing to use");
    }

    fn check_end(&self, what: &str) {
        let store = self.node.store(FileSystem::default());
        let current = CertificateKeyPair::from_pem(&fs::read(store.current_path()).unwrap()).unwrap();
        assert!(current.is_valid_at(self.node.now()), "{what}");
        let link = fs::read_link(store.current_path()).unwrap();
        assert!(link.to_str().unwrap().starts_with("kubelet-client-2026-"), "{what}: {link:?}");
        let created = self.node.server.created_keys();
        let expected = if self.scenario == SurvivalScenario::Denial { 2 } else { 1 };
        assert_eq!(created.len(), expected, "{what}: requests");
        let key = current.key().public_key().as_der();
        assert_eq!(created.last().unwrap(), key, "{what}: the key that was asked for");
        assert!(created.iter().filter(|created| *created == key).count() == 1, "{what}");
        let boot = self.boot(FileSystem::default());
        assert!(!boot.write_kubeconfig(self.node.now()).unwrap(), "{what}: the kubeconfig is good");
        assert_eq!(boot.prepare(self.node.now()).source.unwrap(), InitialCredential::Managed, "{what}");
        let names = FileSystem::default().list_names(&self.node.dir().join("pki")).unwrap();
        let rest = |name: &&String| durable::is_staged(name) || name.ends_with(".tmp");
        assert_eq!(names.iter().find(rest), None, "{what}");
        let pairs = names.iter().filter(|name| name.ends_with(".pem")).count();
        assert!(pairs <= 3, "{what}: {names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_survives_being_killed_at_any_operation() {
    let mut lives = 0;
    for scenario in SCENARIOS {
        for at in 0.. {
            let world = SurvivalFixture::new(scenario).await;
            let breaking = FailingDisk::fail_at(at, DiskFailure::Kill);
            let ended = world.live_on(&breaking).await;
            let what = format!("{scenario:?}, killed at {at}");
            world.check_current(&what);
            world.live(FileSystem::default()).await;
            world.check_end(&what);
            lives += 1;
            if ended {
                assert!(at > 20, "{scenario:?}: {at} operations");
                break;
            }
        }
    }
    assert!(lives > 150, "{lives}");
}

#[tokio::test(start_paused = true)]
async fn a_node_survives_being_killed_twice() {
    let mut lives = 0;
    for scenario in [SurvivalScenario::Bootstrap, SurvivalScenario::Rotation] {
        for first in (0..).step_by(2) {
            let mut ended = false;
            for second in (0..).step_by(3) {
                let world = SurvivalFixture::new(scenario).await;
                ended = world.live_on(&FailingDisk::fail_at(first, DiskFailure::Kill)).await;
                let ended_again = world.live_on(&FailingDisk::fail_at(second, DiskFailure::Kill)).await;
                let what = format!("{scenario:?}, killed at {first} and at {second}");
                world.check_current(&what);
                world.live(FileSystem::default()).await;
                world.check_end(&what);
                lives += 1;
                if ended_again || ended {
                    break;
                }
            }
            if ended {
                break;
            }
        }
    }
    assert!(lives > 350, "{lives}");
}

#[tokio::test(start_paused = true)]
async fn a_node_survives_a_disk_that_fails_at_any_operation() {
    for scenario in SCENARIOS {
        for kind in [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem] {
            for at in 0.. {
                let world = SurvivalFixture::new(scenario).await;
                let breaking = FailingDisk::fail_at(at, DiskFailure::Fail(kind));
                let what = format!("{scenario:?}, {kind} at {at}");
                // The same process continues once the disk is repaired.
                let repair = async {
                    breaking.reached.notified().await;
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    world.check_current(&what);
                    breaking.repair();
                    std::future::pending().await
                };
                tokio::select! {
                    () = world.live(breaking.files()) => {}
                    () = repair => {}
                }
                world.live(FileSystem::default()).await;
                world.check_end(&what);
                if !breaking.was_hit() {
                    assert!(at > 20, "{scenario:?}: {at} operations");
                    break;
                }
            }
        }
    }
}
