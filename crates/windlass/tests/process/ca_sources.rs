//! Runs the documentation page about CA sources.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use windlass_testkit::SoftHsm;

use crate::server::{PATIENCE, TestDataDir};
use crate::trust_docs::{code_blocks, paste, programs, shell};

const PAGE: &str = include_str!("../../../../docs/ca-sources.md");
const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// Blocks that prepare the token, before the server starts with its library.
const TOKEN_BLOCKS: [&str; 2] = ["softhsm2-util --init-token", "openssl req -new -key root.key"];

/// Adds the programs of SoftHSM, as installed packages would.
fn add_token_programs(hsm: &SoftHsm, programs: &Path) {
    if let Some(util) = std::env::var_os("WINDLASS_SOFTHSM") {
        let script = format!(
            "#!/bin/sh\nexec {} --module {} \"$@\"\n",
            Path::new(&util).display(),
            hsm.module().display()
        );
        write_program(&programs.join("softhsm2-util"), &script);
    }
    // An unpacked package has its libraries beside its programs, where the linker does not search.
    let tool: Command = hsm.pkcs11_tool("cas", &[]);
    let libraries = tool.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let libraries = libraries.and_then(|(_, value)| value).unwrap().to_str().unwrap();
    let program = tool.get_program().to_str().unwrap();
    let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} \"$@\"\n");
    write_program(&programs.join("pkcs11-tool"), &script);
}

fn write_program(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run_page(hsm: &SoftHsm) {
    let place = TestDataDir::new();
    let path = place.path().to_owned();
    let programs = programs(&path);
    add_token_programs(hsm, &programs);
    let is_token_block = |block: &&str| TOKEN_BLOCKS.iter().any(|words| block.contains(words));
    let (token, rest): (Vec<&str>, Vec<&str>) = code_blocks(PAGE, "sh").into_iter().partition(is_token_block);
    assert_eq!((token.len(), rest.len()), (2, 5));
    let module = hsm.module().display().to_string();
    let prepared = shell(&token.concat().replace(MODULE, &module), &path, &programs).output().unwrap();
    let listed = String::from_utf8_lossy(&prepared.stdout);
    assert!(prepared.status.success(), "{listed}{}", String::from_utf8_lossy(&prepared.stderr));
    assert!(listed.contains("Access:     sensitive, always sensitive, never extractable, local"), "{listed}");

    // Other tests run servers at the same time.
    let up = code_blocks(PAGE, "console")[0].replace(MODULE, &module);
    let up = up.replace("$ windlass up", "exec windlass up --no-node --listen 127.0.0.1:0");
    let server = place.launch(shell(&up, &path, &programs));
    let script = format!("export KUBECONFIG=data/admin.kubeconfig\n{}", rest.concat());
    let said = paste(&server, &script, &programs, PATIENCE * 6);
    for source in ["generated", "provided", "filed", "token", "team"] {
        assert!(said.contains(&format!("{source}/tls.crt: OK\n")), "{source}: {said}");
    }
}

#[test]
fn everything_can_be_pasted() {
    SoftHsm::run_test("ca_sources::everything_can_be_pasted", run_page);
}
