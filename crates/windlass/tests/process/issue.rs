//! `windlass issue`: certificates for users and programs, and the files on disk after failures.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use windlass_pki::{
    AltNames, CertificateAuthority, CertificateRequest, CertificateTemplate, CertificateUsages,
    ForeignCertificate, IssuedSubject, PrivateKey, Serial, SubjectKey, SystemRandom, Validity, build_csr,
    issue_certificate, parse_certificate_blocks, pem,
};
use windlass_testkit::poll_until;

use crate::access::add_user;
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, lines, wait};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const FILES: [&str; 4] = ["tls.key", "tls.crt", "ca.crt", "issue.json"];

/// Builds a `windlass` command with the kubeconfig of this kubectl.
pub fn windlass(who: &Kubectl, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(args)
        .env("KUBECONFIG", &who.kubeconfig)
        .current_dir(who.server.place().path())
        .stdin(Stdio::null());
    command
}

/// Returns the standard output; the command must succeed.
pub fn windlass_ok(who: &Kubectl, args: &[&str]) -> String {
    let output = windlass(who, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message; the command must exit with 1.
pub fn windlass_fails(who: &Kubectl, args: &[&str]) -> String {
    let output = windlass(who, args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr_text(&output));
    stderr_text(&output)
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `windlass issue` that waits.
struct PendingIssue {
    child: Child,
    said: Receiver<String>,
    heard: Vec<String>,
}

impl PendingIssue {
    fn start(who: &Kubectl, args: &[&str]) -> Self {
        let mut command = windlass(who, args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = lines(child.stderr.take().unwrap());
        Self { child, said, heard: Vec::new() }
    }

    /// Returns the next line that contains these words.
    fn wait_for_line(&mut self, words: &str) -> String {
        loop {
            let Ok(line) = self.said.recv_timeout(PATIENCE) else {
                panic!("nothing about {words:?} in {:#?}", self.heard);
            };
            self.heard.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Returns the name of the request that is pending approval.
    fn request(&mut self) -> String {
        let line = self.wait_for_line("waiting for approval of ");
        let name = line.rsplit(' ').next().unwrap().to_owned();
        assert!(line.ends_with(&format!(": kubectl certificate approve {name}")), "{line}");
        name
    }

    /// Waits for the exit; returns whether it succeeded, and the output.
    fn end(mut self) -> (bool, String) {
        let status = wait(&mut self.child, PATIENCE).expect("it ends");
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            self.heard.push(line);
        }
        (status.success(), self.heard.join("\n"))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Reads the files of a directory by name, as users do.
fn set(dir: &Path) -> BTreeMap<&'static str, String> {
    let read = |name| Some((name, fs::read_to_string(dir.join(name)).ok()?));
    FILES.into_iter().filter_map(read).collect()
}

/// Reads the certificate of a directory, whose key must match.
fn certificate(dir: &Path) -> ForeignCertificate {
    let set = set(dir);
    let chain = parse_certificate_blocks(set["tls.crt"].as_bytes()).unwrap();
    let key = PrivateKey::from_pem(set["tls.key"].as_bytes()).unwrap();
    let key = SubjectKey::from_der(key.public_key().as_der()).unwrap();
    assert!(*chain[0].public_key() == key, "the key belongs to the certificate");
    chain[0].clone()
}

fn path(who: &Kubectl, name: &str) -> PathBuf {
    who.server.place().path().join(name)
}

#[test]
fn a_client_certificate_logs_in() {
    let admin = Kubectl::new();
    let args = [
        "issue",
        "--signer",
        CLIENT,
        "--cn",
        "alice",
        "--org",
        "dev",
        "--duration",
        "1d",
        "--approve",
        "--out",
        "alice",
        "--write-kubeconfig",
        "alice.kubeconfig",
        "-o",
        "json",
    ];
    let made: Value = serde_json::from_str(&windlass_ok(&admin, &args)).unwrap();
    assert_eq!((&made["signerName"], &made["key"]), (&CLIENT.into(), &"ECDSA P-256".into()));
    let dir = path(&admin, "alice");
    let leaf = certificate(&dir);
    assert_eq!(leaf.subject().common_name(), "alice");
    assert_eq!(leaf.subject().organizations(), ["dev"]);
    let mode = fs::metadata(dir.join("tls.key")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let alice = admin.with_kubeconfig(path(&admin, "alice.kubeconfig"));
    let refused = alice.fails(&["get", "configmaps"]);
    assert!(refused.contains("User \"alice\" cannot list resource \"configmaps\""), "{refused}");
    admin.ok(&["create", "clusterrolebinding", "dev", "--clusterrole=view", "--group=dev"]);
    alice.ok(&["get", "configmaps"]);

    // Renewed in place with a new key; the kubeconfig refers to the files and still works.
    let before = set(&dir);
    let reported = windlass_ok(&admin, &["issue", "--renew", "--approve", "--out", "alice", "-o", "wide"]);
    assert!(reported.contains("O=dev, CN=alice, expires ") && reported.contains("request: "), "{reported}");
    let after = set(&dir);
    assert_ne!(before["tls.key"], after["tls.key"]);
    assert_eq!(before["issue.json"], after["issue.json"]);
    let renewed = certificate(&dir);
    assert_eq!(renewed.subject(), leaf.subject());
    assert_eq!(renewed.not_after() - renewed.not_before(), leaf.not_after() - leaf.not_before());
    assert_ne!(renewed.serial(), leaf.serial());
    alice.ok(&["get", "configmaps"]);
}

#[test]
fn every_kind_of_key_is_certified() {
    let admin = Kubectl::new();
    for (flag, reported) in [("ecdsa-p384", "ECDSA P-384"), ("rsa-3072", "RSA 3072"), ("ed25519", "Ed25519")]
    {
        let args = [
            "issue",
            "--signer",
            "kubernetes.io/kubelet-serving",
            "--cn",
            "system:node:n1",
            "--org",
            "system:nodes",
            "--dns",
            "n1",
            "--ip",
            "192.0.2.1",
            "--key-type",
            flag,
            "--approve",
            "--out",
            flag,
            "-o",
            "json",
        ];
        let made: Value = serde_json::from_str(&windlass_ok(&admin, &args)).unwrap();
        assert_eq!((&made["key"], &made["ipAddresses"][0]), (&reported.into(), &"192.0.2.1".into()));
        assert_eq!(certificate(&path(&admin, flag)).alt_names().dns_names, ["n1"]);
    }
}

#[test]
fn another_user_approves_and_signs() {
    let admin = Kubectl::new();
    let signer = "example.com/web";
    let args = [
        "issue",
        "--signer",
        signer,
        "--dns",
        "web.example.com",
        "--uri",
        "spiffe://example.com/web",
        "--out",
        "web",
    ];
    let mut waiting = PendingIssue::start(&admin, &args);
    let name = waiting.request();
    admin.ok(&["certificate", "approve", &name]);
    waiting.wait_for_line(&format!("approved {name}; waiting for signer {signer}"));
    if admin.minor() < 24 {
        eprintln!("this kubectl cannot write a status");
        return waiting.kill();
    }
    let ca = authority();
    let patch = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        admin.ok(&["patch", "csr", &name, "--subresource=status", &kind, "-p", patch]);
    };
    let delayed = r#"[{"op": "add", "path": "/status/conditions/-", "value": {"type": "example.com/Slow",
                    "status": "True", "reason": "Lunch", "message": "back at two"}}]"#;
    patch("json", delayed);
    waiting.wait_for_line("(Lunch: back at two)");
    let bundle = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata:\n  name: example.com:web:v1\nspec:\n  \
         signerName: {signer}\n  trustBundle: |\n    {}\n",
        ca.certificate().to_pem().replace('\n', "\n    ")
    );
    admin.ok_with(&bundle, &["apply", "-f", "-"]);
    let chain = signed(&admin, &name, &ca);
    patch("merge", &format!("{{\"status\":{{\"certificate\":\"{}\"}}}}", STANDARD.encode(&chain)));
    let (good, said) = waiting.end();
    assert!(good, "{said}");

    let dir = path(&admin, "web");
    let leaf = certificate(&dir);
    assert_eq!(leaf.alt_names().dns_names, ["web.example.com"]);
    assert_eq!(leaf.alt_names().uris, ["spiffe://example.com/web"]);
    assert_eq!(set(&dir)["ca.crt"], ca.certificate().to_pem());
    // The CA certificate was included.
    assert_eq!(pem::certificates(set(&dir)["tls.crt"].as_bytes()).unwrap().len(), 2);
}

#[test]
fn a_certificate_for_another_key_is_not_used() {
    let admin = Kubectl::new();
    if admin.minor() < 24 {
        eprintln!("this kubectl cannot write a status");
        return;
    }
    let args = ["issue", "--signer", "example.com/web", "--cn", "a", "--out", "a", "--name", "mine"];
    let mut waiting = PendingIssue::start(&admin, &args);
    assert_eq!(waiting.request(), "mine");
    let again = windlass_fails(&admin, &[&args[..5], &["--out", "b", "--name", "mine"]].concat());
    assert!(again.contains("choose another --name"), "{again}");
    admin.ok(&["certificate", "approve", "mine"]);
    let other = authority().certificate().to_pem();
    let patch = format!("{{\"status\":{{\"certificate\":\"{}\"}}}}", STANDARD.encode(other));
    admin.ok(&["patch", "csr", "mine", "--subresource=status", "--type=merge", "-p", &patch]);
    let (good, said) = waiting.end();
    assert!(!good && said.contains("has a different key"), "{said}");
    assert!(!path(&admin, "a").exists() && !path(&admin, "b").exists());
}

#[test]
fn a_certificate_that_is_not_valid_now_is_not_installed() {
    let admin = Kubectl::new();
    if admin.minor() < 24 {
        eprintln!("this kubectl cannot write a status");
        return;
    }
    let (ca, now) = (authority(), OffsetDateTime::now_utc());
    let args = ["issue", "--signer", "example.com/web", "--dns", "a.example", "--out", "web"];
    let renew = ["issue", "--renew", "--out", "web"];
    let minutes = |from, to| {
        let [from, to] = [from, to].map(|minutes| now + Duration::minutes(minutes));
        Validity::new(from, to).unwrap()
    };
    let mut before = None;
    for (args, validity, refused) in [
        (&args[..], minutes(-1, 60), None),
        (&renew, minutes(-30, -1), Some("the issued certificate expired ")),
        (&renew, minutes(30, 60), Some("the issued certificate is not valid before ")),
    ] {
        let mut waiting = PendingIssue::start(&admin, args);
        let name = waiting.request();
        admin.ok(&["certificate", "approve", &name]);
        let chain = STANDARD.encode(signed_for(&admin, &name, &ca, validity));
        let patch = format!("{{\"status\":{{\"certificate\":\"{chain}\"}}}}");
        admin.ok(&["patch", "csr", &name, "--subresource=status", "--type=merge", "-p", &patch]);
        let (good, said) = waiting.end();
        assert_eq!(good, refused.is_none(), "{said}");
        assert!(said.contains(refused.unwrap_or_default()), "{said}");
        assert!(good || said.contains("the local time is"), "{said}");
        let files = set(&path(&admin, "web"));
        assert_eq!(before.get_or_insert_with(|| files.clone()), &files);
    }
}

fn authority() -> CertificateAuthority {
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - Duration::HOUR, now + Duration::DAY).unwrap();
    windlass_testkit::ca_with_validity("web CA", validity)
}

/// Issues the certificate of a request; returns it with that of the CA.
fn signed(admin: &Kubectl, name: &str, ca: &CertificateAuthority) -> String {
    let now = OffsetDateTime::now_utc();
    signed_for(admin, name, ca, Validity::new(now - Duration::MINUTE, now + Duration::HOUR).unwrap())
}

fn signed_for(admin: &Kubectl, name: &str, ca: &CertificateAuthority, validity: Validity) -> String {
    let object = admin.json(&["get", "csr", name]);
    let text = STANDARD.decode(object["spec"]["request"].as_str().unwrap()).unwrap();
    let request = CertificateRequest::from_pem(&text).unwrap();
    let usages: Vec<String> = serde_json::from_value(object["spec"]["usages"].clone()).unwrap();
    assert_eq!(usages, ["digital signature", "server auth"]);
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    let usages = CertificateUsages::from_names(&usages).unwrap();
    let wanted = CertificateTemplate::from_request(&request, usages, validity, serial).unwrap();
    issue_certificate(ca, &wanted).unwrap().to_pem() + &ca.certificate().to_pem()
}

#[test]
fn kubectl_alone_gets_a_certificate() {
    let admin = Kubectl::new();
    let key = PrivateKey::generate().unwrap();
    let subject = IssuedSubject::new("dora", &["dev"]);
    let text = build_csr(&key, &subject, &AltNames::default()).unwrap();
    let request = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata:\n  name: dora\nspec:\n  \
         request: {}\n  signerName: {CLIENT}\n  expirationSeconds: 86400\n  usages: [client auth]\n",
        STANDARD.encode(text)
    );
    admin.ok_with(&request, &["create", "-f", "-"]);
    admin.ok(&["certificate", "approve", "dora"]);
    let certificate = poll_until("no certificate", || {
        let text = admin.ok(&["get", "csr", "dora", "-o", "jsonpath={.status.certificate}"]);
        (!text.is_empty()).then(|| STANDARD.decode(text).unwrap())
    });
    let file = |name: &str| path(&admin, name).to_str().unwrap().to_owned();
    fs::write(file("tls.key"), key.to_pem().unwrap().as_bytes()).unwrap();
    fs::write(file("tls.crt"), certificate).unwrap();
    let [tls_crt, tls_key] =
        [format!("--client-certificate={}", file("tls.crt")), format!("--client-key={}", file("tls.key"))];
    admin.ok(&["config", "set-credentials", "dora", &tls_crt, &tls_key]);
    let refused = admin.fails(&["--user", "dora", "get", "secrets"]);
    assert!(refused.contains("User \"dora\" cannot list resource \"secrets\""), "{refused}");
    // Windlass and kubectl show the same.
    let shown: Value =
        serde_json::from_str(&windlass_ok(&admin, &["csr", "show", "dora", "-o", "json"])).unwrap();
    assert_eq!(
        (&shown["state"], &shown["certificate"]["keyMatches"]),
        (&"Approved,Issued".into(), &true.into())
    );
}

#[test]
fn existing_files_stay_until_renewal_succeeds() {
    let admin = Kubectl::new();
    let issue = ["issue", "--signer", CLIENT, "--cn", "bob", "--approve", "--out", "bob"];
    windlass_ok(&admin, &issue);
    let dir = path(&admin, "bob");
    let before = set(&dir);
    let unchanged = |what: &str| {
        assert_eq!(set(&dir), before, "{what}");
        certificate(&dir);
    };

    let refused = windlass_fails(&admin, &issue);
    assert!(refused.contains("already exists; renew the certificate with --renew"), "{refused}");
    unchanged("without --renew");

    let renew = ["issue", "--renew", "--out", "bob"];
    let mut waiting = PendingIssue::start(&admin, &renew);
    let name = waiting.request();
    let busy = windlass_fails(&admin, &renew);
    assert!(busy.contains("another windlass issue is using"), "{busy}");
    windlass_ok(&admin, &["csr", "deny", &name, "--reason", "Unknown", "--message", "who is bob?"]);
    let (good, said) = waiting.end();
    assert!(!good && said.contains("was denied: Unknown: who is bob?"), "{said}");
    unchanged("denied");

    let mut waiting = PendingIssue::start(&admin, &renew);
    let name = waiting.request();
    admin.ok(&["delete", "csr", &name]);
    let (good, said) = waiting.end();
    assert!(!good && said.contains(&format!("{name} was deleted before")), "{said}");
    unchanged("deleted");

    let serving = ["--signer", "kubernetes.io/kubelet-serving", "--approve"];
    let failed = windlass_fails(&admin, &[&renew[..], &serving].concat());
    let reason = "SignerValidationFailure: subject organization is not system:nodes";
    assert!(failed.contains(reason), "{failed}");
    unchanged("refused by the signer");

    let late = windlass_fails(&admin, &[&renew[..], &["--timeout", "50ms"]].concat());
    assert!(late.contains("timed out after 50ms: "), "{late}");
    unchanged("late");

    let mut waiting = PendingIssue::start(&admin, &renew);
    waiting.request();
    waiting.kill();
    unchanged("killed");

    // Leftovers of the killed process do not interfere, and are removed.
    windlass_ok(&admin, &[&renew[..], &["--approve"]].concat());
    assert_ne!(set(&dir)["tls.key"], before["tls.key"]);
    certificate(&dir);
    assert_eq!(hidden(&dir), 2, "one set, and the link to it");
}

/// Returns the number of internal entries in a directory.
fn hidden(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("..")).count()
}

#[test]
fn killed_at_any_time_there_is_a_whole_set() {
    let admin = Kubectl::new();
    windlass_ok(&admin, &["issue", "--signer", CLIENT, "--cn", "bob", "--approve", "--out", "bob"]);
    let dir = path(&admin, "bob");
    let (mut old, mut new) = (0, 0);
    for round in 0..24 {
        let before = set(&dir);
        let current = fs::read_link(dir.join("..data")).unwrap();
        let mut waiting = PendingIssue::start(&admin, &["issue", "--renew", "--approve", "--out", "bob"]);
        let mut spin = |reached: &dyn Fn() -> bool| {
            while !reached() && waiting.child.try_wait().unwrap().is_none() {
                thread::yield_now();
            }
        };
        match round % 4 {
            0 => drop(waiting.wait_for_line("approved csr-")),
            // Printed just before the files are written.
            1 => drop(waiting.wait_for_line("ca.crt not written")),
            2 => spin(&|| dir.join("..data.new").is_symlink()),
            _ => spin(&|| fs::read_link(dir.join("..data")).unwrap() != current),
        }
        waiting.kill();
        certificate(&dir);
        if set(&dir) == before { old += 1 } else { new += 1 }
    }
    assert!(old > 0 && new > 0, "{old} times before the new set, {new} times after");
    windlass_ok(&admin, &["issue", "--renew", "--approve", "--out", "bob"]);
    assert_eq!(hidden(&dir), 2);
}

#[test]
fn missing_approval_permission_is_reported_while_waiting() {
    let admin = Kubectl::new();
    let asks =
        ["create", "clusterrole", "asks", "--verb=create,get", "--resource=certificatesigningrequests"];
    admin.ok(&asks);
    admin.ok(&["create", "clusterrolebinding", "asks", "--clusterrole=asks", "--user=alice"]);
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &[]));
    let issue = ["issue", "--signer", CLIENT, "--cn", "carol", "--approve", "--out"];

    // Without permission to watch, the command polls.
    let mut waiting = PendingIssue::start(&alice, &[&issue[..], &["one"]].concat());
    let reported = waiting.wait_for_line("missing permission to");
    let both = format!("\"update certificatesigningrequests/approval\" and \"approve signers {CLIENT}\"");
    assert!(
        reported.contains(&both) && reported.contains("leaving it for an authorized approver"),
        "{reported}"
    );
    let name = waiting.request();
    admin.ok(&["certificate", "approve", &name]);
    let (good, said) = waiting.end();
    assert!(good && said.contains("ca.crt not written: clustertrustbundles"), "{said}");
    assert_eq!(certificate(&path(&admin, "one")).subject().common_name(), "carol");

    let role = [
        "create",
        "clusterrole",
        "half",
        "--verb=list,watch,update",
        "--resource=certificatesigningrequests,certificatesigningrequests/approval",
    ];
    admin.ok(&role);
    admin.ok(&["create", "clusterrolebinding", "half", "--clusterrole=half", "--user=alice"]);
    let mut waiting = PendingIssue::start(&alice, &[&issue[..], &["two"]].concat());
    let reported = waiting.wait_for_line("missing permission to");
    assert!(reported.contains(&format!("permission to \"approve signers {CLIENT}\" (")), "{reported}");
    let name = waiting.request();
    let refused = windlass_fails(&alice, &["csr", "approve", &name]);
    assert!(refused.contains("not permitted to approve requests with signerName"), "{refused}");
    windlass_ok(&admin, &["csr", "approve", &name]);
    assert!(waiting.end().0);
}
