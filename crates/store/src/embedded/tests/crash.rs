//! A killed process loses no acknowledged write.

use std::io::{BufRead, BufReader};
use std::process::{Command as Process, Stdio};

use super::*;

const DIR: &str = "WINDLASS_STORE_CRASH_DIR";

/// The victim process: writes until killed, and prints acknowledged writes.
#[test]
fn victim() {
    // Only with a directory from `a_killed_process_loses_nothing` is this the victim process.
    let Some(dir) = std::env::var_os(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let options = EmbeddedOptions { retain_events: 50, ..EmbeddedOptions::new(dir) };
    let store = Arc::new(EmbeddedStore::open(options).unwrap());
    runtime.block_on(async {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for n in 0u64.. {
                        let key = format!("{writer}/{}", n % 5);
                        let value = vec![b'v'; (n % 13 * 500) as usize];
                        let done = store.commit(put(&key, value)).await.unwrap();
                        println!("acknowledged {} {key}", done.revision);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

#[tokio::test]
async fn a_killed_process_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: std::collections::BTreeMap<String, Revision> = Default::default();
    for round in 0..8 {
        let mut victim = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::tests::crash::victim", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut left = 20 + round * 35;
        // Read to the end: everything printed before the kill counts.
        for line in lines.map_while(Result::ok) {
            let Some(rest) = line.split("acknowledged ").nth(1) else { continue };
            let Some((revision, key)) = rest.split_once(' ') else { continue };
            let (Ok(revision), true) = (revision.parse::<Revision>(), key.len() == 3) else {
                continue;
            };
            let newest = acknowledged.entry(key.to_owned()).or_default();
            *newest = revision.max(*newest);
            left -= 1;
            if left == 0 {
                victim.kill().unwrap();
            }
        }
        assert!(left <= 0, "the victim ended by itself");
        victim.wait().unwrap();
        check(dir.path()).unwrap();
        let store = open(dir.path()).unwrap();
        assert!(store.revision() >= *acknowledged.values().max().unwrap());
        for (key, revision) in &acknowledged {
            let stored = store.get(key).await.unwrap().expect("what was acknowledged");
            assert!(stored.revision >= *revision, "{key} is at {} < {revision}", stored.revision);
        }
    }
}
