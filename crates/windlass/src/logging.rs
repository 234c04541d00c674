//! Logging to standard error, as text or JSON.

use std::io::{IsTerminal, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{LogArgs, LogFormat, LogLevel};

/// Installs the logger for the whole process.
pub fn start(arguments: &LogArgs) {
    let layer = match arguments.log_format {
        LogFormat::Text => {
            let colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(stderr).boxed()
        }
        LogFormat::Json => {
            tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(stderr).boxed()
        }
    };
    let layer = layer.with_filter(targets(level(arguments)));
    // Fails only if a logger is already installed.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

fn level(arguments: &LogArgs) -> LevelFilter {
    match (arguments.verbose, arguments.log_level) {
        (0, LogLevel::Error) => LevelFilter::ERROR,
        (0, LogLevel::Warn) => LevelFilter::WARN,
        (0, LogLevel::Info) => LevelFilter::INFO,
        (1, _) | (0, LogLevel::Debug) => LevelFilter::DEBUG,
        (2.., _) | (0, LogLevel::Trace) => LevelFilter::TRACE,
    }
}

/// These targets log errors that they also return; callers report them with context.
const ECHOES: [&str; 2] = ["kube_client::client::builder", "kube_runtime::watcher"];

/// Selects what is logged at a level. Libraries log every frame, so their events are included with
/// trace only.
fn targets(level: LevelFilter) -> Targets {
    let libraries = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::INFO) };
    let echoes = if level == LevelFilter::TRACE { level } else { LevelFilter::OFF };
    // Matches by prefix, which includes crates such as windlass_server.
    Targets::new()
        .with_default(libraries)
        .with_target("windlass", level)
        .with_targets(ECHOES.map(|echo| (echo, echoes)))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_are_quiet_below_trace() {
        for (level, ours, theirs) in [
            (LevelFilter::WARN, false, false),
            (LevelFilter::DEBUG, true, false),
            (LevelFilter::TRACE, true, true),
        ] {
            let targets = targets(level);
            assert_eq!(targets.would_enable("windlass_server::watch", &Level::DEBUG), ours);
            assert_eq!(targets.would_enable("h2::codec", &Level::DEBUG), theirs);
        }
        assert!(targets(LevelFilter::WARN).would_enable("rustls", &Level::WARN));
        assert!(!targets(LevelFilter::WARN).would_enable("rustls", &Level::INFO));
        for echo in ECHOES {
            assert!(!targets(LevelFilter::DEBUG).would_enable(echo, &Level::ERROR));
        }
    }
}
