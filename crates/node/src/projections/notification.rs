//! How an application is notified of changed files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use http::{HeaderMap, Method, Uri};
use rustix::process::Signal;

/// Default time limit of an attempt.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Default number of retries after a failure.
pub const RETRIES: u32 = 5;
/// Signals that make applications reload their files, or exit to be restarted.
pub const SIGNALS: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
];

/// One notification of one application.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// The signal, command or HTTP request to send.
    pub how: NotificationMethod,
    /// Time limit of each attempt.
    pub timeout: Duration,
    /// Number of retries after the first attempt.
    pub retries: u32,
}

/// How an application is notified. The display form omits arguments and queries, which may contain
/// secrets.
#[derive(Clone, Debug, PartialEq)]
pub enum NotificationMethod {
    /// Sends a signal to the process whose PID is in a file.
    Signal {
        /// The signal to send, one of `SIGNALS`.
        signal: Signal,
        /// Path of the file that contains the process ID as decimal text.
        pid_file: PathBuf,
    },
    /// Runs a program with its arguments, without a shell.
    Command(Vec<String>),
    /// Sends an HTTP request, which must be answered with 2xx.
    Http {
        /// The `http://` URL to request; it must not contain user information.
        url: Uri,
        /// The HTTP method of the request, such as `POST`.
        method: Method,
        /// Additional headers, whose values are marked as sensitive.
        headers: HeaderMap,
    },
}

impl NotificationMethod {
    /// Returns the name used in the projections file and in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Signal { .. } => "signal",
            Self::Command(_) => "command",
            Self::Http { .. } => "http",
        }
    }

    /// Returns an ID that is stable while the definition is unchanged. It reveals nothing about the
    /// definition.
    pub fn id(&self) -> String {
        let mut context = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        };
        add(self.kind().as_bytes());
        match self {
            Self::Signal { signal, pid_file } => {
                add(&signal.as_raw().to_be_bytes());
                add(pid_file.as_os_str().as_encoded_bytes());
            }
            Self::Command(arguments) => arguments.iter().for_each(|part| add(part.as_bytes())),
            Self::Http { url, method, headers } => {
                add(url.to_string().as_bytes());
                add(method.as_str().as_bytes());
                for (name, value) in headers {
                    add(name.as_str().as_bytes());
                    add(value.as_bytes());
                }
            }
        }
        let digest = context.finish();
        digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for NotificationMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal { signal, pid_file } => {
                let known = SIGNALS.iter().find(|(_, known)| known == signal);
                let name = known.map_or("", |(name, _)| name);
                write!(f, "signal {name} to the process of {}", pid_file.display())
            }
            Self::Command(arguments) => {
                write!(f, "command {}", arguments.first().map_or("", String::as_str))
            }
            Self::Http { url, method, .. } => {
                let host = url.authority().map_or("", |authority| authority.as_str());
                write!(f, "{method} http://{host}{}", url.path())
            }
        }
    }
}
