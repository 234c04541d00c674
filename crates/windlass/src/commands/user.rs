//! `windlass user`: creates client credentials for users.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_server::MASTERS;

use super::{data_dir, print};
use crate::cli::{UserAddArgs, UserCommand};
use crate::datadir::{self, NewUser};

/// Runs a subcommand of `windlass user`.
pub fn run(command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Add(arguments) => add(&arguments),
    }
}

fn add(arguments: &UserAddArgs) -> Result<()> {
    if arguments.output.format.is_some() && arguments.out.as_deref() == Some(Path::new("-")) {
        bail!("--output cannot be used with --out -: both write to standard output");
    }
    let layout = data_dir::layout(&arguments.data)?;
    let now = OffsetDateTime::now_utc();
    let expires = arguments.expires.from(now).context("--expires is out of range")?;
    let user = NewUser {
        name: &arguments.name,
        groups: &arguments.group,
        expires,
        server: arguments.server.as_deref(),
        certificate_authority: arguments.certificate_authority.as_deref(),
    };
    let made = datadir::create_user_credential(&layout, &user, now)?;
    if arguments.group.iter().any(|group| group == MASTERS) {
        eprintln!(
            "windlass: warning: {MASTERS} grants full access, which cannot be revoked before {}",
            made.until
        );
    }
    // Certificate times have a resolution of one second.
    if made.until + time::Duration::SECOND < expires {
        eprintln!("windlass: warning: the client CA expires earlier; the certificate expires {}", made.until);
    }
    let path = arguments.out.clone().unwrap_or_else(|| default_file(&arguments.name));
    if path == Path::new("-") {
        return print::write_stdout(&made.kubeconfig);
    }
    datadir::write_new(&path, made.kubeconfig)?;
    let document = json!({
        "name": arguments.name,
        "groups": arguments.group,
        "notAfter": timestamp::format(made.until),
        "kubeconfig": path,
    });
    print::show(&document, arguments.output.format, |_| {
        format!("wrote {}: user {}, expires {}\n", path.display(), arguments.name, made.until.date())
    })
}

/// Returns a file name such as `alice.kubeconfig`; characters with a meaning in paths become
/// dashes.
fn default_file(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || "-_.@".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    PathBuf::from(format!("{}.kubeconfig", name.trim_start_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_the_file_elsewhere() {
        for (name, file) in [
            ("alice", "alice.kubeconfig"),
            ("system:node:n1", "system-node-n1.kubeconfig"),
            ("../../etc/x", "-..-etc-x.kubeconfig"),
        ] {
            assert_eq!(default_file(name), Path::new(file));
        }
    }
}
