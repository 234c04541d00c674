//! Default roles and bindings, and their reconciliation at startup.
//!
//! - `defaults.policy` lists them, one rule per line; [`parse`] parses it.
//! - [`merge`] decides what to write so that an object grants its defaults; [`coverage`] checks
//!   whether rules already do.
//!
//! Missing grants are restored at every start; additions are kept. The annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` excludes an object.
//!
//! The policy is applied before the server accepts requests. A server that fails to apply it still
//! starts, because only then can an administrator find and fix the cause (`system:masters` needs no
//! roles, and a missing role allows nothing). `/readyz` fails and an error is logged until a retry
//! succeeds.

pub(crate) mod coverage;
pub(crate) mod merge;
pub(crate) mod parse;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::local_client::LocalClient;
use crate::server::Server;
use crate::user::{MASTERS, User};
use merge::MergeAction;
use parse::DefaultObject;

/// Whether the default policy is applied.
#[derive(Debug)]
pub struct DefaultPolicy {
    applied: watch::Sender<bool>,
}

impl Default for DefaultPolicy {
    fn default() -> DefaultPolicy {
        DefaultPolicy { applied: watch::Sender::new(false) }
    }
}

impl DefaultPolicy {
    /// Returns true once every default object was verified since the start.
    pub fn is_applied(&self) -> bool {
        *self.applied.borrow()
    }

    /// Returns a receiver whose value becomes true once all defaults are applied.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.applied.subscribe()
    }
}

/// Delay before retrying to apply the policy.
const RETRY: Duration = Duration::from_secs(1);

/// Applies the default policy. On failure, retries while the server runs.
pub(crate) async fn establish(server: &Arc<Server>) {
    if !try_once(server).await {
        tokio::spawn(retry_until_applied(server.clone()));
    }
}

async fn retry_until_applied(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    loop {
        tokio::select! {
            // An error means that the sender is gone, which is a shutdown as well.
            _ = shutdown.wait_for(|down| *down) => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        // Some objects are namespaced, and their namespace may be missing.
        crate::server::create_namespaces(&server).await;
        if try_once(&server).await {
            tracing::info!("default policy applied");
            return;
        }
    }
}

/// Applies all objects concurrently, so that the store batches the writes.
async fn try_once(server: &Arc<Server>) -> bool {
    let presets = match parse::defaults(server.features) {
        Ok(presets) => presets,
        Err(error) => {
            tracing::error!(%error, "default policy rejected");
            return false;
        }
    };
    let owner = User::authenticated("system:apiserver", "", vec![MASTERS.into()]);
    let local = LocalClient::new(server.clone(), owner);
    let served = presets.iter().filter(|d| server.caches.for_kind(d.kind).is_some());
    let outcomes = join_all(served.map(|preset| apply_default(server, &local, preset))).await;
    let in_place = outcomes.into_iter().all(|good| good);
    server.policy.applied.send_replace(in_place);
    in_place
}

/// Attempts per object after conflicts.
const TRIES: usize = 5;

async fn apply_default(server: &Server, local: &LocalClient, preset: &DefaultObject) -> bool {
    let mut why = "too many concurrent updates".to_owned();
    for _ in 0..TRIES {
        match write(server, local, preset).await {
            Ok(()) => return true,
            Err(PolicyWriteError::Conflict) => {}
            Err(PolicyWriteError::Refused(message)) => {
                why = message;
                break;
            }
        }
    }
    let (kind, key) = (preset.kind.name, &preset.key);
    tracing::error!(kind, key, error = why, "default policy object not applied; retrying");
    false
}

/// Why a write of a default object failed.
enum PolicyWriteError {
    Conflict,
    Refused(String),
}

async fn write(server: &Server, local: &LocalClient, preset: &DefaultObject) -> Result<(), PolicyWriteError> {
    let found = server.caches.for_kind(preset.kind).and_then(|cache| cache.get(&preset.key));
    let existing = found.map(|object| object.value(preset.kind, preset.kind.stored()));
    let (all, one) = (preset.collection(), preset.path());
    match merge::plan_merge(&preset.object, existing.as_ref()) {
        MergeAction::Keep => Ok(()),
        MergeAction::Create => send(local, Method::POST, &all, &preset.object).await,
        MergeAction::Update(object) => send(local, Method::PUT, &one, &object).await,
        MergeAction::Replace { uid } => {
            let options = json!({"preconditions": {"uid": uid}});
            send(local, Method::DELETE, &one, &options).await?;
            send(local, Method::POST, &all, &preset.object).await
        }
    }
}

async fn send(local: &LocalClient, method: Method, path: &str, body: &Value) -> Result<(), PolicyWriteError> {
    let refused = |error: &dyn std::fmt::Display| PolicyWriteError::Refused(error.to_string());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(USER_AGENT, "windlass")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()))
        .map_err(|error| refused(&error))?;
    let response = local.clone().oneshot(request).await.map_err(|error| refused(&error))?;
    let code = response.status().as_u16();
    match code {
        200..=299 => Ok(()),
        // It already exists, was changed, or was deleted.
        404 | 409 => Err(PolicyWriteError::Conflict),
        _ => {
            let body = response.into_body().collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default();
            Err(PolicyWriteError::Refused(format!("{code} {message}")))
        }
    }
}
