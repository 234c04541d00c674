//! Runs a program without a shell, and kills its whole process group if it exceeds the time limit.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::super::HostProjection;

/// Output that is kept, in bytes.
const MAX_OUTPUT: usize = 8 << 10;
/// How long to wait for remaining output after the program exited: a child process may keep the
/// pipe open.
const DRAIN: Duration = Duration::from_millis(100);

/// Runs a program, which must exit successfully. Dropping the future kills it.
pub async fn run(arguments: &[String], projection: &HostProjection) -> Result<(), String> {
    let Some((program, arguments)) = arguments.split_first() else {
        return Err("there is no command".to_owned());
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("WINDLASS_PROJECTION", &projection.name)
        .env("WINDLASS_DIRECTORY", &projection.directory)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let (mut out, mut err) = (CapturedOutput::default(), CapturedOutput::default());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // Dropped before the child, while the PID still belongs to it.
    let group = ProcessGroup(group);
    let status = {
        let mut output = std::pin::pin!(async {
            tokio::join!(out.read(stdout), err.read(stderr));
        });
        let mut has_output = true;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = &mut output, if has_output => has_output = false,
            }
        };
        if has_output {
            let _ = tokio::time::timeout(DRAIN, output).await;
        }
        status
    };
    group.release();
    let (stdout, stderr) = (out.text(), err.text());
    tracing::debug!(projection = %projection.name, program, %stdout, %stderr, "command ended");
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A process group, killed on drop unless it is released.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may have exited already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The beginning of a program's output.
#[derive(Default)]
struct CapturedOutput(Vec<u8>);

impl CapturedOutput {
    /// Reads to the end, so that the program does not block on a full pipe.
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let room = MAX_OUTPUT.saturating_sub(self.0.len());
            self.0.extend(buffer.iter().take(length.min(room)));
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}
