//! `windlass rotate` on a terminal: confirmation, and the live view.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{SIGNER, held_status, set_rotation, signer_server, start};
use crate::issue::windlass_ok;
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, lines, wait};

/// Runs its arguments on a terminal that is connected to its standard input and output.
const ON_TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

fn spawn(admin: &Kubectl, args: &[&str]) -> Child {
    let python = std::env::var_os("WINDLASS_PYTHON").unwrap_or(OsString::from("python3"));
    Command::new(python)
        .args(["-c", ON_TERMINAL, env!("CARGO_BIN_EXE_windlass")])
        .args(args)
        .env("KUBECONFIG", &admin.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python must be installed (cargo xtask test does it)")
}

#[test]
fn an_emergency_is_confirmed() {
    let admin = signer_server();
    for (answer, code, rotations) in [("n\n", 1, 0), ("\n", 1, 0), ("y\n", 0, 1)] {
        let mut child = spawn(&admin, &["rotate", "start", SIGNER, "--compromised"]);
        let output = lines(child.stdout.take().unwrap());
        // The question has no line end, so the line before it is waited for.
        let heard = |words: &str| {
            while !output.recv_timeout(PATIENCE).expect(words).contains(words) {}
        };
        heard("Reads are not waited for");
        child.stdin.as_mut().unwrap().write_all(answer.as_bytes()).unwrap();
        let status = wait(&mut child, PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(code), "{answer:?}");
        let names = windlass_ok(&admin, &["rotate", "status", "-o", "name"]);
        assert_eq!(names.lines().count(), rotations, "{answer:?}: {names}");
    }
}

#[test]
fn the_view_is_redrawn() {
    let admin = signer_server();
    let name = start(&admin, &[]);
    let mut child = spawn(&admin, &["rotate", "status", SIGNER, "--watch"]);
    let output = lines(child.stdout.take().unwrap());
    let heard = |words: &str| loop {
        let line = output.recv_timeout(PATIENCE).expect(words);
        if line.contains(words) {
            return line;
        }
    };
    let first = heard("carotation.windlass.dev/");
    assert!(first.starts_with("\u{1b}[H\u{1b}[2J"), "{first:?}");
    set_rotation(&admin, &name, held_status());
    heard("[>] WaitingForTrust");
    heard("LAGGARD");
    set_rotation(&admin, &name, json!({"phase": "Completed"}));
    heard("[x] Completed");
    assert!(wait(&mut child, PATIENCE).expect("it ends").success());
}
