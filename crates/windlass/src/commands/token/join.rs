//! Kubeconfig and command with which a machine joins.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use serde_json::json;
use zeroize::Zeroizing;

use crate::commands::{api_client, print};
use crate::shell;

/// Directory on the node in which the command stores certificates.
const PLACE: &str = "windlass-node";

/// Returns a self-contained kubeconfig that authenticates with the token, for use on another
/// machine.
pub fn kubeconfig(config: &Config, url: &str, token: &str) -> Result<Zeroizing<String>> {
    let mut cluster = api_client::cluster(config);
    cluster["server"] = json!(url);
    if let Some(file) = &config.root_cert_file {
        let text =
            std::fs::read(file).with_context(|| format!("cannot read the CA in {}", file.display()))?;
        cluster["certificate-authority-data"] = json!(STANDARD.encode(text));
        if let Some(cluster) = cluster.as_object_mut() {
            cluster.remove("certificate-authority");
        }
    }
    let user = "tls-bootstrap-token-user";
    let text = print::yaml(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "bootstrap",
    }))?;
    Ok(Zeroizing::new(text))
}

/// Returns the command for a machine that has the kubeconfig in a file.
pub fn with_file(file: &Path) -> String {
    let file = file.to_string_lossy();
    let file = shell::word(&file);
    format!(
        "windlass node --bootstrap-kubeconfig {file} --kubeconfig {PLACE}/kubeconfig --cert-dir {PLACE}/pki --node-name \"$(uname -n)\""
    )
}

/// Returns the command for a machine that has no kubeconfig yet. A shell builtin receives the
/// token, so that it does not appear in process lists.
pub fn without_file(kubeconfig: &str) -> Zeroizing<String> {
    let text = Zeroizing::new(STANDARD.encode(kubeconfig));
    let file = format!("{PLACE}/bootstrap.kubeconfig");
    let join = with_file(Path::new(&file));
    Zeroizing::new(format!(
        "mkdir -p {PLACE} && (umask 077 && echo {} | base64 -d > {file}) && {join}",
        *text
    ))
}

/// Returns whether only this machine can reach the address.
pub fn is_local(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn config() -> Config {
        let mut config = Config::new("https://127.0.0.1:6443".parse().unwrap());
        config.root_cert = Some(vec![b"certificate".to_vec()]);
        config
    }

    #[test]
    fn a_kubeconfig_has_all_in_it() {
        let text = kubeconfig(&config(), "https://192.0.2.1:6443", "abcdef.0123456789abcdef");
        let read: serde_json::Value = serde_saphyr::from_str(&text.unwrap()).unwrap();
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://192.0.2.1:6443");
        let ca = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
        assert!(ca.starts_with(b"-----BEGIN CERTIFICATE-----\n"));
        assert_eq!(read["users"][0]["user"]["token"], "abcdef.0123456789abcdef");
        // A file path is of no use elsewhere, so its contents are embedded.
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "anchors").unwrap();
        let mut config = config();
        config.root_cert_file = Some(file.path().into());
        let text = kubeconfig(&config, "https://a", "t").unwrap();
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(cluster["certificate-authority-data"], STANDARD.encode("anchors"));
        assert!(cluster.get("certificate-authority").is_none());
    }

    #[test]
    fn the_command_writes_the_file_and_starts_the_node() {
        let text = kubeconfig(&config(), "https://192.0.2.1:6443", "t").unwrap();
        let place = tempfile::tempdir().unwrap();
        let command = without_file(&text);
        let (prepare, join) = command.rsplit_once(" && ").unwrap();
        let status = Command::new("sh").args(["-c", prepare]).current_dir(place.path()).status();
        assert!(status.unwrap().success());
        let file = "windlass-node/bootstrap.kubeconfig";
        let path = place.path().join(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), *text);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(join, with_file(Path::new(file)));
        assert!(with_file(Path::new("my file")).contains(" --bootstrap-kubeconfig 'my file' "));
    }

    #[test]
    fn some_addresses_are_of_no_use_elsewhere() {
        for (url, local) in [
            ("https://127.0.0.1:6443", true),
            ("https://127.9.0.1", true),
            ("https://[::1]:6443/", true),
            ("https://localhost:6443", true),
            ("https://192.0.2.1:6443", false),
            ("https://api.example.com", false),
        ] {
            assert_eq!(is_local(url), local, "{url}");
        }
    }
}
