//! The walkthrough of docs/rotation.md, run as it is printed.

use crate::trust_docs::{code_blocks, paste, programs};

use super::rotation_cluster::RotationCluster;
use crate::server::PATIENCE;

const PAGE: &str = include_str!("../../../../../docs/rotation.md");

/// Returns the text with numbers, times and fingerprints as `#`, and without the lengths of bars and columns.
fn shape(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let is_varied = word.contains("web.example.com-") || word.chars().any(|each| each.is_ascii_digit());
        if is_varied && !word.starts_with("node/") { "#".to_owned() } else { word.to_owned() }
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
    cluster.admin().ok(&["wait", "--for=condition=Ready", "signer/web", "--timeout=60s"]);
    let said = run(plan);
    let holds: Vec<_> = said.lines().skip_while(|line| !line.starts_with("REASON ")).skip(1).collect();
    assert!(holds.len() == 1 && holds[0].starts_with("ConsumersNotRead   node/n3/host/nginx "), "{said}");
    assert_eq!(cluster.admin().ok(&["get", "carotations", "-o", "name"]), "", "a plan changes nothing");

    // The page waits for five minutes, and agents renew within ten.
    let quick = start.trim().replace("--wait", "--wait --timeout 5s --renewal-window 1s");
    assert_ne!(quick, start.trim());
    run(&format!("{quick} || [ $? = 2 ]"));
    let said = run(status);
    let (_, shown) = section.split_once("```\n```\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let (said, shown) = (shape(&said), shape(shown));
    for line in &shown {
        assert!(said.contains(line), "{line:?} of the page in {said:#?}");
    }
    let said = run(accept);
    assert!(said.lines().last().is_some_and(|line| line.contains(" Completed, ")), "{said}");
    let rotations = cluster.admin().json(&["get", "carotations"]);
    cluster.check_completed(&rotations["items"][0]);
}
