//! Runs the documentation page about trust anchors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::{PATIENCE, TestDataDir, TestServer};

const PAGE: &str = include_str!("../../../../docs/trust.md");

/// Unmounts the node's volumes on drop, so that the directory can be removed.
pub struct MountGuard(pub PathBuf);

impl Drop for MountGuard {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
    }
}

/// Creates a directory with our program and kubectl, for `PATH`.
pub fn programs(place: &Path) -> PathBuf {
    let programs = place.join("bin");
    fs::create_dir(&programs).unwrap();
    let windlass = Path::new(env!("CARGO_BIN_EXE_windlass"));
    std::os::unix::fs::symlink(windlass, programs.join("windlass")).unwrap();
    if let Some(kubectl) = std::env::var_os("WINDLASS_KUBECTL") {
        std::os::unix::fs::symlink(kubectl, programs.join("kubectl")).unwrap();
    }
    programs
}

pub fn shell(script: &str, place: &Path, programs: &Path) -> Command {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(place).env("PATH", path).env("HOME", place);
    command.stdin(Stdio::null());
    command
}

pub fn code_blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let mark = format!("\n```{language}\n");
    page.split(mark.as_str()).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// Runs a script beside a server and returns its output; it must succeed within the time.
pub fn paste(server: &TestServer, script: &str, programs: &Path, limit: Duration) -> String {
    let inner = shell(script, server.place().path(), programs);
    let mut command = Command::new("timeout");
    command.arg(limit.as_secs().to_string()).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(server.place().path()).stdin(Stdio::null());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}\n--- log\n{}", server.place().log());
    said
}

#[test]
fn everything_can_be_pasted() {
    let place = TestDataDir::new();
    let path = place.path().to_owned();
    let programs = programs(&path);
    let blocks = code_blocks(PAGE, "sh");
    let (first, rest) = blocks.split_first().unwrap();
    // Other tests run servers at the same time.
    let first = first.replace("windlass up", "exec windlass up --listen 127.0.0.1:0");
    let server = place.launch(shell(&first, &path, &programs));
    let _mounted = MountGuard(path.join("data/node/pods"));
    let said = paste(&server, &rest.concat(), &programs, PATIENCE * 4);
    assert_eq!(said.matches("server/tls.crt: OK\n").count(), 3, "{said}");
    let numbers = said.lines().filter(|line| line.len() == 1).collect::<Vec<_>>();
    assert_eq!(numbers, ["2", "1", "2"], "{said}");
}
