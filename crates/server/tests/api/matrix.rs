//! Access matrix: callers of every kind × all requests.
//!
//! In `matrix/table.txt`, a line is a request, a column a caller, and a cell the expected outcome.
//! Allowed requests are sent as dry runs. Denied ones are sent both ways, and must change nothing
//! and reveal nothing. `WINDLASS_PRINT_MATRIX=1` prints the actual table.

mod callers;
mod certificates;
mod requests;
mod signers;

use std::fmt::Write as _;

use callers::{MatrixFixture, TestCaller};
use requests::MatrixRequest;

use windlass_testkit::TestResponse;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessVerdict {
    /// The request succeeded, or would have.
    Allowed,
    Forbidden,
    Unknown,
}

impl AccessVerdict {
    fn from_response(answer: &TestResponse) -> Option<AccessVerdict> {
        match answer.status.as_u16() {
            200 | 201 => Some(AccessVerdict::Allowed),
            403 => Some(AccessVerdict::Forbidden),
            401 => Some(AccessVerdict::Unknown),
            // Kubernetes reports this refusal as a validation error.
            422 if answer.fails(422, "Invalid").contains("is not permitted to \"sign\"") => {
                Some(AccessVerdict::Forbidden)
            }
            _ => None,
        }
    }

    fn symbol(self) -> char {
        match self {
            AccessVerdict::Allowed => '+',
            AccessVerdict::Forbidden => '-',
            AccessVerdict::Unknown => '!',
        }
    }
}

#[tokio::test]
async fn every_cell_is_as_the_table_says() {
    let world = MatrixFixture::new().await;
    let requests = requests::all_requests(&world).await;
    let before = world.server.revision();
    let mut actual = Vec::new();
    let mut wrong = Vec::new();
    for request in &requests {
        let mut line = format!("{:<12} {:<54}", request.verb, request.what);
        for caller in &world.callers {
            line.push(cell(&world, request, caller, &mut wrong).await);
        }
        actual.push(line);
    }
    assert_eq!(world.server.revision(), before, "something was changed");
    if std::env::var_os("WINDLASS_PRINT_MATRIX").is_some() {
        print(&world, &actual);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compare(&world, &actual);
}

async fn cell(
    world: &MatrixFixture,
    request: &MatrixRequest,
    caller: &TestCaller,
    wrong: &mut Vec<String>,
) -> char {
    let about = format!("{} {} as {}", request.verb, request.what, caller.name);
    let answer = request.send(world, caller, true).await;
    let code = answer.status.as_u16();
    let Some(verdict) = AccessVerdict::from_response(&answer) else {
        let body = String::from_utf8_lossy(&answer.body);
        wrong.push(format!("{about}: {code} {body}"));
        return '?';
    };
    if verdict == AccessVerdict::Allowed {
        return verdict.symbol();
    }
    let before = world.server.revision();
    let really = request.send(world, caller, false).await;
    for refused in [answer, really] {
        let body = String::from_utf8_lossy(&refused.body).into_owned();
        if AccessVerdict::from_response(&refused) != Some(verdict) {
            wrong.push(format!("{about}: a dry run is refused as {code}, but not {body}"));
        }
        if body.contains(callers::CANARY) || body.contains(callers::CANARY_BASE64) {
            wrong.push(format!("{about}: the refusal gives away what the object says: {body}"));
        }
    }
    if world.server.revision() != before {
        wrong.push(format!("{about}: refused, and yet something changed"));
    }
    verdict.symbol()
}

fn compare(world: &MatrixFixture, actual: &[String]) {
    let table = include_str!("matrix/table.txt");
    let wanted: Vec<&str> = table.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).collect();
    let mut differences = String::new();
    for line in actual {
        if !wanted.contains(&line.as_str()) {
            let _ = writeln!(differences, "the server:  {line}");
        }
    }
    for line in &wanted {
        if !actual.iter().any(|a| a == line) {
            let _ = writeln!(differences, "the table:   {line}");
        }
    }
    assert!(differences.is_empty(), "columns: {}\n{differences}", world.names());
    let signs = actual.iter().flat_map(|line| line.chars().rev().take(world.callers.len()));
    let (mut all, mut allowed) = (0, 0);
    for sign in signs {
        all += 1;
        allowed += usize::from(sign == '+');
    }
    assert!(all >= 700, "only {all} cells");
    // A table that allows much tests little.
    assert!(allowed * 100 <= all * 35, "{allowed} of {all} cells are allowed");
}

#[allow(clippy::print_stdout, reason = "this is what was asked for")]
fn print(world: &MatrixFixture, actual: &[String]) {
    println!("# columns: {}", world.names());
    actual.iter().for_each(|line| println!("{line}"));
}
