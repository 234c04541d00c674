//! Signers of the user's own, as the page about them says.

use std::fs;
use std::process::{Command, Stdio};

use crate::server::Place;

const PAGE: &str = include_str!("../../../../docs/signers.md");

/// A text of this kind in the page, after so many others.
fn fenced(kind: &str, others: usize) -> &'static str {
    let text = PAGE.split(&format!("```{kind}\n")).nth(others + 1).unwrap();
    text.split_once("```").unwrap().0
}

/// The commands of a console, as a script that ends with the first that fails.
fn script(console: &str) -> String {
    let commands = console.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let script = commands.collect::<Vec<_>>().join("\n");
    // Who types is slower than the signer; a script may not be.
    let waits = "kubectl wait --for=condition=Approved csr/web\n";
    let issued = "until kubectl get csr web -o yaml | grep -q certificate:; do sleep 0.1; done\n";
    assert!(script.contains(waits), "{script}");
    let program = r#"kubectl() { command "${WINDLASS_KUBECTL:-kubectl}" "$@"; }"#;
    format!("set -euo pipefail\n{program}\n{}", script.replace(waits, &format!("{waits}{issued}")))
}

#[test]
fn the_page_is_right() {
    let place = Place::new();
    fs::create_dir(place.data()).unwrap();
    fs::write(place.data().join("signers.yaml"), fenced("yaml", 0)).unwrap();
    let server = place.start();
    let output = Command::new("bash")
        .arg("-c")
        .arg(script(fenced("console", 1)))
        .current_dir(server.place().path())
        .env("HOME", server.place().path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("web.crt: OK\n"), "{said}");
    assert!(server.place().data().join("ca/server-tls/ca.key").exists());
}

#[test]
fn a_bad_file_is_refused_at_the_start_by_its_place() {
    let place = Place::new();
    let file = place.path().join("signers.yaml");
    fs::write(&file, fenced("yaml", 0).replace("longest: 2160h", "longest: \"24\"")).unwrap();
    let said = format!(
        "{}:13:14: signers[0].requests.longest: \"24\" is not a duration such as 24h",
        file.display()
    );
    let mut up = place.again();
    up.arg("--signers").arg(&file);
    let mut controllers = Command::new(env!("CARGO_BIN_EXE_windlass"));
    controllers.args(["controllers", "--kubeconfig", "nowhere", "--signers"]).arg(&file);
    for mut command in [up, controllers] {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        assert!(errors.contains(&said), "{errors}");
    }
}
