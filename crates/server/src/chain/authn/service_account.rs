//! Authentication with service account tokens.
//!
//! [`TokenVerifier`] checks the signature. Everything that can change between two requests is
//! checked here each time: the clock, the account, and the objects that the token is bound to.

use std::sync::Arc;

use serde_json::Value;
use time::{Duration, OffsetDateTime};
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;
use windlass_api::timestamp;

use super::{AuthenticatedToken, TokenAuthError, intersection};
use crate::server::Server;
use crate::tokens::claims::{ClaimReference, TokenClaims};
use crate::tokens::{TokenRejection, TokenVerifier};
use crate::user::User;

/// Tolerated clock skew, and how long an object counts after its deletion timestamp; same as
/// Kubernetes.
const LEEWAY: Duration = Duration::minutes(1);

/// Authenticates a token that is valid for any of `audiences`.
pub(crate) fn identify(
    server: &Server,
    verifier: &TokenVerifier,
    token: &str,
    audiences: &[String],
    now: OffsetDateTime,
) -> Result<AuthenticatedToken, TokenAuthError> {
    let claims = verifier.verify(token).map_err(|why| match why {
        TokenRejection::NotOurs => TokenAuthError::Unknown,
        TokenRejection::NoKey | TokenRejection::Signature | TokenRejection::Claims => {
            TokenAuthError::Refused(why.to_string())
        }
    })?;
    let meant = intersection(&claims.audiences, audiences);
    if meant.is_empty() {
        let text = format!(
            "token audiences {} is invalid for the target audiences {}",
            listed(&claims.audiences),
            listed(audiences)
        );
        return Err(TokenAuthError::Refused(text));
    }
    check_time(&claims, now)?;
    check_objects(server, &claims, now)?;
    Ok(AuthenticatedToken { user: Arc::new(user(&claims)), audiences: meant })
}

/// Returns the core objects that a token of this server depends on, as plural and key.
pub(crate) fn dependencies(verifier: &TokenVerifier, token: &str) -> Vec<(&'static str, String)> {
    let Ok(claims) = verifier.verify(token) else { return Vec::new() };
    let about = &claims.kubernetes;
    let local = |name: &str| format!("{}/{name}", about.namespace);
    let mut objects = vec![("serviceaccounts", local(&about.account.name))];
    objects.extend(about.secret.as_ref().map(|secret| ("secrets", local(&secret.name))));
    objects.extend(about.pod.as_ref().map(|pod| ("pods", local(&pod.name))));
    objects.extend(about.node.as_ref().map(|node| ("nodes", node.name.clone())));
    objects
}

fn refuse<T>(text: impl Into<String>) -> Result<T, TokenAuthError> {
    Err(TokenAuthError::Refused(text.into()))
}

/// Formats a list like Go's `%q`.
fn listed(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

fn check_time(claims: &TokenClaims, now: OffsetDateTime) -> Result<(), TokenAuthError> {
    let (now, leeway) = (now.unix_timestamp(), LEEWAY.whole_seconds());
    if claims.not_before.is_some_and(|from| now.saturating_add(leeway) < from) {
        return refuse("service account token is not valid yet");
    }
    if now.saturating_sub(leeway) > claims.expiry {
        return refuse("service account token has expired");
    }
    if claims.issued_at.is_some_and(|at| now.saturating_add(leeway) < at) {
        return refuse(
            "service account token claims could not be validated due to unexpected validation error",
        );
    }
    Ok(())
}

/// Checks that the account and all bound objects exist, with the same UIDs, and are not deleted.
fn check_objects(server: &Server, claims: &TokenClaims, now: OffsetDateTime) -> Result<(), TokenAuthError> {
    let about = &claims.kubernetes;
    let (namespace, account) = (&about.namespace, &about.account);
    if claims.subject != format!("system:serviceaccount:{namespace}:{}", account.name) {
        return refuse("service account token is not that of its subject");
    }
    let key = format!("{namespace}/{}", account.name);
    let Some(found) = server.core_object("serviceaccounts", &key)? else {
        return refuse(format!("serviceaccounts {} not found", quote(&account.name)));
    };
    let uid = ObjectMetaView::from_object(&found).uid();
    if uid != account.uid {
        let claimed = &account.uid;
        return refuse(format!("service account UID ({uid}) does not match claim ({claimed})"));
    }
    if is_past_deletion(&found, now) {
        return refuse(format!("service account {key} has been deleted"));
    }
    if let Some(secret) = &about.secret {
        check_bound(server, "secret", Some(namespace), secret, now)?;
    }
    match (&about.pod, &about.node) {
        // A pod's node is informational; the token is bound to the pod.
        (Some(pod), _) => check_bound(server, "pod", Some(namespace), pod, now),
        (None, Some(node)) => check_bound(server, "node", None, node, now),
        (None, None) => Ok(()),
    }
}

fn check_bound(
    server: &Server,
    what: &str,
    namespace: Option<&str>,
    bound: &ClaimReference,
    now: OffsetDateTime,
) -> Result<(), TokenAuthError> {
    let name = &bound.name;
    let key = namespace.map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"));
    let Some(found) = server.core_object(&format!("{what}s"), &key)? else {
        return refuse("service account token has been invalidated");
    };
    let uid = ObjectMetaView::from_object(&found).uid();
    if uid != bound.uid {
        let claimed = &bound.uid;
        return refuse(format!(
            "{what} UID ({uid}) does not match service account {what} ref claim ({claimed})"
        ));
    }
    if is_past_deletion(&found, now) {
        return refuse("service account token has been invalidated");
    }
    Ok(())
}

/// Returns true if the deletion timestamp has passed or cannot be parsed.
fn is_past_deletion(object: &Value, now: OffsetDateTime) -> bool {
    ObjectMetaView::from_object(object)
        .deletion_timestamp()
        .is_some_and(|text| timestamp::parse(text).map_or(true, |gone| gone < now - LEEWAY))
}

fn user(claims: &TokenClaims) -> User {
    let about = &claims.kubernetes;
    let groups =
        vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", about.namespace)];
    let mut user = User::authenticated(&claims.subject, &about.account.uid, groups);
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            let key = format!("authentication.kubernetes.io/{key}");
            user.extra.insert(key, vec![value.to_owned()]);
        }
    };
    if let Some(id) = claims.id.as_deref().filter(|id| !id.is_empty()) {
        add("credential-id", &format!("JTI={id}"));
    }
    if let Some(pod) = &about.pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    if let Some(node) = &about.node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    user
}
