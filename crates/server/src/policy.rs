//! The default roles and bindings, and how they get into the store.
//!
//! - `defaults.policy` is what there is, one line a rule; [`parse`] reads it.
//! - [`merge`] says what has to be written so that an object grants what it should; [`coverage`] says
//!   whether rules already do.
//!
//! What is missing comes back at every start; what was added stays. Whoever wants an object left
//! alone annotates it with `rbac.authorization.kubernetes.io/autoupdate: "false"`.
//!
//! The policy is brought in before the server is handed out, so nobody is served with half of it
//! while all goes well. A server that could not bring it in still starts, because only then can
//! an administrator see and mend why (`system:masters` needs no roles, and a role that is not
//! there allows nothing). But it says so: `/readyz` fails and the log has an error, until one of
//! the tries that follow works out.

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

/// Whether the default policy is in place.
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
    /// Whether every default object was seen to grant what it should since the start.
    pub fn is_applied(&self) -> bool {
        *self.applied.borrow()
    }

    /// Returns a receiver whose value becomes true once all defaults are applied.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.applied.subscribe()
    }
}

/// How long until the next try when the policy could not be brought in.
const RETRY: Duration = Duration::from_secs(1);

/// Brings the default policy in. If that fails, goes on trying while the server runs.
pub(crate) async fn establish(server: &Arc<Server>) {
    if !try_once(server).await {
        tokio::spawn(retry_until_applied(server.clone()));
    }
}

async fn retry_until_applied(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    loop {
        tokio::select! {
            // An error means that whoever could shut down is gone: that is the end as well.
            _ = shutdown.wait_for(|down| *down) => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        // Some objects live in namespaces, which may be what is missing.
        crate::server::create_namespaces(&server).await;
        if try_once(&server).await {
            tracing::info!("default policy applied");
            return;
        }
    }
}

/// Goes through all objects, at the same time, so that the store writes them together.
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

/// How often an object is looked at again because somebody else wrote it meanwhile.
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

/// Why a write did not happen.
enum PolicyWriteError {
    Conflict,
    Refused(String),
}

async fn write(
    server: &Server,
    local: &LocalClient,
    preset: &DefaultObject,
) -> Result<(), PolicyWriteError> {
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

async fn send(
    local: &LocalClient,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(), PolicyWriteError> {
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
        // It is there already, was changed, or is gone.
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
