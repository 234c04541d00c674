//! Rotations of a signer's CA with real agents, and TLS peers that use the files of host projections.

mod docs_page;
mod rotation_cluster;
mod tls_load;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rand::Rng as _;
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_testkit::{poll_until, self_signed_ca};

use crate::kubectl::Kubectl;
use crate::server::{TestDataDir, long};
use rotation_cluster::{
    HostVolume, RotationCluster, SIGNER, expect_code, held_reason, laggards, request_policy,
};
use tls_load::TlsLoad;

fn volumes(cluster: &RotationCluster) -> Vec<HostVolume> {
    cluster.agents.iter().map(|agent| agent.volume.clone()).collect()
}

fn parse_time(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(value.as_str().unwrap(), &Rfc3339).unwrap()
}

#[test]
fn no_handshake_fails_during_rotations() {
    let (agents, rotations) = if long() { (20, 3) } else { (3, 1) };
    let nodes: Vec<String> = (1..=agents).map(|number| format!("n{number}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let cluster = RotationCluster::start(&nodes, "web");
    let load = TlsLoad::start(&volumes(&cluster));
    for _ in 0..rotations {
        let args = ["start", SIGNER, "--wait", "--renewal-window", "5s", "--timeout", "3m", "-o", "json"];
        let output = expect_code(cluster.rotate(&args).output().unwrap(), 0);
        load.wait_for_connections();
        let rotation: Value = serde_json::from_slice(&output.stdout).unwrap();
        cluster.check_completed(&rotation);
        let consumers = &rotation["status"]["consumers"];
        assert_eq!((&consumers["total"], &consumers["written"]), (&json!(agents), &json!(agents)));
        assert_eq!(rotation["status"]["leaves"]["outstanding"], 0);
    }
    load.finish();
}

#[test]
fn a_consumer_that_loads_its_anchors_once_holds_the_rotation() {
    let cluster = RotationCluster::start(&["n1"], "once");
    cluster.agents[0].volume.read();
    let before = cluster.published();
    let args = ["start", SIGNER, "--wait", "--timeout", "5s", "--renewal-window", "1s"];
    let output = expect_code(cluster.rotate(&args).output().unwrap(), 2);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("waits for node/n1/host/once"), "{said}");
    let rotations = cluster.admin().json(&["get", "carotations"]);
    let rotation = &rotations["items"][0];
    assert_eq!(held_reason(rotation), Some("ConsumersNotRead"), "{rotation:#}");
    assert_eq!(laggards(rotation), [("node/n1/host/once", "NotRead")]);
    assert_eq!(rotation["status"]["phase"], "WaitingForTrust");
    let union = cluster.published();
    assert!(union.contains(&before) && union.matches("BEGIN").count() == 2, "{union}");

    let name = rotation["metadata"]["name"].as_str().unwrap();
    let output = cluster.rotate(&["accept", SIGNER, "node/n1/host/once"]).output().unwrap();
    expect_code(output, 0);
    let rotation = cluster.wait_until_completed(name);
    cluster.check_completed(&rotation);
    let waited_for = |phase: &str| {
        let steps = rotation["status"]["steps"].as_array().unwrap().iter();
        steps.filter(|step| step["phase"] == phase).any(|step| step["waitedFor"][0] == "node/n1/host/once")
    };
    assert!(waited_for("WaitingForTrust"), "{rotation:#}");
}

#[test]
fn a_stopped_agent_holds_the_rotation_until_it_continues() {
    let cluster = RotationCluster::start(&["n1", "n2"], "web");
    cluster.agents[1].signal(Signal::STOP);
    let name = cluster.start_rotation(&["--no-require-read", "--renewal-window", "1s"]);
    let rotation = wait_for_laggard(&cluster, &name, ("node/n2/host/web", "NotWritten"));
    assert_eq!(held_reason(&rotation), Some("ConsumersLagging"), "{rotation:#}");
    let status = &rotation["status"];
    let named = parse_time(&status["laggards"][0]["since"]) - parse_time(&status["startTime"]);
    assert!(named <= time::Duration::seconds(10), "named after {named}");
    assert_eq!(cluster.published().matches("BEGIN").count(), 2);

    cluster.agents[1].signal(Signal::CONT);
    let rotation = cluster.wait_until_completed(&name);
    cluster.check_completed(&rotation);
}

/// Waits until a rotation has only this laggard; others may take a moment.
fn wait_for_laggard(cluster: &RotationCluster, name: &str, laggard: (&str, &str)) -> Value {
    poll_until(&format!("{laggard:?} is not named"), || {
        let rotation = cluster.rotation(name);
        (laggards(&rotation) == [laggard]).then_some(rotation)
    })
}

#[test]
fn a_full_disk_keeps_the_old_anchor_until_there_is_space() {
    if !geteuid().is_root() {
        // Printed, because a skipped test must not look like one that passed.
        eprintln!("not root; no small file system can be mounted");
        return;
    }
    let cluster = RotationCluster::start_on_small_disk(&["n1"], "web");
    let name = cluster.start_rotation(&["--renewal-window", "1s"]);
    wait_for_laggard(&cluster, &name, ("node/n1/host/web", "NotRead"));
    let filler = cluster.agents[0].volume.directory.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[0; 512])).find_map(Result::err);
    assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    drop(file);

    // The new CA signs, and the agent cannot store the certificate that it gets.
    expect_code(cluster.rotate(&["accept", SIGNER, "node/n1/host/web"]).output().unwrap(), 0);
    let rotation = wait_for_laggard(&cluster, &name, ("node/n1/host/web", "NotWritten"));
    let message = rotation["status"]["laggards"][0]["message"].as_str().unwrap();
    assert!(message.contains("No space left on device"), "{rotation:#}");
    let settled = poll_until("the certificate is not superseded", || {
        let rotation = cluster.rotation(&name);
        let is_held = held_reason(&rotation) == Some("ConsumersLagging");
        (rotation["status"]["leaves"]["outstanding"] == 0 && is_held).then_some(rotation)
    });
    assert_eq!(settled["status"]["phase"], "Renewing", "{settled:#}");
    assert_eq!(cluster.published().matches("BEGIN").count(), 2);

    fs::remove_file(&filler).unwrap();
    let rotation = cluster.wait_until_completed(&name);
    cluster.check_completed(&rotation);
}

#[test]
fn a_rotation_ends_the_same_if_the_controllers_are_killed() {
    let mut cluster = RotationCluster::start(&["n1", "n2"], "web");
    // A kill loses confirmations of certificates, which the ledger resolves after half a minute.
    for _ in 0..if long() { 40 } else { 1 } {
        let name = cluster.start_rotation(&["--no-require-read", "--renewal-window", "1s"]);
        for _ in 0..3 {
            // The moment is random on purpose.
            thread::sleep(Duration::from_millis(rand::rng().random_range(0..1500)));
            cluster.kill_and_restart();
        }
        let rotation = cluster.wait_until_completed(&name);
        cluster.check_completed(&rotation);
        let steps = rotation["status"]["steps"].as_array().unwrap().iter();
        let begins = steps.skip(1).filter(|step| step["phase"] == "Preparing").count();
        assert_eq!(begins, 0, "it does not begin again: {:#}", rotation["status"]["steps"]);
    }
}

/// Moves a new CA over the files of a signer.
fn move_ca(directory: &Path, name: &str) {
    let ca = self_signed_ca(name);
    let key = ca.key().to_pem().unwrap();
    for (file, text) in [("web.key", key.as_str()), ("web.crt", &ca.certificate().to_pem())] {
        let new = directory.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, directory.join(file)).unwrap();
    }
}

#[test]
fn replaced_ca_files_become_a_rotation_without_failed_handshakes() {
    let place = TestDataDir::new();
    let files = place.data().join("ca");
    fs::create_dir_all(&files).unwrap();
    move_ca(&files, "first");
    let signers = json!({"apiVersion": "windlass.dev/v1", "kind": "Signers", "signers": [{
        "name": SIGNER, "ca": {"files": {"certificate": "ca/web.crt", "key": "ca/web.key"}},
        "requests": request_policy(), "publish": {},
    }]});
    fs::write(place.data().join("signers.yaml"), signers.to_string()).unwrap();
    let admin = Kubectl::with_server(place.start());
    let cluster = RotationCluster::join(admin, &["n1", "n2", "n3"], "web");
    // Nobody reads on n3, which holds the rotation until its renewal window is set.
    let load = TlsLoad::start(&volumes(&cluster)[..2]);
    move_ca(&files, "second");
    let name = poll_until("there is no rotation", || {
        let rotations = cluster.admin().json(&["get", "carotations"]);
        assert!(rotations["items"].as_array()?.len() <= 1, "{rotations:#}");
        Some(rotations["items"][0]["metadata"]["name"].as_str()?.to_owned())
    });
    let rotation = wait_for_laggard(&cluster, &name, ("node/n3/host/web", "NotRead"));
    assert_eq!(rotation["spec"]["trigger"], "SourceChanged");
    assert_eq!(held_reason(&rotation), Some("ConsumersNotRead"), "{rotation:#}");
    let spec = json!({"spec": {"renewalWindow": "5s", "acceptedConsumers": ["node/n3/host/web"]}});
    cluster.admin().ok(&["patch", "carotation", &name, "--type", "merge", "-p", &spec.to_string()]);
    let rotation = cluster.wait_until_completed(&name);
    load.finish();
    cluster.check_completed(&rotation);
}
