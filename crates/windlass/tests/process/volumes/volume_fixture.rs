//! A server with custom signers, and a machine that has joined it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_testkit::{ChildProcess, retry, self_signed_ca};

pub use windlass_testkit::poll_until as wait_until;

use crate::issue::windlass_ok;
use crate::kubectl::Kubectl;
use crate::node::{agent_page, shell};
use crate::server::{PATIENCE, TestDataDir};
use crate::trust_docs::MountGuard;

/// `signers.yaml` with one signer for pod certificates.
pub const SIGNERS: &str = "apiVersion: windlass.dev/v1
kind: Signers
signers:
- name: example.com/workloads
  ca: {selfSigned: {directory: ca/workloads}}
  pods: {trustDomain: example.com}
  publish: {name: anchors}
";

/// Directory in the output of `windlass token create`.
const HOME: &str = "windlass-node";

/// A server and the node `n1`.
pub struct VolumeFixture {
    /// `None` while it is stopped. This and the next field are dropped before the directories that
    /// they use.
    pub agent: Option<ChildProcess>,
    _mounted: MountGuard,
    /// None while the server is stopped.
    admin: Option<Kubectl>,
    stopped: Option<TestDataDir>,
    path: PathBuf,
}

impl VolumeFixture {
    /// Starts the server and the agent with `SIGNERS` as configuration.
    pub fn start() -> Self {
        Self::with_signers_and_flags(SIGNERS, "")
    }

    /// Starts both, with this `signers.yaml` and additional flags for the agent.
    pub fn with_signers_and_flags(signers: &str, flags: &str) -> Self {
        let place = TestDataDir::new();
        let path = place.path().to_owned();
        fs::create_dir_all(place.data()).unwrap();
        fs::write(place.data().join("signers.yaml"), signers).unwrap();
        let admin = Kubectl::with_server(place.start());
        let made = windlass_ok(&admin, &["token", "create", "-o", "json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let (prepare, _) = made["command"].as_str().unwrap().rsplit_once(" && ").unwrap();
        let mounted = MountGuard(path.join(HOME).join("pki/pods"));
        let mut world = Self { agent: None, _mounted: mounted, admin: Some(admin), stopped: None, path };
        assert!(world.shell(prepare).status().unwrap().success());
        world.start_agent(flags);
        // Pods need both. kubectl can wait for missing objects only since 1.31.
        let both = ["get", "serviceaccount/default", "node/n1", "--ignore-not-found", "-o", "name"];
        wait_until("there is no node", || (world.kubectl_ok(&both).lines().count() == 2).then_some(()));
        world
    }

    /// Directory that holds the data of server and agent.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn admin(&self) -> &Kubectl {
        self.admin.as_ref().expect("the server is stopped")
    }

    pub fn kubectl_ok(&self, args: &[&str]) -> String {
        self.admin().ok(args)
    }

    /// Returns a shell command with our program in `PATH`.
    pub fn shell(&self, line: &str) -> Command {
        shell(&self.path, line)
    }

    pub fn start_agent(&mut self, flags: &str) {
        assert!(self.agent.is_none());
        let own = format!("--kubeconfig {HOME}/kubeconfig --cert-dir {HOME}/pki --node-name n1");
        let line = format!(
            "exec windlass node --bootstrap-kubeconfig {HOME}/bootstrap.kubeconfig {own} \
             --metrics-listen 127.0.0.1:0 {flags}"
        );
        self.run_agent(&line);
    }

    /// Starts a command that executes an agent.
    pub fn run_agent(&mut self, line: &str) {
        let log = self.path.join("node.log");
        self.agent = Some(ChildProcess::spawn_logged(&mut self.shell(line), &log));
    }

    /// Sends SIGTERM and expects a clean exit.
    pub fn stop_agent(&mut self) {
        self.agent.take().unwrap().stop(PATIENCE);
    }

    /// Waits until the agent exits with an error; returns its log.
    pub fn wait_for_agent_failure(&mut self) -> String {
        let agent = self.agent.as_mut().unwrap();
        let status = agent.wait(PATIENCE);
        assert!(status.is_some_and(|status| !status.success()), "{status:?}: {}", agent.log());
        agent.log()
    }

    /// Returns the metrics page of the running agent.
    pub fn metrics(&self) -> String {
        agent_page(self.agent.as_ref().unwrap(), "/metrics")
    }

    /// Kills the agent with SIGKILL by dropping it.
    pub fn kill_agent(&mut self) {
        drop(self.agent.take().unwrap());
    }

    pub fn stop_server(&mut self) {
        let Kubectl { server, .. } = self.admin.take().unwrap();
        self.stopped = Some(Arc::into_inner(server).unwrap().stop());
    }

    /// Restarts the server at the same address.
    pub fn start_server(&mut self) {
        self.admin = Some(Kubectl::with_server(self.stopped.take().unwrap().start()));
    }

    /// Applies objects in this order.
    pub fn apply(&self, objects: &[Value]) {
        self.admin().ok_with(&list(objects), &["apply", "-f", "-"]);
    }

    /// Creates objects in this order, which is faster for many.
    pub fn create(&self, objects: &[Value]) {
        self.admin().ok_with(&list(objects), &["create", "-f", "-"]);
    }

    /// Returns the path of the volume `v` of a pod.
    pub fn volume(&self, pod: &str) -> PathBuf {
        self.directory(pod).join("volumes/kubernetes.io~projected/v")
    }

    pub fn directory(&self, pod: &str) -> PathBuf {
        let uid = self.kubectl_ok(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
        self.path.join(HOME).join("pki/pods").join(uid)
    }

    /// Waits until the volumes of a pod are ready.
    pub fn wait_until_ready(&self, pod: &str) {
        let condition = "--for=condition=windlass.dev/VolumesReady";
        self.kubectl_ok(&["wait", condition, &format!("pod/{pod}"), "--timeout=30s"]);
    }

    /// Waits until a pod's condition is False for this reason; returns the message.
    pub fn wait_until_not_ready(&self, pod: &str, reason: &str) -> String {
        wait_until(&format!("{pod} is not {reason}"), || {
            let object = self.admin().json(&["get", "pod", pod]);
            let conditions = object["status"]["conditions"].as_array()?;
            let found = conditions.iter().find(|one| {
                one["type"] == "windlass.dev/VolumesReady"
                    && one["status"] == "False"
                    && one["reason"] == reason
            })?;
            Some(found["message"].as_str()?.to_owned())
        })
    }

    /// Returns the messages of a pod's `FailedMount` events.
    pub fn failed_mounts(&self, pod: &str) -> Vec<String> {
        let about = format!("--field-selector=involvedObject.name={pod},reason=FailedMount");
        let events = self.admin().json(&["get", "events", &about]);
        let events = events["items"].as_array().unwrap().iter();
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the number of objects of a kind in all namespaces.
    pub fn count(&self, kind: &str) -> usize {
        self.admin().json(&["get", kind, "-A"])["items"].as_array().unwrap().len()
    }

    /// Waits until the running agent has found or written all anchors of this many volumes.
    pub fn has_delivered(&self, volumes: f64) {
        let labels = "projected_volume_source_type=\"ClusterTrustBundle\",status=\"OK\"";
        let name = format!("projectedvolumesource_refresh_count{{{labels}}}");
        wait_until("not all anchors were looked at", || {
            metric(&self.metrics(), &name).filter(|count| *count >= volumes)
        });
    }

    /// Runs `windlass node status` with flags.
    pub fn status(&self, flags: &str) -> Output {
        self.shell(&format!("windlass node status --cert-dir {HOME}/pki {flags}")).output().unwrap()
    }

    /// Waits until the status of the running agent matches.
    pub fn wait_for_agent_status(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let process = self.agent.as_ref().unwrap().pid();
        wait_until(what, || {
            let said = serde_json::from_slice::<Value>(&self.status("-o json").stdout).ok()?;
            Some(said).filter(|said| said["pid"] == process && good(said))
        })
    }
}

/// Returns the value of a metric, named with its labels.
pub fn metric(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until a file has this content.
pub fn wait_for_text(path: &Path, text: &str) {
    retry(|| match fs::read_to_string(path).ok() {
        Some(found) if found == text => Ok(()),
        found => Err(format!("{} has {found:?}", path.display())),
    });
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Creates a self-signed root certificate (PEM).
pub fn anchor() -> String {
    self_signed_ca("root").certificate().to_pem()
}

/// Returns the PEM blocks of a text, sorted.
pub fn certificates(text: &str) -> Vec<String> {
    let end = "-----END CERTIFICATE-----\n";
    let mut all = text.split_inclusive(end).map(str::to_owned).collect::<Vec<_>>();
    all.sort();
    all
}

fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// Returns a bundle without a signer.
pub fn bundle(name: &str, text: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
           "metadata": {"name": name}, "spec": {"trustBundle": text}})
}

/// Returns a bundle of the signer `example.com/hand`, with a label.
pub fn signed_bundle(name: &str, version: &str, text: &str) -> Value {
    let mut object = bundle(&format!("example.com:hand:{name}"), text);
    object["metadata"]["labels"] = json!({ "version": version });
    object["spec"]["signerName"] = json!("example.com/hand");
    object
}

/// Returns a pod of this node with one volume, `v`.
pub fn pod_object(name: &str, sources: Value) -> Value {
    let volume = json!({"name": "v", "projected": {"sources": sources}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": "n1", "volumes": [volume],
        "containers": [{"name": "c", "image": "example.com/c"}]}})
}

/// Returns a source of anchors in `ca.pem`, by name.
pub fn bundle_source_by_name(name: &str) -> Value {
    json!({"clusterTrustBundle": {"name": name, "path": "ca.pem"}})
}

/// Returns a source of anchors in `ca.pem`, by the signer `example.com/hand` and additional fields.
pub fn selected(more: Value) -> Value {
    let mut source = json!({"signerName": "example.com/hand", "path": "ca.pem"});
    let more = more.as_object().unwrap().clone();
    source.as_object_mut().unwrap().extend(more);
    json!({ "clusterTrustBundle": source })
}

/// Returns a source of a certificate in `pod.pem`.
pub fn certificate() -> Value {
    json!({"podCertificate": {"signerName": "example.com/workloads", "keyType": "ECDSAP256",
                              "credentialBundlePath": "pod.pem"}})
}
