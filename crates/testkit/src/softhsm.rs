//! PKCS#11 tokens of SoftHSM in a temporary directory.
//!
//! `cargo xtask test` says in `WINDLASS_SOFTHSM` and `WINDLASS_PKCS11_TOOL` where `softhsm2-util` and `pkcs11-tool` are;
//! without that, they are searched on `PATH`. A missing program fails the test.
//!
//! The library finds its tokens through the environment variable `SOFTHSM2_CONF` of its process, which a test cannot set
//! for itself. [`SoftHsm::run_test`] therefore runs the test again in a child process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// User PIN of all tokens; [`SoftHsm::pin_file`] contains it.
pub const PIN: &str = "7351";

const DIRECTORY: &str = "WINDLASS_SOFTHSM_DIRECTORY";

/// A directory with tokens, and the programs that manage them.
pub struct SoftHsm {
    directory: PathBuf,
    util: PathBuf,
    tool: PathBuf,
}

impl SoftHsm {
    /// Calls `test` in a child process whose SoftHSM has no tokens yet. `name` is the full name of the calling test.
    pub fn run_test(name: &str, test: impl FnOnce(&Self)) {
        if let Some(directory) = env::var_os(DIRECTORY) {
            return test(&Self::open(Path::new(&directory)));
        }
        let directory = tempfile::tempdir().unwrap();
        let hsm = Self::open(directory.path());
        hsm.create();
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env("SOFTHSM2_CONF", hsm.config())
            .output()
            .unwrap();
        let output = [child.stdout, child.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    fn open(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            util: find_program("WINDLASS_SOFTHSM", "softhsm2-util"),
            tool: find_program("WINDLASS_PKCS11_TOOL", "pkcs11-tool"),
        }
    }

    fn create(&self) {
        fs::create_dir(self.tokens()).unwrap();
        fs::write(self.pin_file(), format!("{PIN}\n")).unwrap();
        let config = format!("directories.tokendir = {}\nlog.level = ERROR\n", self.tokens().display());
        fs::write(self.config(), config).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.directory.join("softhsm2.conf")
    }

    fn tokens(&self) -> PathBuf {
        self.directory.join("tokens")
    }

    /// File with the PIN of all tokens, followed by a line end.
    pub fn pin_file(&self) -> PathBuf {
        self.directory.join("pin")
    }

    /// Path of the PKCS#11 library, beside `softhsm2-util` in the directory tree of its package.
    pub fn module(&self) -> PathBuf {
        let module = prefix(&self.util).join("lib/softhsm/libsofthsm2.so");
        assert!(module.exists(), "{} is missing; install libsofthsm2", module.display());
        module
    }

    /// Creates a token with this label.
    pub fn init_token(&self, label: &str) {
        let mut command = Command::new(&self.util);
        command.arg("--module").arg(self.module()).args(["--init-token", "--free", "--label", label]);
        command.args(["--pin", PIN, "--so-pin", "1234567"]).env("SOFTHSM2_CONF", self.config());
        succeed(command);
    }

    /// Generates a key pair in a token; `kind` is `rsa:3072` or `EC:prime256v1`, `id` is in hexadecimal.
    pub fn generate_key(&self, token: &str, kind: &str, label: &str, id: &str) {
        let generate = ["--keypairgen", "--key-type", kind, "--label", label, "--id", id, "--usage-sign"];
        succeed(self.pkcs11_tool(token, &generate));
    }

    /// Imports a private key in PKCS#8 PEM.
    pub fn import_key(&self, token: &str, pem: &str, label: &str, id: &str) {
        let file = self.directory.join("imported.pem");
        fs::write(&file, pem).unwrap();
        let mut command = Command::new(&self.util);
        command.arg("--module").arg(self.module()).arg("--import").arg(&file).args(["--token", token]);
        command.args(["--label", label, "--id", id, "--pin", PIN]).env("SOFTHSM2_CONF", self.config());
        succeed(command);
        fs::remove_file(file).unwrap();
    }

    /// Returns the DER of the public key of a pair.
    pub fn public_key(&self, token: &str, id: &str) -> Vec<u8> {
        let file = self.directory.join("public.der");
        let read = ["--read-object", "--type", "pubkey", "--id", id, "--output-file", file.to_str().unwrap()];
        succeed(self.pkcs11_tool(token, &read));
        fs::read(file).unwrap()
    }

    /// Returns a `pkcs11-tool` command that is logged in to a token.
    pub fn pkcs11_tool(&self, token: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.arg("--module").arg(self.module()).args(["--login", "--pin", PIN, "--token-label", token]);
        command.args(arguments).env("SOFTHSM2_CONF", self.config());
        // An unpacked package has its libraries beside its programs, where the linker does not search.
        let libraries =
            fs::read_dir(prefix(&self.tool).join("lib")).unwrap().map(|entry| entry.unwrap().path());
        let libraries = libraries.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        command.env("LD_LIBRARY_PATH", env::join_paths(libraries).unwrap());
        command
    }

    /// Removes all tokens from their slots.
    pub fn remove_tokens(&self) {
        fs::rename(self.tokens(), self.directory.join("removed")).unwrap();
        fs::create_dir(self.tokens()).unwrap();
    }

    /// Inserts the removed tokens again.
    pub fn insert_tokens(&self) {
        fs::remove_dir_all(self.tokens()).unwrap();
        fs::rename(self.directory.join("removed"), self.tokens()).unwrap();
    }
}

/// Returns the real path of a program, from an environment variable or from `PATH`.
fn find_program(variable: &str, name: &str) -> PathBuf {
    let given = env::var_os(variable).map(PathBuf::from);
    let on_path = || {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
    };
    let program = given.or_else(on_path);
    let program =
        program.unwrap_or_else(|| panic!("{name} is needed: `cargo xtask test` fetches it, or install it"));
    program.canonicalize().unwrap()
}

/// Returns the directory above `bin`.
fn prefix(program: &Path) -> &Path {
    program.parent().and_then(Path::parent).unwrap()
}

fn succeed(mut command: Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
