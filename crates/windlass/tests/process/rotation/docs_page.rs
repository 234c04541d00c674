//! The walkthrough of docs/rotation.md, run as it is printed.

use crate::trust_docs::{code_blocks, paste, programs};

use super::rotation_cluster::RotationCluster;
use crate::server::PATIENCE;

const PAGE: &str = include_str!("../../../../../docs/rotation.md");

/// Returns the text with numbers, times and fingerprints as `#`, and without the lengths of bars and columns.
fn shape(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let has_digit = word.chars().any(|each| each.is_ascii_digit());
        if has_digit && !word.starts_with("node/") { "#".to_owned() } else { word.to_owned() }
    };
    let line = |line: &str| {
        let words =
            line.split_whitespace().filter(|part| !part.starts_with("[#") && !part.starts_with("[--"));
        words.map(word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect()
}

#[test]
fn ten_minutes_as_the_page_has_them() {
    let cluster = RotationCluster::start(&["n3"], "nginx");
    let place = cluster.path();
    let programs = programs(place);
    let section = PAGE.split("## Phases").next().unwrap();
    let blocks: Vec<&str> = code_blocks(section, "sh");
    let [plan, start, status, accept] = blocks[..] else { panic!("{blocks:?}") };
    let run = |script: &str| {
        let script = format!("export KUBECONFIG=data/admin.kubeconfig\n{script}");
        paste(&cluster.admin().server, &script, &programs, PATIENCE * 2)
    };
    let said = run(plan);
    assert!(said.contains("node/n3"), "{said}");
    assert_eq!(cluster.admin().ok(&["get", "carotations", "-o", "name"]), "", "a plan changes nothing");

    // The page waits for five minutes, and agents renew within ten.
    let quick = start.trim().replace("--wait", "--wait --timeout 5s --renewal-window 1s");
    assert_ne!(quick, start.trim());
    run(&format!("{quick} || [ $? = 2 ]"));
    let said = run(status);
    let shown = code_blocks(section, "")[0];
    let (said, shown) = (shape(&said), shape(shown));
    for line in &shown {
        assert!(said.contains(line), "{line:?} of the page in {said:#?}");
    }
    let said = run(accept);
    assert!(said.contains("Completed"), "{said}");
}
