//! Commands in the README: each must exist.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::CommandFactory;

use crate::XtaskCommand;

/// Checks every command in the README's code blocks.
///
/// `windlass …` commands are checked against the built binary, if there is one.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let Ok(readme) = fs::read_to_string(root.join("README.md")) else {
        findings.push("README.md: there is none".to_owned());
        return Ok(());
    };
    let binary = root.join("target/debug/windlass");
    for command in commands(&readme) {
        let known = match &command {
            DocumentedCommand::Chore(name) => XtaskCommand::command().find_subcommand(name).is_some(),
            DocumentedCommand::Windlass(name) => {
                !binary.exists() || Command::new(&binary).args([name, "--help"]).output()?.status.success()
            }
        };
        if !known {
            findings.push(format!("README.md: {command:?} does not exist"));
        }
    }
    Ok(())
}

/// A command line shown in the README.
#[derive(Debug, PartialEq)]
enum DocumentedCommand {
    Chore(String),
    Windlass(String),
}

fn commands(readme: &str) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in readme.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside;
            continue;
        }
        if !inside {
            continue;
        }
        let words: Vec<&str> = line.trim_start_matches("$ ").split_whitespace().collect();
        let name =
            |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-').then(|| word.to_owned());
        match words.as_slice() {
            ["cargo", "xtask", chore, ..] => found.extend(name(chore).map(DocumentedCommand::Chore)),
            // Output of the server, not a command.
            ["windlass", "is", ..] => {}
            ["cargo", "run", "--release", "--", command, ..] | ["windlass", command, ..] => {
                found.extend(name(command).map(DocumentedCommand::Windlass));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_code_blocks_only() {
        let readme = "cargo xtask nothing\n```sh\n$ cargo xtask test --long\nwindlass up --no-node # x\ncargo run --release -- up\nwindlass issue | csr\nwindlass is ready at https://127.0.0.1:6443\n```\n";
        let expected = [
            DocumentedCommand::Chore("test".to_owned()),
            DocumentedCommand::Windlass("up".to_owned()),
            DocumentedCommand::Windlass("up".to_owned()),
            DocumentedCommand::Windlass("issue".to_owned()),
        ];
        assert_eq!(commands(readme), expected);
    }
}
