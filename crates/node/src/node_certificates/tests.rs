//! Managers against a scripted server, in virtual time.

use std::io::ErrorKind;
use std::time::Duration;

use time::Duration as Span;
use tokio::time::{Instant, sleep};
use windlass_testkit::{InjectedFault, SigningPolicy};

use super::*;
use crate::credential_monitor::CertificateRejection;
use crate::sources::bundles::BundleView;
use crate::testing::node::RotationTestNode;
use crate::testing::{AUTHORITY, CertificateFixture, DiskFailure, FailingDisk, IdentityFixture as _, START};
use crate::volume::plan::OptionalApi;
use crate::volume::tainted_authority::{TaintedAuthority, renewal_of};
use crate::volume::trust_anchors::{TrustBundle, TrustBundleIndex};
use windlass_runtime::durable::FileSystem;

const DAY: Duration = Duration::from_secs(86_400);

fn is_pausing(report: &NodeCertificateReport) -> bool {
    matches!(report.doing, ManagerActivity::Pausing { .. })
}

fn is_waiting(report: &NodeCertificateReport) -> bool {
    matches!(report.doing, ManagerActivity::Waiting { .. })
}

fn trouble_is(cause: FailureCause) -> impl Fn(&NodeCertificateReport) -> bool {
    move |report| report.trouble.as_ref().is_some_and(|trouble| trouble.cause == cause)
}

fn all_differ(created: &[Vec<u8>]) -> bool {
    let mut keys = created.to_vec();
    keys.sort_unstable();
    keys.dedup();
    keys.len() == created.len()
}

#[tokio::test(start_paused = true)]
async fn obtains_one_and_rotates_with_a_new_key_each_time() {
    let node = RotationTestNode::new();
    let running = node.start();
    let mut notices = running.manager.notices();
    let mut held = running.ready().await;
    assert_eq!(node.server.callers()[0], "bootstrap");
    let own_from = node.server.callers().len();
    for _ in 0..30 {
        let due = held.leaf().not_before() + Span::DAY * 0.8;
        held = running.after(&held).await;
        assert!((due..due + Span::seconds(11)).contains(&node.now()), "{due} {}", node.now());
    }
    assert_eq!(node.server.created().len(), 31, "one request for each certificate");
    assert!(all_differ(&node.server.created_keys()), "and a key");
    assert!(node.server.callers()[own_from..].iter().all(|caller| *caller == "own"));
    let first = notices.recv().await.unwrap();
    assert!(matches!(first, RotationNotice::Stored { age: None, .. }), "{first:?}");
    let second = notices.recv().await.unwrap();
    let RotationNotice::Stored { age: Some(age), .. } = second else { panic!("{second:?}") };
    assert!(age >= Span::DAY * 0.8);
    assert_eq!(node.on_disk().unwrap().leaf().der(), held.leaf().der());
    running.until(|report| report.doing == ManagerActivity::Holding && report.stored == 31).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_resumes_the_pending_request() {
    let node = RotationTestNode::new();
    for policy in [SigningPolicy::Wait, SigningPolicy::Approve] {
        node.server.policy(policy.clone());
        for _ in 0..3 {
            let running = node.start();
            running.until(is_waiting).await;
            running.kill().await;
        }
    }
    let running = node.start();
    running.until(is_waiting).await;
    node.server.decide(SigningPolicy::Sign(node.signer(Span::DAY)));
    let held = running.ready().await;
    assert_eq!(node.server.created_keys(), [held.key().public_key().as_der()]);
    running.kill().await;
    // Nothing is requested while there is a valid certificate.
    let running = node.start();
    assert_eq!(running.ready().await.leaf().der(), held.leaf().der());
    running.until(|report| report.doing == ManagerActivity::Holding).await;
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pending_request_is_not_created_again() {
    let node = RotationTestNode::new();
    node.server.policy(SigningPolicy::Wait);
    let running = node.start();
    running.until(trouble_is(FailureCause::NotDecided)).await;
    assert!((node.now() - START) >= Span::minutes(15));
    sleep(DAY).await;
    assert_eq!(node.server.created().len(), 1);
    assert!(node.server.calls("create") <= 100, "{}", node.server.calls("create"));
    running.until(is_waiting).await;
    let trouble = running.manager.report().trouble.unwrap();
    assert!(trouble.message.ends_with("still waiting to be approved"), "{trouble}");
    let not_ready = running.manager.ready(Duration::from_secs(300)).await.unwrap_err();
    assert_eq!(not_ready.trouble, Some(trouble));
    node.server.decide(SigningPolicy::Sign(node.signer(Span::DAY)));
    running.ready().await;
    running.until(|report| report.trouble.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_retried_later_with_a_new_key() {
    for (kind, cause) in [("Denied", FailureCause::RequestDenied), ("Failed", FailureCause::RequestFailed)] {
        let node = RotationTestNode::new();
        node.server.policy(SigningPolicy::Refuse(kind));
        let running = node.start();
        running.until(trouble_is(cause)).await;
        running.kill().await;
        // Repeated restarts cause no additional requests.
        for _ in 0..10 {
            let running = node.start();
            running.until(|report| trouble_is(cause)(report) && is_pausing(report)).await;
            sleep(Duration::from_secs(30)).await;
            running.kill().await;
        }
        assert_eq!(node.server.created().len(), 1);
        let running = node.start();
        sleep(DAY).await;
        let created = node.server.created_keys();
        assert!((20..=32).contains(&created.len()) && all_differ(&created), "{}", created.len());
        let message = running.manager.report().trouble.unwrap().message;
        assert!(message.ends_with("Because: of the script"), "{message}");
        node.server.policy(SigningPolicy::Sign(node.signer(Span::DAY)));
        running.ready().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_deleted_or_replaced_is_noticed() {
    let node = RotationTestNode::new();
    node.server.policy(SigningPolicy::Wait);
    let running = node.start();
    running.until(is_waiting).await;
    let name = node.server.names().remove(0);
    node.server.delete(&name);
    running.until(trouble_is(FailureCause::RequestGone)).await;
    running.until(is_waiting).await;
    assert_eq!(node.server.names(), std::slice::from_ref(&name), "the same key makes the same name");
    node.server.replace(&name);
    running.until(is_pausing).await;
    running.until(is_waiting).await;
    assert_eq!(node.server.created().len(), 2, "the one that is there will do");
    node.server.decide(SigningPolicy::Sign(node.signer(Span::DAY)));
    running.ready().await;
}

#[tokio::test(start_paused = true)]
async fn recovers_from_every_server_fault() {
    let table = [
        (InjectedFault::Status(401), FailureCause::Unauthorized),
        (InjectedFault::Status(403), FailureCause::Forbidden),
        (InjectedFault::Status(404), FailureCause::NotServed),
        (InjectedFault::Status(422), FailureCause::Unwritable),
        (InjectedFault::Status(429), FailureCause::ServerError),
        (InjectedFault::Status(500), FailureCause::ServerError),
        (InjectedFault::Status(503), FailureCause::ServerError),
        (InjectedFault::Cut, FailureCause::Unreachable),
        (InjectedFault::Lost, FailureCause::Unreachable),
        (InjectedFault::Silence, FailureCause::Unreachable),
    ];
    for (fault, cause) in table {
        let node = RotationTestNode::new();
        // A certificate issued a day ago is still valid.
        node.server.policy(SigningPolicy::Sign(node.signer(Span::days(9))));
        node.server.always("create", fault);
        let running = node.start();
        running.until(trouble_is(cause)).await;
        sleep(DAY).await;
        // Delays of at most a minute, with jitter down to three quarters.
        assert!(node.server.calls("create") <= 2000, "{fault:?}: {}", node.server.calls("create"));
        node.server.heal();
        let (healed, patience) = (Instant::now(), Duration::from_secs(80));
        running.ready().await;
        let quick = healed.elapsed() < patience || cause == FailureCause::Unwritable;
        assert!(quick, "{fault:?}: {:?}", healed.elapsed());
        assert_eq!(node.server.created().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_after_every_server_error() {
    for verb in ["list", "watch", "get"] {
        for fault in [
            InjectedFault::Status(401),
            InjectedFault::Status(403),
            InjectedFault::Status(500),
            InjectedFault::Cut,
        ] {
            let node = RotationTestNode::new();
            node.server.policy(SigningPolicy::Wait);
            node.server.always(verb, fault);
            let running = node.start();
            node.server.until(|server| server.created().len() == 1).await;
            sleep(Duration::from_secs(3600)).await;
            node.server.decide(SigningPolicy::Sign(node.signer(Span::DAY)));
            node.server.heal();
            let healed = Instant::now();
            running.ready().await;
            let took = healed.elapsed();
            assert!(took < Duration::from_secs(80), "{verb} {fault:?}: {took:?}");
            assert_eq!(node.server.created().len(), 1, "{verb} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_certificate_triggers_bootstrap() {
    let node = RotationTestNode::new();
    let held = CertificateFixture::client(START - Span::hours(23));
    let held = held.identity(PrivateKey::generate().unwrap());
    node.store(FileSystem::default()).save(&held, START).unwrap();
    node.server.fault("create", InjectedFault::Status(401));
    let running = node.start();
    running.after(&held).await;
    let callers = node.server.callers();
    assert_eq!((callers[0], callers[1]), ("own", "bootstrap"), "{callers:?}");
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn recovers_after_long_absence() {
    let node = RotationTestNode::new();
    let old = CertificateFixture::client(START - Span::days(30));
    let old = old.identity(PrivateKey::generate().unwrap());
    node.store(FileSystem::default()).save(&old, START - Span::days(30)).unwrap();
    *node.no_bootstrap.lock().unwrap() = Some("put a bootstrap kubeconfig there".into());
    // An expired certificate is rejected.
    node.server.always("create", InjectedFault::Status(401));
    let running = node.start();
    running.until(trouble_is(FailureCause::NoCredential)).await;
    let message = running.manager.report().trouble.unwrap().message;
    assert_eq!(message, "put a bootstrap kubeconfig there");
    sleep(DAY).await;
    assert!(running.manager.current().borrow().is_some(), "it may still be good for others");
    assert_eq!(running.manager.report().held.unwrap().expires, old.expires());
    *node.no_bootstrap.lock().unwrap() = None;
    node.server.heal();
    let appeared = Instant::now();
    running.ready().await;
    assert!(appeared.elapsed() < Duration::from_secs(80));
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_drops_names_is_retried_with_backoff() {
    let mut node = RotationTestNode::new();
    node.purpose = CertificatePurpose::Serving;
    let serving = CertificateTemplate::serving("n1", ["n1".to_owned()], ["192.0.2.1".parse().unwrap()]);
    node.templates.send_replace(serving);
    node.server.policy(SigningPolicy::Sign(node.forgetful_signer()));
    let running = node.start();
    let held = running.ready().await;
    assert!(held.leaf().alt_names().is_empty(), "it is better than none");
    sleep(DAY).await;
    let created = node.server.created_keys();
    assert!((20..=32).contains(&created.len()) && all_differ(&created), "{}", created.len());
    let report = running.manager.report();
    assert_eq!(report.held.unwrap().lacking.unwrap(), "the name n1, the address 192.0.2.1");
    assert_eq!(report.trouble.unwrap().cause, FailureCause::NamesMissing);
    node.server.policy(SigningPolicy::Sign(node.signer(Span::DAY)));
    running.until(|report| report.trouble.is_none()).await;
    assert_eq!(running.ready().await.leaf().alt_names().dns_names, ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_for_another_key_is_not_used() {
    let node = RotationTestNode::new();
    node.server.policy(SigningPolicy::Sign(Arc::new(|_| {
        CertificateFixture::client(START).pem(PrivateKey::generate().unwrap().public_key())
    })));
    let running = node.start();
    running.until(trouble_is(FailureCause::BadCertificate)).await;
    let message = running.manager.report().trouble.unwrap().message;
    assert!(message.ends_with("the certificate belongs to another key"), "{message}");
    node.server.policy(SigningPolicy::Sign(Arc::new(|_| "nothing".into())));
    sleep(DAY).await;
    assert!(node.server.created().len() <= 32 && node.on_disk().is_none());
    node.server.policy(SigningPolicy::Sign(node.signer(Span::DAY)));
    running.ready().await;
}

#[tokio::test(start_paused = true)]
async fn follows_the_names() {
    let mut node = RotationTestNode::new();
    node.purpose = CertificatePurpose::Serving;
    let named = |name: &str| CertificateTemplate::serving("n1", [name.to_owned()], []);
    node.templates.send_replace(None);
    let running = node.start();
    running.until(|report| report.doing == ManagerActivity::Unspecified).await;
    sleep(DAY).await;
    assert_eq!(node.server.calls("create"), 0, "nothing is known yet");
    node.templates.send_replace(named("a"));
    let first = running.ready().await;
    let changed = Instant::now();
    node.templates.send_replace(named("b"));
    let second = running.after(&first).await;
    assert_eq!(second.leaf().alt_names().dns_names, ["b"]);
    assert!(changed.elapsed() < Duration::from_secs(1), "{:?}", changed.elapsed());
    // While a request is pending, and across a restart.
    node.server.policy(SigningPolicy::Wait);
    node.templates.send_replace(named("c"));
    running.until(is_waiting).await;
    running.kill().await;
    node.templates.send_replace(named("d"));
    let running = node.start();
    running.until(is_waiting).await;
    node.server.policy(SigningPolicy::Sign(node.signer(Span::DAY)));
    node.templates.send_replace(named("e"));
    let third = running.after(&second).await;
    assert_eq!(third.leaf().alt_names().dns_names, ["e"]);
    assert!(all_differ(&node.server.created_keys()));
    assert_eq!(node.server.created().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_does_not_make_a_storm() {
    let node = RotationTestNode::new();
    let running = node.start();
    let held = running.ready().await;
    node.set_skew(Span::days(400));
    running.until(trouble_is(FailureCause::BadCertificate)).await;
    sleep(DAY / 2).await;
    assert!(node.server.created().len() <= 20, "{}", node.server.created().len());
    node.set_skew(Span::ZERO);
    running.until(|report| report.trouble.is_none()).await;
    node.set_skew(Span::days(-400));
    sleep(DAY / 4).await;
    node.set_skew(Span::ZERO);
    let next = running.after(&held).await;
    assert!(next.is_valid_at(node.now()));
}

#[tokio::test(start_paused = true)]
async fn runs_once_and_stops_on_shutdown() {
    let node = RotationTestNode::new();
    let setup = node.setup(FileSystem::default());
    let loaded = setup.store.load(node.now());
    let manager = NodeCertificateManager::new(setup, loaded);
    let (down, shutdown) = watch::channel(false);
    let mut current = manager.current();
    tokio::join!(manager.run(shutdown.clone()), async {
        current.wait_for(Option::is_some).await.unwrap();
        manager.run(shutdown).await;
        down.send_replace(true);
    });
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_reported_until_it_has_space() {
    for (kind, cause) in [
        (ErrorKind::StorageFull, FailureCause::DiskFull),
        (ErrorKind::ReadOnlyFilesystem, FailureCause::DiskFailed),
    ] {
        let node = RotationTestNode::new();
        let held = CertificateFixture::client(START - Span::hours(22));
        let held = held.identity(PrivateKey::generate().unwrap());
        node.store(FileSystem::default()).save(&held, START).unwrap();
        let breaking = FailingDisk::fail_at(0, DiskFailure::Fail(kind));
        let running = node.start_on(breaking.files());
        running.until(trouble_is(cause)).await;
        let message = running.manager.report().trouble.unwrap().message;
        assert!(message.contains("cannot create") && message.contains("kubelet-client.key"), "{message}");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(node.server.calls("create"), 0, "not without a key that is on disk");
        let current = running.manager.current().borrow().clone().unwrap();
        assert_eq!(current.leaf().der(), held.leaf().der());
        breaking.repair();
        running.after(&held).await;
        running.until(|report| report.trouble.is_none()).await;
        assert_eq!(node.server.created().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_certificate_is_replaced_as_soon_as_there_is_a_bootstrap_credential() {
    let node = RotationTestNode::new();
    *node.no_bootstrap.lock().unwrap() = None;
    let running = node.start();
    let revoked = running.ready().await;
    *node.no_bootstrap.lock().unwrap() = Some("no bootstrap kubeconfig is given".into());
    let since = node.now();
    node.rejections.send_replace(Some(CertificateRejection { identity: revoked.clone(), since }));
    running.until(trouble_is(FailureCause::NoCredential)).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(node.server.created().len(), 1, "nothing is requested with the rejected certificate");
    *node.no_bootstrap.lock().unwrap() = None;
    let held = running.after(&revoked).await;
    assert!(node.now() - since < Span::seconds(600 + 70), "{}", node.now());
    assert_ne!(held.key().public_key().as_der(), revoked.key().public_key().as_der());
    assert!(node.server.callers().iter().all(|caller| *caller == "bootstrap"), "{:?}", node.server.callers());
    assert_eq!(node.server.created().len(), 2);
    running.until(|report| report.trouble.is_none() && report.rejections == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_a_tainted_authority_is_renewed_in_the_window() {
    let node = RotationTestNode::new();
    let running = node.start();
    let first = running.ready().await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(node.server.created().len(), 1);
    // A bundle of another signer changes nothing.
    for (signer, is_renewed) in [("example.com/web", false), (CertificatePurpose::Client.signer(), true)] {
        let (since, window) = (node.now(), Span::minutes(10));
        let tainted = [(AUTHORITY.certificate().authority_id(), TaintedAuthority { since, window })].into();
        let bundle = TrustBundle { tainted, ..TrustBundle::new("b", 1, signer, Default::default(), "") };
        let mut bundles = TrustBundleIndex::default();
        bundles.set(bundle);
        let view = BundleView { bundles: OptionalApi::Synced(bundles), arrivals: Default::default() };
        node.bundles.send_replace(Arc::new(view));
        if is_renewed {
            let due = renewal_of(first.leaf(), &node.bundles.borrow().taints(signer)).unwrap();
            let second = running.after(&first).await;
            assert!((due..due + Span::seconds(11)).contains(&node.now()), "{due} {}", node.now());
            assert_ne!(second.key().public_key().as_der(), first.key().public_key().as_der());
        } else {
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(node.server.created().len(), 1);
        }
    }
    // Its successor is of the same authority.
    sleep(Duration::from_secs(3600)).await;
    assert!((3..=10).contains(&node.server.created().len()), "{}", node.server.created().len());
}
