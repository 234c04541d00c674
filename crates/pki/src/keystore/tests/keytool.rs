//! Stores read by Java's keytool, if installed; the other readers are always tested.

use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Output};

use super::*;

/// Runs keytool on a store; `None` if keytool is not installed.
fn keytool(store: &[u8], password: Option<&str>, arguments: &[&str]) -> Option<Output> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    fs::write(&file, store).unwrap();
    let mut command = Command::new("keytool");
    // Java starts faster with fewer optimizations.
    command.args(["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]);
    command.args(["-J-Dfile.encoding=UTF-8", "-J-Dstdout.encoding=UTF-8", "-J-Duser.language=en"]);
    // keytool does not detect the type of a nearly empty store.
    let kind = if store.starts_with(&[0xFE, 0xED]) { "JKS" } else { "PKCS12" };
    command.args(arguments).args(["-storetype", kind, "-keystore"]).arg(file);
    if let Some(password) = password {
        command.args(["-storepass", password]);
    }
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        output => Some(output.unwrap()),
    }
}

/// Returns alias and SHA-256 of the anchors that keytool lists.
fn listed(output: &Output) -> Vec<(String, String)> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(entry) = line.strip_suffix(", trustedCertEntry, ") else { continue };
        // The date, which contains a comma, is between the alias and the kind.
        let alias = entry.rsplitn(3, ", ").last().unwrap();
        let fingerprint = lines.next().unwrap().rsplit(' ').next().unwrap();
        found.push((alias.to_owned(), fingerprint.replace(':', "").to_lowercase()));
    }
    found.sort();
    found
}

fn expected(store: &TrustStore) -> Vec<(String, String)> {
    let entries = store.entries.iter();
    let mut expected = entries
        .map(|entry| (entry.alias.to_lowercase(), hex(digest(&SHA256, &entry.der).as_ref())))
        .collect::<Vec<_>>();
    expected.sort();
    expected
}

#[test]
fn reads_trust_stores() {
    let names = (0..150).map(|number| format!("Anchor {number}")).collect::<Vec<_>>();
    let mut anchors = anchors(&names.iter().map(String::as_str).collect::<Vec<_>>());
    anchors.extend(similar_certificates());
    anchors.push(anchor());
    for anchors in [anchors, Vec::new()] {
        let store = TrustStore::new(&anchors);
        let password = password("changeit");
        let mut written = vec![("jks", store.to_jks(&password).unwrap())];
        for (name, protection) in protections(&password) {
            written.push((name, store.to_pkcs12(&protection).unwrap()));
        }
        for (name, written) in written {
            let secret = (name != "open").then_some("changeit");
            let Some(output) = keytool(&written, secret, &["-list"]) else { return };
            assert_eq!(listed(&output), expected(&store), "{name}");
        }
    }
}

#[test]
fn refuses_a_wrong_password() {
    let anchors = anchors(&["one"]);
    let store = TrustStore::new(&anchors);
    let password = password("changeit");
    let mut written = vec![("jks", store.to_jks(&password).unwrap())];
    for profile in Pkcs12Profile::ALL {
        let sealed = KeystoreProtection::Sealed { password: &password, profile };
        written.push((profile.name(), store.to_pkcs12(&sealed).unwrap()));
    }
    for (name, written) in written {
        let Some(output) = keytool(&written, Some("changeIt"), &["-list"]) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains("password was incorrect"), "{name} {text}");
    }
}

#[test]
fn uses_keys_with_their_chains() {
    let key = PrivateKey::generate().unwrap();
    let chain = chain(&key);
    let password = password("secret");
    for profile in Pkcs12Profile::ALL {
        let store = KeyStore::new("Web", &key, &chain).unwrap().to_pkcs12(&password, profile);
        let store = store.unwrap();
        let Some(output) = keytool(&store, Some("secret"), &["-list", "-v"]) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        for line in ["Alias name: web", "Entry type: PrivateKeyEntry", "Certificate chain length: 2"] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        // Signing a request requires the private key.
        let request = keytool(&store, Some("secret"), &["-certreq", "-alias", "web"]).unwrap();
        let request = String::from_utf8(request.stdout).unwrap();
        let block = crate::pem::blocks(request.as_bytes()).unwrap().remove(0);
        let request = crate::CertificateRequest::from_der(&block.contents).unwrap();
        assert_eq!(request.public_key().as_der(), key.public_key().as_der());
    }
}
