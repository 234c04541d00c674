//! `/healthz`, `/livez`, `/readyz` and `/version`.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::ResponseBody;
use crate::limits;
use crate::request::query::QueryParameters;
use crate::response;
use crate::server::Server;

struct HealthCheck {
    name: &'static str,
    is_healthy: fn(&Server) -> bool,
}

const PING: HealthCheck = HealthCheck { name: "ping", is_healthy: |_| true };
const STORE: HealthCheck =
    HealthCheck { name: "etcd", is_healthy: |server| server.store.failure().is_none() };
/// A server cut off from its store may be stale while others are not. It is unready but alive: a
/// restart would not help.
const REACH: HealthCheck = HealthCheck {
    name: "etcd-readiness",
    is_healthy: |server| server.store.lost_since().is_none_or(|since| since.elapsed() < limits::CUT_OFF),
};
const POLICY: HealthCheck = HealthCheck {
    name: "poststarthook/rbac/bootstrap-roles",
    is_healthy: |server| server.policy.is_applied(),
};
/// With a strict audit log, a server that cannot write it rejects nearly all requests.
const AUDIT: HealthCheck =
    HealthCheck { name: "audit-log", is_healthy: |server| !server.audit.rejects_requests() };
const SHUTDOWN: HealthCheck =
    HealthCheck { name: "shutdown", is_healthy: |server| !server.is_shutting_down() };

/// Serves a health path; `None` if the check does not exist.
pub(crate) fn health(server: &Server, path: &str, query: &QueryParameters) -> Option<Response<ResponseBody>> {
    let (root, single) = match path.trim_end_matches('/').trim_start_matches('/').split_once('/') {
        Some((root, check)) => (root, Some(check)),
        None => (path.trim_matches('/'), None),
    };
    let checks: &[HealthCheck] = match root {
        "healthz" | "livez" => &[PING, STORE],
        "readyz" => &[PING, STORE, REACH, POLICY, AUDIT, SHUTDOWN],
        _ => return None,
    };
    if let Some(name) = single {
        let check = checks.iter().find(|c| c.name == name)?;
        return Some(report(server, root, std::slice::from_ref(check), query, true));
    }
    Some(report(server, root, checks, query, false))
}

fn report(
    server: &Server,
    root: &str,
    checks: &[HealthCheck],
    query: &QueryParameters,
    single: bool,
) -> Response<ResponseBody> {
    let excluded: Vec<&str> = query.values("exclude").collect();
    let mut lines = String::new();
    let mut well = true;
    for check in checks {
        if excluded.contains(&check.name) {
            lines.push_str(&format!("[+]{} excluded: ok\n", check.name));
        } else if (check.is_healthy)(server) {
            lines.push_str(&format!("[+]{} ok\n", check.name));
        } else {
            lines.push_str(&format!("[-]{} failed: reason withheld\n", check.name));
            well = false;
        }
    }
    if !well {
        lines.push_str(&format!("{root} check failed\n"));
        return response::text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    if single || query.flag("verbose").is_none() {
        return response::text(StatusCode::OK, "ok");
    }
    lines.push_str(&format!("{root} check passed\n"));
    response::text(StatusCode::OK, lines)
}

/// Returns the body of `/version`: the implemented Kubernetes version and our own.
pub(crate) fn version() -> Value {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": concat!("v1.37.0+windlass.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{platform}", std::env::consts::OS),
    })
}
