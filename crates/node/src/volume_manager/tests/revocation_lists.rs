//! Certificate revocation lists in volumes of the host.

use std::path::Path;
use std::sync::Arc;

use super::VolumeTestNode;
use crate::projections;
use crate::testing::revocation_list;
use crate::volume::plan::OptionalApi;
use crate::volume::revocation_lists::{PublishedList, RevocationListIndex};

fn set_lists(node: &VolumeTestNode, lists: &[(&str, u64)]) {
    let mut index = RevocationListIndex::default();
    for (authority, number) in lists {
        index.set(authority, Arc::new(PublishedList::new("a.b/c", revocation_list(*number)).unwrap()));
    }
    node.revocation_lists.send_replace(Arc::new(OptionalApi::Synced(index)));
}

fn project(node: &VolumeTestNode, directory: &Path) {
    let text = format!(
        "apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n- name: web\n  directory: {}\n  \
         revocationLists:\n  - {{signerName: a.b/c, path: crls, format: DER}}\n",
        directory.display()
    );
    let file = node.dir.path().join("projections.yaml");
    std::fs::write(&file, text).unwrap();
    node.projections.send_replace(Arc::new(projections::read(&file, &node.files).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_volume_follows_the_lists_and_keeps_the_last_good_ones() {
    let node = VolumeTestNode::new();
    let directory = node.dir.path().join("web");
    project(&node, &directory);
    let _running = node.start();
    node.until("host/web", |report| report.blocked.is_some()).await;
    set_lists(&node, &[("0a", 1)]);
    node.until_good("host/web").await;
    let read = |name: &str| std::fs::read(directory.join("crls").join(name)).ok();
    assert_eq!((read("0a.crl"), read("0b.crl")), (Some(revocation_list(1)), None));
    let before = node.reports.borrow().values().next().unwrap().changed;
    // A new list of the same authority, and that of a second one.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    set_lists(&node, &[("0a", 2), ("0b", 3)]);
    node.until("host/web", |report| report.changed != before).await;
    assert_eq!((read("0a.crl"), read("0b.crl")), (Some(revocation_list(2)), Some(revocation_list(3))));
    // All lists are gone: the volume is blocked, and its files stay.
    set_lists(&node, &[]);
    node.until("host/web", |report| report.ready && report.blocked.is_some()).await;
    assert_eq!(read("0a.crl"), Some(revocation_list(2)));
}
