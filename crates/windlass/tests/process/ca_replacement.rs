//! CA files change in valid and invalid ways while requests arrive: every request gets a
//! certificate, issued by a valid CA.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;
use windlass_pki::{Certificate, CertificateAuthority};
use windlass_testkit::{HttpClient, retry_async};

use crate::controllers::{REQUESTS, node_request, server, start_controllers};
use crate::server::{PATIENCE, TestDataDir};
use crate::signing::authority;
use crate::traffic::{IssuanceTraffic, ObservedCertificate};

const SWAPS: usize = 200;
/// Time within which a valid pair must be used.
const SOON: Duration = Duration::from_secs(2);
const DELAYED: &str = "windlass.dev/SigningDelayed";

/// A CA, and the period in which it was the last valid one.
struct CaGeneration {
    authority: CertificateAuthority,
    from: Instant,
    until: Option<Instant>,
}

struct CaDirectory {
    folder: PathBuf,
    count: usize,
    good: Vec<CaGeneration>,
}

fn texts(authority: &CertificateAuthority) -> (String, String) {
    (authority.certificate().to_pem(), authority.key().to_pem().unwrap().to_string())
}

impl CaDirectory {
    fn new(folder: PathBuf) -> CaDirectory {
        fs::create_dir(&folder).unwrap();
        let mut files = CaDirectory { folder, count: 0, good: Vec::new() };
        files.install_valid(0, 3600);
        files
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    fn key_path(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    /// Installs a valid pair in one of several ways. Returns its index.
    fn install_valid(&mut self, way: usize, lasts: i64) -> usize {
        self.count += 1;
        let authority = authority(&format!("ca-{}", self.count), -3600, lasts);
        let (certificate, key) = texts(&authority);
        let from = Instant::now();
        match way % 4 {
            0 => self.write(&certificate, &key),
            1 => self.rename(&certificate, &key),
            2 => self.link(&certificate, &key),
            _ => self.replace_folder(&certificate, &key),
        }
        let now = Instant::now();
        if let Some(last) = self.good.last_mut() {
            last.until = Some(now);
        }
        self.good.push(CaGeneration { authority, from, until: None });
        self.good.len() - 1
    }

    /// Replaces the CA files with an invalid pair of kind `way`.
    fn install_invalid(&self, way: usize) {
        let good = texts(&authority("bad", -3600, 3600));
        let other = texts(&authority("bad", -3600, 3600));
        let half = |text: &str| text[..text.len() / 2].to_owned();
        match way % 7 {
            0 => self.write(&good.0, &other.1),
            1 => self.write(&half(&good.0), &good.1),
            2 => self.write(&good.0, &half(&good.1)),
            3 => {
                let (certificate, key) = texts(&authority("bad", -3600, -1));
                self.rename(&certificate, &key);
            }
            4 => {
                let (certificate, key) = texts(&authority("bad", 1800, 3600));
                self.link(&certificate, &key);
            }
            5 => fs::remove_file(self.key_path()).unwrap(),
            _ => self.write("", ""),
        }
    }

    /// Overwrites the files in place, one after the other.
    fn write(&self, certificate: &str, key: &str) {
        for (file, text) in [(self.certificate(), certificate), (self.key_path(), key)] {
            // Otherwise the write would change the target of the link.
            if file.is_symlink() {
                fs::remove_file(&file).unwrap();
            }
            fs::write(&file, text).unwrap();
        }
    }

    /// Renames each file into place atomically, one after the other.
    fn rename(&self, certificate: &str, key: &str) {
        for (file, text) in [(self.key_path(), key), (self.certificate(), certificate)] {
            let new = self.folder.join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &file).unwrap();
        }
    }

    /// Replaces both files atomically, as kubelets update mounted Secrets.
    fn link(&self, certificate: &str, key: &str) {
        let name = format!("..{}", fs::read_dir(&self.folder).unwrap().count());
        let data = self.folder.join(&name);
        let _ = fs::remove_dir_all(&data);
        fs::create_dir(&data).unwrap();
        fs::write(data.join("ca.crt"), certificate).unwrap();
        fs::write(data.join("ca.key"), key).unwrap();
        relink(&self.folder.join("..data"), &name);
        for file in ["ca.crt", "ca.key"] {
            if !self.folder.join(file).is_symlink() {
                relink(&self.folder.join(file), &format!("..data/{file}"));
            }
        }
    }

    fn replace_folder(&self, certificate: &str, key: &str) {
        let (new, old) = (self.folder.with_extension("new"), self.folder.with_extension("old"));
        let _ = fs::remove_dir_all(&old);
        fs::create_dir(&new).unwrap();
        fs::write(new.join("ca.crt"), certificate).unwrap();
        fs::write(new.join("ca.key"), key).unwrap();
        fs::rename(&self.folder, &old).unwrap();
        fs::rename(&new, &self.folder).unwrap();
    }

    /// Returns the index of the valid pair that issued this certificate.
    fn issuer(&self, issued: &ObservedCertificate) -> Option<usize> {
        let certificate = Certificate::from_pem(&issued.certificate).unwrap();
        self.good.iter().rposition(|pair| pair.authority.has_issued(&certificate))
    }
}

fn relink(link: &Path, target: &str) {
    let new = link.with_file_name("new-link");
    symlink(target, &new).unwrap();
    fs::rename(&new, link).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_is_from_an_invalid_pair_and_none_is_lost() {
    let server = server(TestDataDir::new(), [""; 0]);
    let mut files = CaDirectory::new(server.place().path().join("signer"));
    let flags = [
        "--leader-elect=false".to_owned(),
        format!("--cluster-signing-cert-file={}", files.certificate().display()),
        format!("--cluster-signing-key-file={}", files.key_path().display()),
    ];
    let controllers = start_controllers(&server, &server.kubeconfig(), "signing", flags);
    let traffic = IssuanceTraffic::start(&server.http(), 4, Duration::from_millis(100));
    for swap in 0..SWAPS {
        traffic.wait_for_issuance().await;
        if swap % 2 == 1 {
            files.install_invalid(swap / 2);
            continue;
        }
        let number = files.install_valid(swap / 2 % 3, 3600);
        if swap % 10 == 0 {
            wait_until_used(&traffic, &files, number).await;
        }
    }
    for round in 0..3 {
        pending_requests_are_woken(&server.http(), &mut files, round).await;
    }
    let number = files.install_valid(3, 3600);
    wait_until_used(&traffic, &files, number).await;

    let seen = traffic.finish().await;
    for (name, issued) in &seen {
        let [issued] = issued.as_slice() else { panic!("{name} had {issued:?}") };
        let number = files.issuer(issued).unwrap_or_else(|| panic!("{name}: from a bad pair"));
        let pair = &files.good[number];
        assert!(pair.from <= issued.at, "{name}: from a pair that was not there");
        let late = pair.until.is_some_and(|until| issued.at > until + SOON);
        assert!(!late, "{name}: from a pair that was replaced");
    }
    assert!(seen.len() > SWAPS, "too few to tell: {}", seen.len());
    assert!(!controllers.log().contains("PRIVATE"));
}

/// Waits for a certificate from the pair that was just installed.
async fn wait_until_used(traffic: &IssuanceTraffic, files: &CaDirectory, number: usize) {
    let from = files.good[number].from;
    let mut known = 0;
    loop {
        let new: Vec<ObservedCertificate> = {
            let seen = traffic.observed();
            let all = seen.values().flatten().filter(|issued| issued.at > from);
            all.cloned().collect()
        };
        if new.len() > known && new.iter().any(|issued| files.issuer(issued) == Some(number)) {
            break;
        }
        known = new.len();
        assert!(from.elapsed() < SOON, "a new pair is not used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An expired CA signs nothing; pending requests are signed when a valid one is installed.
async fn pending_requests_are_woken(http: &HttpClient, files: &mut CaDirectory, round: usize) {
    files.install_valid(round, 2);
    let expires = Instant::now() + Duration::from_secs(2);
    while Instant::now() <= expires {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let name = format!("waits-{round}");
    let (code, answer) = http.request(Method::POST, REQUESTS, node_request(&name)).await;
    assert_eq!(code, 201, "{answer}");
    let path = format!("{REQUESTS}/{name}");
    let delayed = |request: &Value| {
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == DELAYED)
    };
    let request = wait_until(http, &path, PATIENCE, |request| delayed(request).is_some()).await;
    let condition = delayed(&request).unwrap();
    assert_eq!(condition["reason"], "SignerExpired", "{condition}");

    files.install_valid(round, 3600);
    let issued = |request: &Value| request["status"]["certificate"].is_string();
    let request = wait_until(http, &path, SOON, issued).await;
    assert!(delayed(&request).is_none(), "{request}");
}

async fn wait_until(
    http: &HttpClient,
    path: &str,
    patience: Duration,
    good: impl Fn(&Value) -> bool,
) -> Value {
    retry_async(patience, async || {
        let (_, request) = http.request(Method::GET, path, Value::Null).await;
        if good(&request) { Ok(request) } else { Err(request) }
    })
    .await
}
