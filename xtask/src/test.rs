//! `cargo xtask test`: tools, build, all tests with a total count, and the attacks.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::tools::{TestTools, on_path, succeed};
use crate::{attack, tidy};

#[derive(clap::Args)]
pub struct TestArgs {
    /// Run the long variants: more kills, more cases, the slow limits
    #[arg(long)]
    long: bool,
    /// Use `cargo test` even if cargo-nextest is installed
    #[arg(long)]
    no_nextest: bool,
    /// Run only tests whose name contains this text
    filter: Option<String>,
}

/// Builds the binary in the selection of the tests. Another selection has other features, and Cargo would compile most
/// crates twice.
pub const BUILD_WITH_TESTS: [&str; 3] = ["build", "--workspace", "--all-targets"];

/// Installs tools, runs tidy, builds, tests and counts.
pub fn run(root: &Path, args: &TestArgs) -> Result<()> {
    let tools = TestTools::provide(root)?;
    succeed(cargo(root).args(BUILD_WITH_TESTS))?;
    let tidied = tidy::run(root);

    let mut count = TestCount::default();
    if on_path("cargo-nextest").is_some() && !args.no_nextest {
        let mut nextest = cargo(root);
        nextest.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        count.add(&mut nextest, &tools, args)?;
    } else {
        let mut test = cargo(root);
        test.args(["test", "--workspace", "--no-fail-fast", "--all-targets"]);
        count.add(&mut test, &tools, args)?;
    }
    // Neither nextest nor `--all-targets` runs documentation tests.
    let mut doc = cargo(root);
    doc.args(["test", "--workspace", "--no-fail-fast", "--doc"]);
    count.add(&mut doc, &tools, args)?;

    println!("xtask test: {} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    // Runs alone on the machine, because it measures latency.
    let withstood = match args.filter {
        None => attack::run(root, &attack::AttackArgs::debug()),
        Some(_) => Ok(()),
    };
    tidied?;
    withstood.context("cargo xtask attack --debug")?;
    ensure!(count.failed == 0 && count.broken.is_empty(), "failed: {}", count.broken.join(", "));
    ensure!(count.passed > 0 || args.filter.is_some(), "no test ran at all");
    Ok(())
}

/// Returns a command for the current Cargo, in the workspace.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// Totals of all test runners.
#[derive(Default)]
struct TestCount {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Failed runs, including those without a count (a build error).
    broken: Vec<String>,
}

impl TestCount {
    /// Runs one test runner, forwards its output and parses its summaries.
    fn add(&mut self, runner: &mut Command, tools: &TestTools, args: &TestArgs) -> Result<()> {
        runner
            .env("WINDLASS_ETCD", &tools.etcd)
            .env("WINDLASS_KUBECTL", &tools.kubectl)
            .env("WINDLASS_STRACE", &tools.strace)
            .env("WINDLASS_PYTHON", &tools.python)
            .env("WINDLASS_SOFTHSM", &tools.softhsm)
            .env("WINDLASS_PKCS11_TOOL", &tools.pkcs11_tool)
            .env("WINDLASS_PROMTOOL", &tools.promtool)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if args.long {
            runner.env("WINDLASS_LONG", "1");
        }
        runner.args(&args.filter);
        let shown = format!("{runner:?}");
        let mut child = runner.spawn().with_context(|| format!("cannot run {shown}"))?;
        let (lines, received) = channel();
        let out = child.stdout.take().map(|pipe| forward_lines(pipe, std::io::stdout(), lines.clone()));
        let err = child.stderr.take().map(|pipe| forward_lines(pipe, std::io::stderr(), lines));
        for line in received {
            self.read(&line);
        }
        for reader in [out, err].into_iter().flatten() {
            reader.join().ok();
        }
        let status = child.wait()?;
        // nextest's exit code for a filter without matches.
        let nothing = args.filter.is_some() && status.code() == Some(4);
        if !status.success() && !nothing {
            self.broken.push(shown);
        }
        Ok(())
    }

    /// Parses `Summary [1.2s] 9 tests run: 8 passed (1 slow), 1 failed, 0 skipped` of nextest, or
    /// `test result: ok. 8 passed; 1 failed; 0 ignored; …` of the built-in harness.
    fn read(&mut self, line: &str) {
        let counts = if let Some(summary) = line.trim_start().strip_prefix("Summary [") {
            summary.split_once(':').map(|(_, counts)| counts)
        } else {
            // An indented line is nextest's repeated output of a failed test.
            line.strip_prefix("test result:")
        };
        let Some(counts) = counts else { return };
        let words: Vec<&str> =
            counts.split([' ', ',', ';', '(', ')']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let [number, what] = pair else { continue };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match *what {
                "passed" => self.passed += number,
                "failed" | "timed" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// Copies a pipe to its destination and sends every line to the channel.
fn forward_lines(
    pipe: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    lines: Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            to.write_all(&line).and_then(|()| to.flush()).ok();
            lines.send(String::from_utf8_lossy(&line).into_owned()).ok();
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::TestCount;

    #[test]
    fn both_runners_are_counted() {
        let cases = [
            ("     Summary [   1.204s] 12 tests run: 12 passed, 3 skipped", (12, 0, 3)),
            (
                "     Summary [   9.1s] 9 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 0 skipped",
                (6, 3, 0),
            ),
            (
                "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
                (5, 0, 1),
            ),
            ("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured", (5, 2, 0)),
            ("    test result: FAILED. 0 passed; 1 failed; 0 ignored", (0, 0, 0)),
            ("    PASS [   0.005s] windlass-api names::tests::names", (0, 0, 0)),
        ];
        for (line, expected) in cases {
            let mut count = TestCount::default();
            count.read(line);
            assert_eq!((count.passed, count.failed, count.skipped), expected, "{line}");
        }
    }
}
