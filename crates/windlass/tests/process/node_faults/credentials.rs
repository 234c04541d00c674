//! Expired certificates, deleted tokens, and corrupt files.

use std::fs;

use time::Duration;
use windlass_node::status_file::AgentStatus;
use windlass_testkit::{ChildProcess, retry, wait_for};

use super::{NodeHome, assert_current_pair, names, start_server, subject_key, token};
use crate::issue::windlass_ok;
use crate::kubectl::Kubectl;
use crate::node::agent_page;

const GARBAGE: &str = "-----BEGIN CERTIFICATE-----\nnothing\n";

fn problem(status: &AgentStatus) -> &str {
    status.certificates[0].error.as_ref().map_or("", |error| &error.message)
}

fn home(admin: &Kubectl, node: &str) -> NodeHome {
    NodeHome::new(&admin.server, node)
}

/// A node that was offline for a long time.
fn expired(admin: &Kubectl, node: &str) -> NodeHome {
    let home = home(admin, node);
    home.seed(&admin.server, -Duration::days(400), -Duration::days(30));
    home
}

async fn wait_for_recovery(admin: &Kubectl, home: &NodeHome, agent: &ChildProcess, made: usize) {
    home.wait_for_status("it does not come back", |status| {
        status.pid == agent.pid()
            && status.certificates[0].stored_count == 1
            && status.registration.registered
            && problem(status).is_empty()
    });
    assert_current_pair(&admin.server, home, made).await;
    wait_for("no kubeconfig", || home.kubeconfig().exists());
    let own = admin.with_kubeconfig(home.kubeconfig());
    assert!(own.ok(&["auth", "whoami"]).contains(&format!("system:node:{}", home.node)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_needs_a_bootstrap_credential() {
    let admin = start_server(&[]);
    let token = token(&admin);
    let (with, without) = (expired(&admin, "with"), expired(&admin, "without"));
    with.write_bootstrap_kubeconfig(&admin.server, &token, None);
    let agents = [with.start(), without.start()];
    wait_for_recovery(&admin, &with, &agents[0], 1).await;

    let status = without.wait_for_status("it misses nothing", |status| !problem(status).is_empty());
    let (certificate, file) = (without.current(), without.bootstrap());
    for words in [
        "this node has no credential".to_owned(),
        format!("the certificate {} expired at ", certificate.display()),
        format!("put a kubeconfig with a new bootstrap token at {}", file.display()),
        "windlass token create".to_owned(),
    ] {
        assert!(problem(&status).contains(&words), "{words}: {}", problem(&status));
        assert!(agents[1].log().contains(&words), "{words}: {}", agents[1].log());
    }
    let said = without.status_text();
    assert!(said.contains("EXPIRED ") && said.contains("NoCredential"), "{said}");
    let metrics = agent_page(&agents[1], "/metrics");
    let left = "\nkubelet_certificate_manager_client_ttl_seconds -";
    assert!(metrics.contains(left), "{metrics}");
    // The file appears, and nothing else is needed.
    without.write_bootstrap_kubeconfig(&admin.server, &token, None);
    wait_for_recovery(&admin, &without, &agents[1], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_token_is_reported_and_another_one_is_used() {
    let admin = start_server(&[]);
    let (gone, home) = (token(&admin), expired(&admin, "n1"));
    home.write_bootstrap_kubeconfig(&admin.server, &gone, None);
    let (id, secret) = gone.split_once('.').unwrap();
    windlass_ok(&admin, &["token", "delete", id]);
    let agent = home.start();
    let status = home.wait_for_status("it is let in", |status| {
        problem(status).contains("the server rejected the credentials")
    });
    assert!(problem(&status).contains("windlass token create"), "{}", problem(&status));
    for text in [agent.log(), home.status_text(), agent_page(&agent, "/metrics")] {
        assert!(!text.contains(secret), "a secret: {text}");
    }
    assert!(agent_page(&agent, "/metrics").contains("reason=\"Unauthorized\"} 1"));
    home.write_bootstrap_kubeconfig(&admin.server, &token(&admin), None);
    wait_for_recovery(&admin, &home, &agent, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_files_are_set_aside() {
    let admin = start_server(&[]);
    let token = token(&admin);
    // All files are unreadable: the target of the link, a missing link, the key of a request.
    let (current, key) = ("kubelet-client-current.pem", "kubelet-client.key.tmp");
    let mut nodes = Vec::new();
    for (node, broken) in [("target", current), ("file", current), ("key", key)] {
        let home = home(&admin, node);
        if node == "target" {
            home.seed(&admin.server, -Duration::HOUR, Duration::HOUR);
        }
        fs::create_dir_all(home.pki_dir()).unwrap();
        fs::write(home.pki_dir().join(broken), GARBAGE).unwrap();
        home.write_bootstrap_kubeconfig(&admin.server, &token, None);
        nodes.push((home.start(), home));
    }
    for (agent, home) in nodes {
        wait_for_recovery(&admin, &home, &agent, 1).await;
        let aside = names(&home.pki_dir()).into_iter().find(|name| name.contains(".corrupt-"));
        let aside = aside.unwrap_or_else(|| panic!("{:?}", names(&home.pki_dir())));
        assert_eq!(fs::read_to_string(home.pki_dir().join(&aside)).unwrap(), GARBAGE);
        assert!(agent.log().contains(&aside), "no warning: {}", agent.log());
        assert!(home.status_text().contains(&aside), "no warning: {}", home.status_text());
    }
}

/// A corrupt current file next to a valid one: no request is needed.
#[tokio::test(flavor = "multi_thread")]
async fn the_previous_certificate_is_used_as_a_fallback() {
    let admin = start_server(&[]);
    let home = home(&admin, "n1");
    // For the bindings and the server's URL; the token is deleted.
    let gone = token(&admin);
    home.write_bootstrap_kubeconfig(&admin.server, &gone, None);
    windlass_ok(&admin, &["token", "delete", gone.split_once('.').unwrap().0]);
    let before = home.seed(&admin.server, -Duration::HOUR, Duration::days(1));
    let newer = "kubelet-client-2026-02-02-00-00-00.pem";
    fs::write(home.pki_dir().join(newer), GARBAGE).unwrap();
    fs::remove_file(home.current()).unwrap();
    std::os::unix::fs::symlink(newer, home.current()).unwrap();
    let agent = home.start();
    home.wait_for_status("it is no node", |status| status.registration.registered);
    assert!(subject_key(home.pair()) == subject_key(before), "it uses another one");
    assert!(super::requests(&admin.server, "n1").await.is_empty(), "it asked");
    assert!(agent.log().contains(&format!("{newer}.corrupt-")), "{}", agent.log());
}

/// Returns the serial number of the current certificate, as `windlass cert` accepts it.
fn serial(home: &NodeHome) -> String {
    home.pair().leaf().serial().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn revoke(admin: &Kubectl, home: &NodeHome) -> String {
    let serial = serial(home);
    windlass_ok(admin, &["cert", "revoke", &serial, "--reason", "keyCompromise", "--yes"]);
    serial
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_replaced_with_the_bootstrap_credential() {
    let admin = start_server(&[]);
    let home = home(&admin, "n1");
    home.write_bootstrap_kubeconfig(&admin.server, &token(&admin), None);
    let agent = home.start();
    wait_for_recovery(&admin, &home, &agent, 1).await;
    let first = subject_key(home.pair());
    let revoked = revoke(&admin, &home);
    home.wait_for_status("not replaced", |status| status.certificates[0].stored_count == 2);
    let second = subject_key(home.pair());
    assert!(first != second, "same key");
    let log = agent.log();
    let words = format!("the server has rejected the certificate with serial number {revoked} since ");
    assert!(log.contains(&words), "{log}");
    let metrics = agent_page(&agent, "/metrics");
    assert!(metrics.contains("windlass_node_certificate_rejections_total 1"), "{metrics}");
    retry(|| {
        let events = admin.ok(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
        events.contains("CertificateReplaced").then_some(()).ok_or(events)
    });
    home.wait_for_status("no heartbeat", |status| {
        status.registration.error.is_none() && problem(status).is_empty()
    });

    // Revoked while the agent is stopped.
    drop(agent);
    let revoked = revoke(&admin, &home);
    let agent = home.start();
    home.wait_for_status("not replaced after a restart", |status| {
        status.pid == agent.pid() && status.certificates[0].stored_count == 1 && problem(status).is_empty()
    });
    assert!(serial(&home) != revoked && subject_key(home.pair()) != second);
    assert_current_pair(&admin.server, &home, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_without_a_bootstrap_credential_is_reported() {
    let admin = start_server(&[]);
    let home = home(&admin, "n1");
    let token = token(&admin);
    home.write_bootstrap_kubeconfig(&admin.server, &token, None);
    let agent = home.start();
    wait_for_recovery(&admin, &home, &agent, 1).await;
    fs::remove_file(home.bootstrap()).unwrap();
    revoke(&admin, &home);
    let status = home.wait_for_status("nothing is reported", |status| {
        let reason = status.certificates[0].error.as_ref().map(|error| error.reason.as_str());
        reason == Some("NoCredential")
    });
    for words in [
        format!("the certificate {} is not accepted by the server", home.current().display()),
        format!("put a kubeconfig with a new bootstrap token at {}", home.bootstrap().display()),
    ] {
        assert!(problem(&status).contains(&words), "{words}: {}", problem(&status));
    }
    let said = home.status_text();
    assert!(said.contains("REJECTED by the server since ") && said.contains("NoCredential"), "{said}");
    let metrics = agent_page(&agent, "/metrics");
    assert!(metrics.contains("reason=\"NoCredential\"} 1"), "{metrics}");
    home.write_bootstrap_kubeconfig(&admin.server, &token, None);
    home.wait_for_status("not replaced", |status| {
        status.certificates[0].stored_count == 2 && problem(status).is_empty()
    });
    assert_current_pair(&admin.server, &home, 2).await;
}
