//! A TLS client and server that authenticate with the files of their volumes, while roots are
//! replaced three times and certificates continuously: no handshake fails.
//!
//! Everything but TLS itself is real: an API server, its controllers and a signer, and a node's
//! volumes on disk. Time runs sixty times as fast for all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, fixtures included")]

mod fixture;
mod peers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use fixture::{RootAuthority, RotationFixture};
use peers::TlsPeers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handshake_fails_while_roots_and_certificates_are_replaced() {
    let world = RotationFixture::start().await;
    let mut root = RootAuthority::new("root 0");
    world.sign_with(&root);
    world.apply_bundle("zero", "live", &[&root]).await;
    let (server, client) = (world.add_pod("server").await, world.add_pod("client").await);
    for volume in [&server, &client] {
        world.until("there are no files", || volume.trusts(&root) && volume.is_issued_by(&root)).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let peers = Arc::new(TlsPeers::new(client.clone(), server.clone(), world.clock()));
    let shaking = (0..2).map(|_| tokio::spawn(peers.clone().run_handshakes(stop.clone())));
    let shaking = shaking.collect::<Vec<_>>();

    for (turn, name) in [(1, "one"), (2, "one"), (3, "three")] {
        let next = RootAuthority::new(&format!("root {turn}"));
        let by_label = turn != 2;
        // All peers trust the new root …
        if by_label {
            world.apply_bundle(name, "live", &[&next]).await;
        } else {
            world.apply_bundle(name, "live", &[&root, &next]).await;
        }
        for volume in [&server, &client] {
            let both = || volume.trusts(&root) && volume.trusts(&next);
            world.until("the new root is not there", both).await;
        }
        // … before any certificate is issued by it …
        world.sign_with(&next);
        for volume in [&server, &client] {
            world.until("there is no new certificate", || volume.is_issued_by(&next)).await;
        }
        // … and no certificate of the old root is in use when it is removed.
        peers.finish_handshakes(&shaking).await;
        let old = if turn == 1 { "zero" } else { "one" };
        if by_label {
            world.apply_bundle(old, "retired", &[&root]).await;
        } else {
            world.apply_bundle(name, "live", &[&next]).await;
        }
        for volume in [&server, &client] {
            world.until("the old root is still there", || !volume.trusts(&root)).await;
        }
        root = next;
    }
    peers.finish_handshakes(&shaking).await;
    stop.store(true, SeqCst);
    let mut shaken = 0;
    for task in shaking {
        shaken += task.await.unwrap();
    }
    assert!(shaken > 1_000, "there were only {shaken} handshakes");
    assert!(server.certificates_seen() >= 4, "{}", server.certificates_seen());
}
