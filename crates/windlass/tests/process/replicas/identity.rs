//! Servers on one etcd must have the same CAs to start.

use std::process::Stdio;

use hyper::Method;
use serde_json::Value;

use super::shared_etcd::{
    CONFIG_MAPS, SHARED, advice, command, config_map, etcd, expect_start_failure, launch, mode, server,
    share, shell,
};
use crate::server::{PATIENCE, TestDataDir, lines, wait};

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_says_what_it_needs_and_then_joins() {
    let etcd = etcd();
    let first = server(TestDataDir::new(), &etcd);
    let place = TestDataDir::new();
    let said = expect_start_failure(command("server", &place, &etcd, LISTEN));
    assert!(said.contains(&etcd.urls()[0]), "{said}");
    assert!(said.contains("Missing files: ca.crt, client-ca.crt, sa.pub"), "{said}");
    assert!(!place.data().exists(), "nothing may be made up: {said}");

    let done = shell(&advice(&said));
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    for name in SHARED {
        let wanted = if name.ends_with(".key") { 0o600 } else { 0o644 };
        assert_eq!(mode(&place.data().join("pki").join(name)), wanted, "{name}");
    }
    let second = server(place, &etcd);
    let (status, made) = first.http().request(Method::POST, CONFIG_MAPS, config_map("shared")).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("{CONFIG_MAPS}/shared");
    assert_eq!(second.http().request(Method::GET, &path, Value::Null).await, (200, made));
}

#[test]
fn differing_authorities_are_named_and_replaced_only_by_flag() {
    let etcd = etcd();
    let first = server(TestDataDir::new(), &etcd);
    // A server with its own CAs, from before it used etcd.
    let other = crate::controllers::server(TestDataDir::new(), [""; 0]).stop();
    let said = expect_start_failure(command("server", &other, &etcd, LISTEN));
    assert!(
        said.contains("Different files: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt in "),
        "{said}"
    );
    let up = expect_start_failure(command("up", &other, &etcd, ["--no-node", LISTEN[0], LISTEN[1]]));
    assert!(
        up.contains("Different files: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt in "),
        "{up}"
    );

    let flags = [LISTEN[0], LISTEN[1], "--record-authorities"];
    let command_ = command("server", &other, &etcd, flags);
    let other = launch(other, command_);
    let first = first.stop();
    let said = expect_start_failure(command("server", &first, &etcd, LISTEN));
    assert!(said.contains(other.place().data().to_str().unwrap()), "{said}");
    share(other.place(), &first);
    drop(server(first, &etcd));
}

#[test]
fn concurrent_first_starts_elect_one_recorder() {
    let etcd = etcd();
    let places = [TestDataDir::new(), TestDataDir::new()];
    let mut children = places.each_ref().map(|place| {
        let mut command = command("server", place, &etcd, LISTEN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let ready = children.each_mut().map(|child| lines(child.stdout.take().unwrap()));
    let ready = ready.map(|lines| lines.recv_timeout(PATIENCE).is_ok());
    assert!(ready[0] != ready[1], "one is refused and the other not: {ready:?}");
    let refused = usize::from(ready[0]);
    let status = wait(&mut children[refused], PATIENCE).unwrap();
    let [one, two] = children;
    let (mut winner, loser) = if refused == 1 { (one, two) } else { (two, one) };
    let said = loser.wait_with_output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(!status.success() && said.contains("belongs to servers with other"), "{said}");
    // It had created its own CAs before; those of the other servers replace them.
    let done = shell(&advice(&said));
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let [one, two] = places;
    let (_other, place) = if refused == 1 { (one, two) } else { (two, one) };
    drop(server(place, &etcd));
    winner.kill().unwrap();
    winner.wait().unwrap();
}
