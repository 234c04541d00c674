//! Servers on one etcd have the same authorities, or do not start.

use std::process::Stdio;

use hyper::Method;
use serde_json::Value;

use super::plane::{
    CONFIG_MAPS, SHARED, advice, command, config_map, etcd, launch, mode, refused, server, share,
    shell,
};
use crate::server::{PATIENCE, Place, lines, wait};

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_says_what_it_needs_and_then_joins() {
    let etcd = etcd();
    let first = server(Place::new(), &etcd);
    let place = Place::new();
    let said = refused(command("server", &place, &etcd, LISTEN));
    assert!(said.contains(&etcd.urls()[0]), "{said}");
    assert!(said.contains("there is no ca.crt, client-ca.crt, sa.pub"), "{said}");
    assert!(!place.data().exists(), "nothing may be made up: {said}");

    let done = shell(&advice(&said));
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    for name in SHARED {
        let wanted = if name.ends_with(".key") { 0o600 } else { 0o644 };
        assert_eq!(mode(&place.data().join("pki").join(name)), wanted, "{name}");
    }
    let second = server(place, &etcd);
    let (status, made) = first.http().ask(Method::POST, CONFIG_MAPS, config_map("shared")).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("{CONFIG_MAPS}/shared");
    assert_eq!(second.http().ask(Method::GET, &path, Value::Null).await, (200, made));
}

#[test]
fn what_differs_is_named_and_replaced_on_purpose_only() {
    let etcd = etcd();
    let first = server(Place::new(), &etcd);
    // A server with authorities of its own, from a time before etcd.
    let other = crate::controllers::server(Place::new(), [""; 0]).stop();
    let said = refused(command("server", &other, &etcd, LISTEN));
    assert!(
        said.contains("not theirs: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt."),
        "{said}"
    );
    let up = refused(command("up", &other, &etcd, ["--no-node", LISTEN[0], LISTEN[1]]));
    assert!(
        up.contains("not theirs: ca.crt, client-ca.crt, sa.pub, kubelet-serving-ca.crt."),
        "{up}"
    );

    let flags = [LISTEN[0], LISTEN[1], "--record-authorities"];
    let command_ = command("server", &other, &etcd, flags);
    let other = launch(other, command_);
    let first = first.stop();
    let said = refused(command("server", &first, &etcd, LISTEN));
    assert!(said.contains(other.place().data().to_str().unwrap()), "{said}");
    share(other.place(), &first);
    drop(server(first, &etcd));
}

#[test]
fn of_two_that_start_at_once_one_is_first() {
    let etcd = etcd();
    let places = [Place::new(), Place::new()];
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
    // It made its own before it knew; the others' take their place.
    let done = shell(&advice(&said));
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let [one, two] = places;
    let (_other, place) = if refused == 1 { (one, two) } else { (two, one) };
    drop(server(place, &etcd));
    winner.kill().unwrap();
    winner.wait().unwrap();
}
