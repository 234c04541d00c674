use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_testkit::scripted_client;

use super::*;
use crate::clock::ClockReading;
use crate::testing::START;
use crate::volume::id::VolumeId;

fn time_at(seconds: i64) -> ClockReading {
    let since = Duration::from_secs(1_000_000);
    ClockReading { wall: START + time::Duration::seconds(seconds), since }
}

/// A token issued and expiring so many seconds after the start.
fn token(issued: i64, expires: i64, more: Value) -> Zeroizing<String> {
    let start = START.unix_timestamp();
    let mut claims = json!({"iat": start + issued, "exp": start + expires, "sub": "somebody"});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    Zeroizing::new(format!("e30.{payload}.c2ln"))
}

#[test]
fn tokens_that_are_found_are_used_for_most_of_their_lives() {
    let hour = |now: i64| (token(0, 3600, json!({})), 3600, now);
    let year = 365 * 86_400;
    let extended = json!({"kubernetes.io": {"warnafter": START.unix_timestamp() + 3607}});
    // Seconds until the renewal.
    let table = [
        (hour(0), "2880"),
        (hour(2000), "880"),
        (hour(2879), "1"),
        (hour(2880), "old"),
        (hour(3599), "old"),
        (hour(3600), "useless"),
        // Issued by a clock that is slightly ahead, and by one that is far ahead.
        (hour(-30), "2910"),
        (hour(-200_000), "old"),
        // At most a day.
        ((token(0, year, json!({})), year, 1000), "85400"),
        // A token accepted for longer than requested.
        ((token(0, year, extended), 3607, 0), "2885"),
        ((token(0, year, json!({})), 3600, 1000), "1880"),
    ];
    for (row, ((token, wanted, now), expected)) in table.into_iter().enumerate() {
        let standing = TokenClaims::read(&token).unwrap().validity(wanted, time_at(now), 0.0);
        let left = match standing {
            TokenValidity::Useless => "useless".to_owned(),
            TokenValidity::Old => "old".to_owned(),
            TokenValidity::Good(due) => due.left(time_at(now)).unwrap().as_secs().to_string(),
        };
        assert_eq!(left, expected, "row {row}");
    }
}

#[test]
fn non_token_is_not_parsed() {
    for text in ["", "a", "a.b.c", "..", "e30.e30.e30", "e30.eyJleHAiOiAiMSJ9.x"] {
        assert!(TokenClaims::read(text).is_none(), "{text}");
    }
}

#[test]
fn the_audience_counts_if_one_is_wanted() {
    let table = [
        (json!({"aud": "vault"}), Some("vault"), true),
        (json!({"aud": ["other", "vault"]}), Some("vault"), true),
        (json!({"aud": ["other"]}), Some("vault"), false),
        (json!({}), Some("vault"), false),
        (json!({"aud": ["other"]}), None, true),
    ];
    for (claims, audience, good) in table {
        let read = TokenClaims::read(&token(0, 600, claims.clone())).unwrap();
        assert_eq!(read.are_for(&token_spec(audience)), good, "{claims} for {audience:?}");
    }
}

#[test]
fn new_tokens_are_renewed_by_either_clock() {
    let now = time_at(0);
    let due = |lasts, random| RefreshDeadline::for_new_token(Duration::from_secs(lasts), now, random);
    let table = [
        (600, 0.0, 480),
        (600, 1.0, 470),
        (3607, 0.5, 2880),
        (365 * 86_400, 0.0, 86_400),
        // Also for very short lifetimes.
        (0, 0.0, 10),
        (1, 1.0, 10),
    ];
    for (lasts, random, seconds) in table {
        assert_eq!(due(lasts, random).left(now).unwrap().as_secs(), seconds, "{lasts} {random}");
    }
    let due = due(600, 0.0);
    assert_eq!(due.left(time_at(480)), None);
    let later = ClockReading { since: now.since + Duration::from_secs(480), wall: START };
    assert_eq!(due.left(later), None);
    let back = ClockReading { wall: START - time::Duration::days(9), since: now.since };
    assert_eq!(due.left(back).unwrap().as_secs(), 480);
}

fn token_spec(audience: Option<&str>) -> TokenSpec {
    let audience = audience.map(str::to_owned);
    TokenSpec { service_account: "builder".into(), audience, expiration_seconds: 600 }
}

fn source(owner: VolumeOwner) -> SourceId {
    SourceId { volume: VolumeId { owner, name: "v".into() }, index: 0 }
}

fn pod_source() -> SourceId {
    source(VolumeOwner::Pod { namespace: "ns".into(), name: "p".into(), uid: "u1".into() })
}

/// A server that issues tokens and records the requests.
struct TokenServerFixture {
    tokens: Arc<TokenManager>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    fails: Arc<Mutex<Option<u16>>>,
    ahead: Arc<AtomicI64>,
    wakes: mpsc::UnboundedReceiver<SourceChange>,
}

impl TokenServerFixture {
    fn new() -> Self {
        let (asked, fails) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Option<u16>>>::default());
        let (log, failing) = (asked.clone(), fails.clone());
        let client = scripted_client(move |call| {
            let mut log = log.lock().unwrap();
            log.push((call.path, call.body.clone()));
            let answer = answer(log.len(), call.body, *failing.lock().unwrap());
            async move { answer }
        });
        let (send, wakes) = mpsc::unbounded_channel();
        let (began, ahead) = (Instant::now(), Arc::<AtomicI64>::default());
        let skew = ahead.clone();
        let clock: Clock = Arc::new(move || {
            let (since, skew) = (began.elapsed(), time::Duration::seconds(skew.load(SeqCst)));
            ClockReading { wall: START + since + skew, since }
        });
        let tokens = TokenManager::new(client, clock, Arc::new(|| 0.5), send);
        Self { tokens, asked, fails, ahead, wakes }
    }

    async fn woken(&mut self) {
        let woken = tokio::time::timeout(Duration::from_secs(40 * 86_400), self.wakes.recv());
        assert_eq!(woken.await.unwrap(), Some(SourceChange::Volume(pod_source().volume)));
    }

    fn shown(&self) -> String {
        match self.tokens.get(&pod_source()) {
            CredentialState::Unavailable(why) => why,
            CredentialState::Available(token) => token.to_string(),
        }
    }

    fn request_count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn answer(number: usize, mut body: Value, fails: Option<u16>) -> (u16, Value) {
    match fails {
        Some(code) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": "X", "message": format!("scripted {code}"), "metadata": {}});
            (code, status)
        }
        None => {
            body["status"] = json!({
                "token": format!("token {number}"), "expirationTimestamp": "2026-03-01T13:00:00Z",
            });
            (201, body)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_requested_and_renewed() {
    let mut scene = TokenServerFixture::new();
    assert_eq!(scene.shown(), NOT_YET);
    scene.tokens.ensure(&pod_source(), token_spec(Some("vault")), None);
    scene.woken().await;
    assert_eq!(scene.shown(), "token 1");
    let (path, body) = scene.asked.lock().unwrap().remove(0);
    assert_eq!(path, "/api/v1/namespaces/ns/serviceaccounts/builder/token");
    let expected = json!({
        "audiences": ["vault"], "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"},
    });
    assert_eq!(body["spec"], expected);
    // A second `ensure` changes nothing.
    let began = Instant::now();
    scene.tokens.ensure(&pod_source(), token_spec(Some("vault")), None);
    scene.woken().await;
    assert_eq!(began.elapsed().as_secs(), 475);
    assert_eq!(scene.request_count(), 1);
    // A jump of the clock is detected.
    let began = Instant::now();
    scene.ahead.store(86_400, SeqCst);
    scene.woken().await;
    assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
    // Nothing is requested for forgotten tokens.
    scene.tokens.forget(&pod_source().volume.owner);
    let asked = scene.request_count();
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!((scene.request_count(), scene.shown().as_str()), (asked, NOT_YET));
}

#[tokio::test(start_paused = true)]
async fn an_old_token_is_served_until_there_is_another() {
    let mut scene = TokenServerFixture::new();
    *scene.fails.lock().unwrap() = Some(403);
    scene.tokens.ensure(&pod_source(), token_spec(None), None);
    let began = Instant::now();
    scene.woken().await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(scene.request_count(), 3, "the first two failures are not reported");
    assert_eq!(scene.shown(), "failed to fetch token: scripted 403");
    *scene.fails.lock().unwrap() = Some(500);
    scene.woken().await;
    assert_eq!(scene.shown(), "failed to fetch token: scripted 500");
    *scene.fails.lock().unwrap() = None;
    scene.woken().await;
    let first = scene.shown();
    assert!(first.starts_with("token "), "{first}");
    *scene.fails.lock().unwrap() = Some(500);
    let before = scene.request_count();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.shown(), first, "although it has expired");
    let asked = scene.request_count() - before;
    assert!((45..75).contains(&asked), "{asked}");
    assert!(scene.wakes.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_valid_token_from_disk_is_renewed_only_when_it_is_old() {
    let mut scene = TokenServerFixture::new();
    let found = token(-100, 500, json!({"aud": "vault"}));
    scene.tokens.ensure(&pod_source(), token_spec(Some("vault")), Some(found.clone()));
    assert_eq!(scene.shown(), *found);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(374)).await;
    assert_eq!(scene.request_count(), 0);
    scene.woken().await;
    assert_eq!((began.elapsed().as_secs(), scene.shown().as_str()), (375, "token 1"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_good_is_replaced() {
    let table = [
        // It is served meanwhile, so renewal is not urgent.
        (token(-500, 100, json!({})), None, true, 5),
        // It has expired, but there is no better one.
        (token(-900, -300, json!({})), None, true, 0),
        // It has another audience, or is not a token.
        (token(-100, 500, json!({"aud": "x"})), Some("vault"), false, 0),
        (Zeroizing::new("rubbish".into()), None, false, 0),
    ];
    for (row, (found, audience, served, seconds)) in table.into_iter().enumerate() {
        let mut scene = TokenServerFixture::new();
        scene.tokens.ensure(&pod_source(), token_spec(audience), Some(found.clone()));
        let expected = if served { found.as_str() } else { NOT_YET };
        assert_eq!(scene.shown(), expected, "row {row}");
        let began = Instant::now();
        scene.woken().await;
        assert_eq!(scene.shown(), "token 1", "row {row}");
        assert_eq!(began.elapsed().as_secs(), seconds, "row {row}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_audience_is_another_token() {
    let mut scene = TokenServerFixture::new();
    scene.tokens.ensure(&pod_source(), token_spec(Some("vault")), None);
    scene.woken().await;
    scene.tokens.ensure(&pod_source(), token_spec(Some("other")), None);
    assert_eq!(scene.shown(), NOT_YET);
    scene.woken().await;
    assert_eq!(scene.shown(), "token 2");
    // The same for a longer lifetime, but the existing token is used meanwhile.
    let longer = TokenSpec { expiration_seconds: 1200, ..token_spec(Some("other")) };
    scene.tokens.ensure(&pod_source(), longer, None);
    assert_eq!(scene.shown(), "token 2");
    scene.woken().await;
    assert_eq!(scene.shown(), "token 3");
}

#[tokio::test(start_paused = true)]
async fn the_machine_has_no_tokens() {
    let scene = TokenServerFixture::new();
    let id = source(VolumeOwner::Host);
    scene.tokens.ensure(&id, token_spec(None), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(matches!(scene.tokens.get(&id), CredentialState::Unavailable(why) if why == NO_POD));
    assert_eq!(scene.request_count(), 0);
}
