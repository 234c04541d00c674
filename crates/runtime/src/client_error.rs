//! Descriptions of Kubernetes client errors: one line, no debug dump, and the server URL where a connection failed.
//!
//! `kube::Error` prints API errors with `{:?}`, and TLS errors as the names of Rust variants. Everything
//! that logs or prints a client's error formats it with [`describe`].

mod tls;

use std::error::Error;
use std::fmt;
use std::io;

use kube::client::{Client, ClientBuilder};
use kube::runtime::watcher;
use tower::BoxError;
use tower::util::{MapErr, MapErrLayer};

/// Describes an error and its causes. The first client error in the chain ends the description and is reduced to one line;
/// our own errors keep their line breaks, which may separate commands to copy.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut parts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(description) = client_error(error) {
            parts.push(one_line(&description));
            break;
        }
        parts.push(error.to_string());
        next = error.source();
    }
    parts.join(": ")
}

/// A client whose connection errors name the URL of its server.
pub fn connect(config: kube::Config) -> kube::Result<Client> {
    let url = config.cluster_url.clone();
    Ok(name_server(ClientBuilder::try_from(config)?, &url).build())
}

/// Lets connection errors of a client name the URL of its server.
pub fn name_server<S>(
    builder: ClientBuilder<S>,
    url: &http::Uri,
) -> ClientBuilder<MapErr<S, impl Fn(BoxError) -> BoxError + Clone + Send + 'static>> {
    let url = url.to_string().trim_end_matches('/').to_owned();
    builder.with_layer(&MapErrLayer::new(move |source: BoxError| -> BoxError {
        // The client takes its own errors out of the box, for example those of credentials.
        if source.is::<kube::Error>() {
            return source;
        }
        Box::new(ConnectionError { url: url.clone(), source })
    }))
}

/// A failed connection to the server at a URL.
#[derive(Debug)]
struct ConnectionError {
    url: String,
    source: BoxError,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, connection_cause(&*self.source))
    }
}

impl Error for ConnectionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Describes an error of the client library; `None` for any other error.
fn client_error(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<kube::Error>() {
        return Some(describe_request_error(error));
    }
    if let Some(error) = error.downcast_ref::<ConnectionError>() {
        return Some(error.to_string());
    }
    let description = match error.downcast_ref::<watcher::Error>()? {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe_request_error(error),
        watcher::Error::WatchError(status) => describe_status(status),
        error @ watcher::Error::NoResourceVersion => error.to_string(),
    };
    Some(description)
}

fn describe_request_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => describe_status(status),
        kube::Error::Service(source) => connection_cause(&**source),
        kube::Error::HyperError(source) => connection_cause(source),
        kube::Error::ReadEvents(source) => connection_cause(source),
        error => error.to_string(),
    }
}

/// Describes an error response. Messages of API servers already name what is forbidden, invalid or missing.
fn describe_status(status: &kube::core::Status) -> String {
    match (status.code, status.message.as_str()) {
        (401, _) => "unauthorized: the server rejected the credentials".to_owned(),
        (code, "") => format!("the server answered {code} {}", status.reason),
        (_, message) => message.to_owned(),
    }
}

/// Why a connection failed: the TLS error in the chain, or else the last error.
fn connection_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<ConnectionError>() {
            return error.to_string();
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return tls::describe_tls_error(error);
        }
        last = error;
        next = error.source();
        if let Some(error) = error.downcast_ref::<io::Error>() {
            if let Some(description) = describe_socket_error(error.kind()) {
                return description.to_owned();
            }
            // `source` of an I/O error skips the error that it wraps.
            if let Some(wrapped) = error.get_ref() {
                next = Some(wrapped);
            }
        }
    }
    last.to_string()
}

fn describe_socket_error(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::ConnectionRefused => Some("connection refused"),
        io::ErrorKind::TimedOut => Some("connection timed out"),
        io::ErrorKind::HostUnreachable => Some("host unreachable"),
        io::ErrorKind::NetworkUnreachable => Some("network unreachable"),
        _ => None,
    }
}

/// Removes control characters: the text comes from the server and must not break the line or control a terminal.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, reason).with_code(code)))
    }

    #[test]
    fn responses_are_described_by_the_message_of_the_server() {
        let forbidden = "nodes is forbidden: User \"a\" cannot list resource \"nodes\"";
        for (error, expected) in [
            (api(403, "Forbidden", forbidden), forbidden),
            (api(401, "Unauthorized", "no"), "unauthorized: the server rejected the credentials"),
            (api(500, "InternalError", ""), "the server answered 500 InternalError"),
            (api(400, "BadRequest", "two\nlines\u{1b}[2J"), "two lines [2J"),
        ] {
            assert_eq!(describe(&error), expected);
            let watch = watcher::Error::WatchStartFailed(error);
            assert_eq!(describe(&watch), expected);
        }
    }

    #[derive(Debug)]
    struct SigningError(kube::Error);

    impl fmt::Display for SigningError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot sign")
        }
    }

    impl Error for SigningError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn context_precedes_the_client_error() {
        let error = SigningError(api(409, "Conflict", "it changed"));
        assert_eq!(describe(&error), "cannot sign: it changed");
    }

    #[test]
    fn connection_errors_name_the_server_and_the_cause() {
        let refused = io::Error::from_raw_os_error(111);
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let expired = io::Error::new(io::ErrorKind::InvalidData, expired);
        let unknown = io::Error::other("failed to lookup address information");
        for (source, description) in [
            (refused, "connection refused"),
            (expired, "the server's certificate has expired"),
            (unknown, "failed to lookup address information"),
        ] {
            let url = "https://192.0.2.1:6443".to_owned();
            let error = kube::Error::Service(Box::new(ConnectionError { url, source: source.into() }));
            assert_eq!(describe(&error), format!("https://192.0.2.1:6443: {description}"));
        }
    }
}
