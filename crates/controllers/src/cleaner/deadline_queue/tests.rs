use time::macros::datetime;
use tokio::time::advance;

use super::*;

const START: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

fn object(uid: &str, version: &str) -> ObjectMeta {
    ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.into()), ..ObjectMeta::default() }
}

/// Returns what is due after this many real minutes, by a wall clock that is this many minutes
/// wrong.
async fn pop_due_after(
    agenda: &mut DeadlineQueue<&'static str>,
    minutes: u64,
    wrong: i64,
) -> Vec<&'static str> {
    advance(Duration::from_secs(60 * minutes)).await;
    let real = time::Duration::minutes(i64::try_from(minutes).unwrap());
    agenda.pop_due(START + real + time::Duration::minutes(wrong))
}

fn queue_with_deadline(deadline: i64) -> DeadlineQueue<&'static str> {
    let mut agenda = DeadlineQueue::new();
    agenda.insert("a", &object("u", "1"), START + time::Duration::minutes(deadline), START);
    agenda
}

#[tokio::test(start_paused = true)]
async fn each_is_due_at_its_time() {
    let mut agenda = queue_with_deadline(90);
    agenda.insert("b", &object("v", "1"), START - time::Duration::HOUR, START);
    assert_eq!(agenda.pop_due(START), ["b"]);
    assert!(pop_due_after(&mut agenda, 89, 0).await.is_empty());
    assert_eq!(agenda.next_due(), Some(Instant::now() + Duration::from_secs(60)));
    advance(Duration::from_secs(60)).await;
    let end = START + time::Duration::minutes(90);
    assert_eq!(agenda.pop_due(end), ["a"]);
    let conditions = agenda.preconditions(&"a", end).unwrap();
    assert_eq!(conditions.uid.as_deref(), Some("u"));
    assert_eq!(conditions.resource_version.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn clock_jumps_expire_nothing() {
    for wrong in [60, 24 * 60, 10 * 365 * 24 * 60, -60, -24 * 60] {
        let mut agenda = queue_with_deadline(50);
        assert!(pop_due_after(&mut agenda, 49, wrong).await.is_empty(), "{wrong} minutes wrong");
        let jumped = START + time::Duration::minutes(49 + wrong);
        assert!(agenda.preconditions(&"a", jumped).is_none(), "{wrong} minutes wrong");
    }
    // A clock that is an hour ahead does not delay requests that are really old.
    let mut agenda = queue_with_deadline(50);
    assert_eq!(pop_due_after(&mut agenda, 50, 60).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn changed_entries_get_a_new_time() {
    let mut agenda = queue_with_deadline(50);
    agenda.insert("a", &object("u", "2"), START + time::Duration::minutes(55), START);
    assert!(pop_due_after(&mut agenda, 50, 0).await.is_empty());
    advance(Duration::from_secs(300)).await;
    let end = START + time::Duration::minutes(55);
    assert_eq!(agenda.pop_due(end), ["a"]);
    assert_eq!(agenda.preconditions(&"a", end).unwrap().resource_version.as_deref(), Some("2"));
    // A new object of the same name has a new deadline.
    agenda.insert("a", &object("w", "3"), end + time::Duration::HOUR, end);
    assert!(agenda.preconditions(&"a", end).is_none());
    agenda.remove_key(&"a");
    assert_eq!(agenda.next_due(), None);
}
