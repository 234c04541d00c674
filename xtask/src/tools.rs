//! External programs of the tests: etcd, kubectl, Python with the Kubernetes client, strace, SoftHSM, pkcs11-tool,
//! promtool.
//!
//! Installed programs are used; missing ones go into `.tools/`, which git ignores. Debian packages
//! are unpacked there rather than installed: that needs no root, and starts no service. A tool that
//! can be neither found nor fetched is an error that names what to install.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Version of the official Python client that the tests use.
const PYTHON_CLIENT: &str = "37.0.2";

/// Paths of the programs, which tests receive through environment variables.
pub struct TestTools {
    /// `etcd`, for the suites that run on it.
    pub etcd: PathBuf,
    /// `kubectl`, of any version from 1.20 on.
    pub kubectl: PathBuf,
    /// A Python that can `import kubernetes`.
    pub python: PathBuf,
    /// `strace`, which makes system calls fail.
    pub strace: PathBuf,
    /// `softhsm2-util`, with the library of SoftHSM in the `lib` beside its directory.
    pub softhsm: PathBuf,
    /// `pkcs11-tool`, which shows what a token holds.
    pub pkcs11_tool: PathBuf,
    /// `promtool`, which tests the alert rules.
    pub promtool: PathBuf,
}

impl TestTools {
    /// Finds every tool and fetches missing ones.
    pub fn provide(root: &Path) -> Result<Self> {
        let dir = root.join(".tools");
        Ok(Self {
            etcd: program(&dir, &["etcd", "etcdctl"], &["etcd-server", "etcd-client"])?,
            kubectl: program(&dir, &["kubectl"], &["kubernetes-client"])?,
            python: python(&dir)?,
            strace: program(&dir, &["strace"], &["strace"])?,
            softhsm: program(&dir, &["softhsm2-util"], &["softhsm2", "libsofthsm2"])?,
            pkcs11_tool: program(&dir, &["pkcs11-tool"], &["opensc", "opensc-pkcs11"])?,
            promtool: program(&dir, &["promtool"], &["prometheus"])?,
        })
    }
}

/// Returns the first of several programs that tests expect in one directory: from `PATH`, from an
/// earlier run, or unpacked from Debian packages. `etcd` on `PATH` without `etcdctl` beside it does
/// not count.
fn program(dir: &Path, names: &[&str], packages: &[&str]) -> Result<PathBuf> {
    let [name, ..] = names else { bail!("no program is named") };
    let is_complete = |found: &Path| names.iter().all(|name| found.with_file_name(name).exists());
    if let Some(found) = on_path(name).filter(|found| is_complete(found)) {
        return Ok(found);
    }
    let unpacked = dir.join("bin").join(name);
    if is_complete(&unpacked) {
        return Ok(unpacked);
    }
    unpack(dir, packages).with_context(|| {
        format!(
            "{names:?} are not on PATH and the Debian packages {packages:?} cannot be fetched; install {name}"
        )
    })?;
    ensure!(is_complete(&unpacked), "the Debian packages {packages:?} lack one of {names:?}; install {name}");
    Ok(unpacked)
}

/// Unpacks Debian packages into `.tools/deb` and links their programs from `/usr/bin`.
fn unpack(dir: &Path, packages: &[&str]) -> Result<()> {
    eprintln!("xtask: fetching {}", packages.join(", "));
    let apt = dir.join("apt");
    let unpacked = dir.join("deb");
    let bin = dir.join("bin");
    for made in ["lists/partial", "archives/partial", "debs"] {
        fs::create_dir_all(apt.join(made))?;
    }
    fs::create_dir_all(&unpacked)?;
    fs::create_dir_all(&bin)?;

    // Separate package lists and cache, so that neither root nor a recent `apt-get update` is
    // needed.
    let own = |command: &mut Command| {
        command
            .arg("-qq")
            .arg("-o")
            .arg(format!("Dir::State::lists={}", apt.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", apt.display()))
            .arg("-o")
            .arg("APT::Sandbox::User=root");
    };
    let mut update = Command::new("apt-get");
    own(&mut update);
    succeed(update.arg("update"))?;
    let mut download = Command::new("apt-get");
    own(&mut download);
    succeed(download.arg("download").args(packages).current_dir(apt.join("debs")))?;

    for package in fs::read_dir(apt.join("debs"))? {
        let package = package?.path();
        succeed(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked))?;
        fs::remove_file(package)?;
    }
    for program in fs::read_dir(unpacked.join("usr/bin"))? {
        let program = program?;
        let link = bin.join(program.file_name());
        if link.symlink_metadata().is_err() {
            symlink(program.path(), link)?;
        }
    }
    Ok(())
}

/// Returns the virtual environment's Python, with exactly the pinned client.
fn python(dir: &Path) -> Result<PathBuf> {
    let venv = dir.join("venv");
    let python = venv.join("bin/python");
    if client_version(&python).as_deref() == Some(PYTHON_CLIENT) {
        return Ok(python);
    }
    let system = on_path("python3").or_else(|| install(&["python3", "python3-venv"], "python3"));
    let Some(system) = system else {
        bail!("python3 is not on PATH and cannot be installed; install python3 and python3-venv");
    };
    eprintln!("xtask: installing the Python client {PYTHON_CLIENT}");
    let make = || succeed(Command::new(&system).args(["-m", "venv", "--clear"]).arg(&venv));
    if make().is_err() {
        // Debian ships venv in a separate package.
        install(&["python3-venv"], "python3");
        make().context("python3 -m venv does not work; install python3-venv")?;
    }
    succeed(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .arg(format!("kubernetes=={PYTHON_CLIENT}")),
    )
    .context("the official Python client cannot be installed")?;
    ensure!(
        client_version(&python).as_deref() == Some(PYTHON_CLIENT),
        "the virtual environment does not hold kubernetes=={PYTHON_CLIENT}"
    );
    Ok(python)
}

/// Installs Debian packages on the system, if permitted.
fn install(packages: &[&str], program: &str) -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let mut command = if root {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "apt-get"]);
        sudo
    };
    succeed(command.args(["install", "-qq", "-y"]).args(packages)).ok()?;
    on_path(program)
}

fn client_version(python: &Path) -> Option<String> {
    let output = Command::new(python)
        .args(["-c", "import importlib.metadata as m; print(m.version('kubernetes'))"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    Some(version.trim().to_owned())
}

/// Returns the path of a program on `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Runs a command that must succeed; its output goes to stderr.
pub fn succeed(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.stdout(std::io::stderr()).status().with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}
