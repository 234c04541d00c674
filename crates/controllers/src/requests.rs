//! Requests for certificates that wait for somebody, as a watch last saw them.
//!
//! What needs no more work is let go at once, so this holds what is pending and not the archive. If
//! very many are pending, only the names of most are held, and each is read when it is its turn.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::feed;
use crate::metrics::Counters;
use crate::queue::Queue;

/// A request for a certificate.
pub type Request = CertificateSigningRequest;
/// One thing that is said about it.
pub type Condition = CertificateSigningRequestCondition;

/// Somebody allowed it.
pub const APPROVED: &str = "Approved";
/// Somebody forbade it.
pub const DENIED: &str = "Denied";
/// A signer refused it.
pub const FAILED: &str = "Failed";

/// So many requests are held as a whole: a few MiB.
const WHOLE: usize = 2_000;

/// The requests that wait, by name.
#[derive(Default)]
pub struct Requests {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    by_name: HashMap<String, Entry>,
    whole: usize,
}

struct Entry {
    uid: Option<String>,
    since: Instant,
    request: Option<Arc<Request>>,
}

/// A request and since when it is known to wait.
#[derive(Clone)]
pub struct Waiting {
    /// The request.
    pub request: Arc<Request>,
    /// When it was first seen waiting.
    pub since: Instant,
}

impl Requests {
    /// The request of this name, if it waits.
    pub async fn read(
        &self,
        api: &Api<Request>,
        name: &str,
    ) -> Result<Option<Waiting>, kube::Error> {
        let found = self.lock().by_name.get(name).map(|entry| (entry.request.clone(), entry.since));
        let Some((request, since)) = found else { return Ok(None) };
        let request = match request {
            Some(request) => Some(request),
            None => api.get_opt(name).await?.map(Arc::new),
        };
        Ok(request.map(|request| Waiting { request, since }))
    }

    /// The names of those that wait and are such, or may be.
    pub fn names(&self, such: impl Fn(&Request) -> bool) -> Vec<String> {
        let held = self.lock();
        let may_be = |entry: &Entry| entry.request.as_ref().is_none_or(|request| such(request));
        let such = held.by_name.iter().filter(|(_, entry)| may_be(entry));
        such.map(|(name, _)| name.clone()).collect()
    }

    fn keep(&self, name: String, request: Request) {
        let mut held = self.lock();
        let uid = request.metadata.uid.clone();
        let before = held.remove(&name).filter(|before| before.uid == uid);
        let since = before.map_or_else(Instant::now, |before| before.since);
        let request = (held.whole < WHOLE).then(|| Arc::new(request));
        held.whole += usize::from(request.is_some());
        held.by_name.insert(name, Entry { uid, since, request });
    }

    fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn retain(&self, names: &HashSet<String>) {
        let mut held = self.lock();
        held.by_name.retain(|name, _| names.contains(name));
        held.whole = held.by_name.values().filter(|entry| entry.request.is_some()).count();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.by_name.remove(name)?;
        self.whole -= usize::from(entry.request.is_some());
        Some(entry)
    }
}

/// Watches all requests, keeps those that are wanted, and puts their names into the queue. Does
/// not end.
pub async fn follow(
    client: Client,
    counters: &'static Counters,
    requests: &Requests,
    queue: &Queue<String>,
    wanted: impl Fn(&Request) -> bool,
) {
    let api: Api<Request> = Api::all(client);
    let mut listed = HashSet::new();
    let take = |mut request: Request| {
        let name = request.name_any();
        if wanted(&request) {
            // Nobody here needs them, and what is not sent back is left as it is.
            request.metadata.managed_fields = None;
            requests.keep(name.clone(), request);
            queue.add(name);
        } else {
            requests.forget(&name);
        }
    };
    feed::follow_whole(api, "certificatesigningrequests", None, counters, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(request) => {
            listed.insert(request.name_any());
            take(request);
        }
        Event::InitDone => requests.retain(&std::mem::take(&mut listed)),
        Event::Apply(request) => take(request),
        Event::Delete(request) => requests.forget(&request.name_any()),
    })
    .await;
}

/// The conditions of a request.
pub fn conditions(request: &Request) -> &[Condition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The condition of this type, whatever its status.
pub fn condition<'a>(request: &'a Request, kind: &str) -> Option<&'a Condition> {
    conditions(request).iter().find(|condition| condition.type_ == kind)
}

/// Whether there is a certificate.
pub fn has_certificate(request: &Request) -> bool {
    let status = request.status.as_ref();
    status.and_then(|status| status.certificate.as_ref()).is_some_and(|text| !text.0.is_empty())
}

/// Whether it was allowed and not forbidden. As for Kubernetes, conditions count by being there.
pub fn is_approved(request: &Request) -> bool {
    condition(request, APPROVED).is_some() && condition(request, DENIED).is_none()
}

/// Whether a signer refused it.
pub fn has_failed(request: &Request) -> bool {
    conditions(request)
        .iter()
        .any(|c| c.type_ == FAILED && (c.status == "True" || c.status.is_empty()))
}

/// The request with this condition in place of those of its type and of `instead`.
pub fn with_condition(request: &Request, condition: Condition, instead: &str) -> Request {
    let mut request = without_condition(request, instead);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition.type_);
    conditions.push(condition);
    request
}

/// The request without the conditions of a type.
pub fn without_condition(request: &Request, kind: &str) -> Request {
    let mut request = request.clone();
    if let Some(conditions) = request.status.as_mut().and_then(|s| s.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ != kind);
    }
    request
}

/// A condition that is true as of now.
pub fn is_true(kind: &str, reason: &str, message: &str, now: OffsetDateTime) -> Condition {
    Condition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Timestamp::from_second(now.unix_timestamp()).ok().map(Time),
        last_transition_time: None,
    }
}

/// What the API says when an object is no longer what was seen.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// What the API says when an object is gone.
pub fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_very_many_only_names_are_held() {
        let requests = Requests::default();
        let request = |uid: &str| {
            let mut request = Request::default();
            request.metadata.uid = Some(uid.into());
            request.spec.signer_name = "a".into();
            request
        };
        for number in 0..WHOLE + 10 {
            requests.keep(number.to_string(), request("1"));
        }
        let whole = |name: &str| requests.lock().by_name[name].request.is_some();
        assert!(whole("0") && !whole(&WHOLE.to_string()));
        // Those of which only the name is known may be anybody's.
        assert_eq!(requests.names(|request| request.spec.signer_name == "b").len(), 10);
        // One that goes makes room for the next that is seen.
        requests.forget("0");
        requests.forget("0");
        let first = requests.lock().by_name[&WHOLE.to_string()].since;
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        requests.keep(WHOLE.to_string(), request("1"));
        assert!(whole(&WHOLE.to_string()));
        assert_eq!(requests.lock().by_name[&WHOLE.to_string()].since, first);
        requests.keep(WHOLE.to_string(), request("2"));
        assert_ne!(requests.lock().by_name[&WHOLE.to_string()].since, first);
        assert_eq!(requests.lock().whole, WHOLE);
        requests.retain(&HashSet::from(["1".to_owned(), "gone".to_owned()]));
        let held = requests.lock();
        assert_eq!((held.whole, held.by_name.len()), (1, 1));
    }
}
