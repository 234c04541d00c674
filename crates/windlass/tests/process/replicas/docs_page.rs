//! Runs the documentation page about high availability, and checks etcd's flags in the unit with
//! etcd.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::server::{PATIENCE, wait};
use crate::trust_docs::{code_blocks, programs, shell};

const PAGE: &str = include_str!("../../../../../docs/high-availability.md");
const UNIT: &str = include_str!("../../../../../deploy/systemd/etcd.service");
const MANIFEST: &str = include_str!("../../../../../deploy/kubernetes/windlass-ha.yaml");

/// A shell and all processes that it started.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Returns four digits that form free ports with a leading digit from 1 to 3. The kernel does not
/// assign these by itself.
fn digits() -> String {
    let free = |digits: &String| (1..=3).all(|n| TcpListener::bind(format!("127.0.0.1:{n}{digits}")).is_ok());
    let mut tries = (0..1000).map(|_| format!("{:04}", rand::random_range(0..2700)));
    tries.find(free).unwrap()
}

/// Returns the script of the page, with unused ports.
fn script() -> String {
    let (clients, peers, server) = (digits(), digits(), digits());
    let mut script = code_blocks(PAGE, "sh").concat();
    for (ours, used) in [
        ("2379", &clients),
        ("2380", &peers),
        ("6443", &format!("1{server}")),
        ("6444", &format!("2{server}")),
    ] {
        assert!(script.contains(ours));
        script = script.replace(ours, used);
    }
    script
}

#[test]
fn everything_can_be_pasted() {
    let place = tempfile::tempdir().unwrap();
    let programs = programs(place.path());
    if let Some(etcd) = std::env::var_os("WINDLASS_ETCD") {
        std::os::unix::fs::symlink(&etcd, programs.join("etcd")).unwrap();
        let control = Path::new(&etcd).with_file_name("etcdctl");
        std::os::unix::fs::symlink(control, programs.join("etcdctl")).unwrap();
    }
    let file = |name: &str| File::create(place.path().join(name)).unwrap();
    let mut command = shell(&script(), place.path(), &programs);
    command.process_group(0).stdout(file("said")).stderr(file("complained"));
    let mut group = ProcessGroup(command.spawn().unwrap());
    let status = wait(&mut group.0, PATIENCE * 6);
    drop(group);
    let said = fs::read_to_string(place.path().join("said")).unwrap();
    if !status.is_some_and(|status| status.success()) {
        let logs = fs::read_dir(place.path().join("ha")).into_iter().flatten().flatten();
        let logs: Vec<PathBuf> = logs.map(|log| log.path()).collect();
        for log in logs.iter().filter(|log| log.extension().is_some_and(|end| end == "log")) {
            eprintln!("--- {}\n{}", log.display(), fs::read_to_string(log).unwrap_or_default());
        }
        let complained = fs::read_to_string(place.path().join("complained")).unwrap();
        panic!("{status:?}\n{said}\n{complained}");
    }
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.contains(&"hello") && lines.contains(&"here"), "{said}");
    assert!(said.contains("greeting is back"), "{said}");
    for name in ["bob", "carol"] {
        assert!(place.path().join("ha").join(name).join("tls.crt").exists(), "{said}");
    }
}

#[test]
fn etcd_knows_the_flags_that_it_is_given() {
    let program = std::env::var("WINDLASS_ETCD").unwrap_or_else(|_| "etcd".into());
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = [output.stdout, output.stderr].concat();
    let help = String::from_utf8_lossy(&help);
    let (_, manifest) = MANIFEST.split_once("command: [etcd]").unwrap();
    let (manifest, _) = manifest.split_once("env:").unwrap();
    let (_, page) = PAGE.split_once("etcd --name m$n").unwrap();
    let (page, _) = page.split_once("> etcd-$n.log").unwrap();
    for text in [UNIT, manifest, page] {
        let words = text.split_whitespace().filter(|word| word.starts_with("--"));
        let flags: Vec<_> = words.map(|word| word.split('=').next().unwrap()).collect();
        assert!(flags.len() > 5, "{flags:?}");
        for flag in flags {
            assert!(help.contains(&format!("{flag} ")), "etcd has no {flag}");
        }
    }
}
