//! Every list and map of every kind with very many elements, valid and invalid: the cost of a
//! request is linear in its size, not quadratic, and no error is larger than needed.
//!
//! With `WINDLASS_LONG=1` lists are as long as a body can hold.

mod objects;
mod special;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use windlass_server::KINDS;

use self::objects::{ALL, ElementPattern, ListField, minimal, places};
use windlass_testkit::{TestResponse, TestServer};

/// Maximum size of an error response: some hundred errors of some hundred bytes, twice.
const LARGEST_REFUSAL: usize = 1024 * 1024;

fn is_long() -> bool {
    std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1")
}

#[tokio::test]
async fn lists_of_pods_without_status() {
    sweep(|place| place.kind.name == "Pod" && !place.in_status()).await;
}

#[tokio::test]
async fn lists_of_other_kinds_without_status() {
    sweep(|place| place.kind.name != "Pod" && !place.in_status()).await;
}

#[tokio::test]
async fn lists_in_status() {
    sweep(ListField::in_status).await;
}

async fn sweep(is_wanted: fn(&ListField) -> bool) {
    let server = TestServer::start().await;
    let count = if is_long() { 100_000 } else { 3_000 };
    // Runs a single trial: a substring of the printed names.
    let only = std::env::var("WINDLASS_LONG_LIST").unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut trials = TrialResults::default();
    for (number, place) in KINDS
        .iter()
        .flat_map(|kind| kind.served.iter().flat_map(|served| places(kind, served)))
        .filter(|place| is_wanted(place) && place.shown().contains(&only))
        // A type has the same rules in all its locations.
        .filter(|place| seen.insert(place.field))
        .enumerate()
    {
        for elements in ALL {
            let name = format!("n{number}-{}", elements as u8);
            trial(&server, &place, elements, count, &name, &mut trials).await;
        }
    }
    assert!(!only.is_empty() || seen.len() > 15, "{} lists and maps were found", seen.len());
    trials.conclude();
}

/// Creates an object with a long list; if accepted, updates it in every way.
async fn trial(
    server: &TestServer,
    place: &ListField,
    elements: ElementPattern,
    count: usize,
    name: &str,
    trials: &mut TrialResults,
) {
    let shown = format!("{} {elements:?}", place.shown());
    let (mut object, count) = place.object(name, elements, count);
    object["apiVersion"] = json!(place.served.api_version());
    object["kind"] = json!(place.kind.name);
    let collection = place.collection();
    let own = format!("{collection}/{name}");
    if place.in_status() {
        let base = minimal(place.kind, name);
        let made = server.post(&place.stored_collection(), &base).await;
        assert_eq!(made.status, 201, "{shown}: {}", String::from_utf8_lossy(&made.body));
        let path = format!("{own}/status");
        trials.time(&shown, "status", count, server.put(&path, &object)).await;
        let mut back = object.clone();
        place.reverse(&mut back);
        trials.time(&shown, "status again", count, server.put(&path, &back)).await;
        server.delete(&own).await;
        return;
    }
    let made = trials.time(&shown, "create", count, server.post(&collection, &object)).await;
    if made.status != 201 || place.kind.review.is_some() {
        return;
    }
    if elements == ElementPattern::Distinct {
        let mut back = object.clone();
        place.reverse(&mut back);
        trials.time(&shown, "update", count, server.put(&own, &back)).await;
        for (how, force) in [("merge", ""), ("strategic", ""), ("apply", ""), ("apply", "&force=true")] {
            let path = format!("{own}?fieldManager=test{force}");
            trials.time(&shown, how, count, server.patch(&path, how, &object)).await;
        }
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let get = server.request(Method::GET, &own).header("accept", table).send();
        trials.time(&shown, "table", count, get).await;
    }
    server.delete(&format!("{own}?gracePeriodSeconds=0")).await;
    let finalizers = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    server.patch(&own, "json", &finalizers).await;
}

/// Measurements, and those that exceed a limit.
#[derive(Default)]
struct TrialResults {
    slowest: Vec<(Duration, String)>,
    wrong: Vec<String>,
}

impl TrialResults {
    async fn time(
        &mut self,
        shown: &str,
        what: &str,
        count: usize,
        request: impl Future<Output = TestResponse>,
    ) -> TestResponse {
        let before = cpu_time();
        let answer = request.await;
        let took = cpu_time().saturating_sub(before);
        let size = answer.body.len();
        let text = format!("{took:?} {shown} {what} × {count}: {} with {size} bytes", answer.status.as_u16());
        // Some patches that do not apply are a 500 in Kubernetes too, without that reason.
        let is_broken = answer.status == 500 && answer.json()["reason"] == "InternalError";
        let is_large = !answer.status.is_success() && size > LARGEST_REFUSAL;
        if took > patience(count) || is_broken || is_large {
            self.wrong.push(text.clone());
        }
        self.slowest.push((took, text));
        answer
    }

    #[allow(clippy::print_stdout, reason = "shown for a test that fails, or with --nocapture")]
    fn conclude(mut self) {
        self.slowest.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        let total: Duration = self.slowest.iter().map(|(took, _)| *took).sum();
        println!("{} requests took {total:?}; the slowest:", self.slowest.len());
        for (_, text) in self.slowest.iter().take(40) {
            println!("{text}");
        }
        assert!(self.wrong.is_empty(), "{} are wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}

/// Returns the time limit of a request: a fixed part plus 120 µs per element. An unoptimized build
/// takes at most a third of that; quadratic cost exceeds it a hundredfold at 100,000 elements.
fn patience(count: usize) -> Duration {
    Duration::from_millis(150) + Duration::from_micros(120) * u32::try_from(count).unwrap()
}

/// Returns the CPU time of this thread, which runs the whole server in a test.
fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match stat.split(' ').next().and_then(|nanos| nanos.parse().ok()) {
        Some(nanos) => Duration::from_nanos(nanos),
        None => START.get_or_init(Instant::now).elapsed(),
    }
}
