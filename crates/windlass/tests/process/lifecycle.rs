//! Start, stop, and the state afterwards.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_testkit::{MAPS as CONFIG_MAPS, config_map, version};

use crate::server::{PATIENCE, TestDataDir, TestServer, wait};

/// Runs `windlass store` with these arguments and waits for its exit.
fn store(args: &[&str], data: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("store").args(args);
    if let Some(data) = data {
        command.arg("--data-dir").arg(data);
    }
    command.output().unwrap()
}

/// Runs a start that must fail; kills a server that keeps running.
fn expect_start_failure(mut up: Command) -> Output {
    let mut child = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait(&mut child, PATIENCE).is_some();
    if !ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ended, "it started:\n{}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_ready_line_contains_the_address() {
    let server = TestServer::start();
    assert!(server.ready.contains(&format!("https://{}", server.address)), "{}", server.ready);
    let kubeconfig = server.kubeconfig();
    assert!(server.ready.contains(kubeconfig.to_str().unwrap()), "{}", server.ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_watches_and_exits_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = TestServer::start();
        let http = server.http();
        let mut events = http.watch(&format!("{CONFIG_MAPS}?watch=1")).await.unwrap().unwrap();
        server.signal(signal);
        // The watch may end with or without an error; it must not delay the server.
        while let Ok(Some(_)) = events.next().await {}
        let status = server.wait(PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(0), "{}", server.place().log());
    }
}

/// HTTP/2 shutdown is a handshake; a client that does not respond must not delay the server.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_does_not_wait_for_unresponsive_clients() {
    let mut server = TestServer::start();
    let mut stream = server.http().connect_tls().await.unwrap();
    // The preface and empty settings; afterwards the client does not respond.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream.read_u8().await.expect("HTTP/2 has begun");
    server.signal(Signal::TERM);
    let status = server.wait(PATIENCE / 3).expect("it ends long before the grace period does");
    assert_eq!(status.code(), Some(0), "{}", server.place().log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything() {
    let server = TestServer::start();
    let (status, made) = server.http().request(Method::POST, CONFIG_MAPS, config_map("kept")).await;
    assert_eq!(status, 201, "{made}");
    let kubeconfig = fs::read(server.kubeconfig()).unwrap();
    let server = server.stop().start();
    let path = format!("{CONFIG_MAPS}/kept");
    assert_eq!(server.http().request(Method::GET, &path, Value::Null).await, (200, made.clone()));
    assert_eq!(fs::read(server.kubeconfig()).unwrap(), kubeconfig, "the credentials stay valid");
    let (_, next) = server.http().request(Method::POST, CONFIG_MAPS, config_map("next")).await;
    assert!(version(&next) > version(&made));
}

#[test]
fn a_second_server_is_refused() {
    let server = TestServer::start();
    let data = server.place().data();
    let output = expect_start_failure(server.place().up_command("127.0.0.1:0"));
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it must not say that it is ready");
    let complaint = stderr(&output);
    assert!(complaint.contains(data.to_str().unwrap()), "{complaint}");
    assert!(complaint.contains(&server.pid().to_string()), "who has it: {complaint}");
}

#[test]
fn a_port_in_use_is_reported() {
    let server = TestServer::start();
    let other = TestDataDir::new();
    let address = server.address.to_string();
    let output = expect_start_failure(other.up_command(&address));
    assert!(!output.status.success());
    assert!(stderr(&output).contains(&address), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let server = TestServer::start();
    let stranger = server.http_as("unknown");
    let (status, answer) = stranger.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    assert_eq!((status, &answer["reason"]), (401, &json!("Unauthorized")), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_backup_restore() {
    let server = TestServer::start();
    let (_, made) = server.http().request(Method::POST, CONFIG_MAPS, config_map("kept")).await;
    let data = server.place().data();
    let backup = server.place().path().join("backup.db");
    let backup = backup.to_str().unwrap();

    // Both work while a server is running.
    let output = store(&["check"], Some(&data));
    assert!(output.status.success(), "{}", stderr(&output));
    let output = store(&["backup", backup], Some(&data));
    assert!(output.status.success(), "{}", stderr(&output));
    let output = store(&["backup", backup], Some(&data));
    assert!(!output.status.success(), "a backup is never overwritten");
    let output = store(&["check", backup], None);
    assert!(output.status.success(), "{}", stderr(&output));

    let (_, late) = server.http().request(Method::POST, CONFIG_MAPS, config_map("late")).await;
    let output = store(&["restore", backup], Some(&data));
    assert!(!output.status.success(), "a database is never overwritten");

    let place = server.stop();
    fs::rename(data.join("store"), data.join("store.old")).unwrap();
    let output = store(&["restore", backup], Some(&data));
    assert!(output.status.success(), "{}", stderr(&output));
    let server = place.start();
    let get = async |name: &str| {
        server.http().request(Method::GET, &format!("{CONFIG_MAPS}/{name}"), Value::Null).await
    };
    assert_eq!(get("kept").await, (200, made));
    assert_eq!(get("late").await.0, 404);
    // Versions observed after the backup are not reused.
    let (_, next) = server.http().request(Method::POST, CONFIG_MAPS, config_map("next")).await;
    assert!(version(&next) > version(&late));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_named() {
    let server = TestServer::start();
    for number in 0..200 {
        let name = format!("object-{number}");
        server.http().request(Method::POST, CONFIG_MAPS, config_map(&name)).await;
    }
    let place = server.stop();
    let file = place.data().join("store/windlass.db");
    let length = fs::metadata(&file).unwrap().len();
    let whole = fs::read(&file).unwrap();

    // Header; a range in the middle; truncation to half the size.
    let damages: [(&str, FileDamage); 3] = [
        ("header", |file, _| write_at(file, 0, &[0xa5; 64])),
        ("middle", |file, length| write_at(file, length / 2, &[0xa5; 8192])),
        ("cut", |file, length| file.set_len(length / 2).unwrap()),
    ];
    for (what, damage) in damages {
        damage(&mut File::options().write(true).open(&file).unwrap(), length);
        for output in
            [expect_start_failure(place.up_command("127.0.0.1:0")), store(&["check"], Some(&place.data()))]
        {
            let complaint = stderr(&output);
            assert!(!output.status.success(), "{what}: {complaint}");
            assert!(complaint.contains("windlass.db"), "{what}: {complaint}");
            assert!(!complaint.contains("panicked"), "{what}: {complaint}");
        }
        fs::write(&file, &whole).unwrap();
    }
    let server = place.start();
    let (status, _) =
        server.http().request(Method::GET, &format!("{CONFIG_MAPS}/object-7"), Value::Null).await;
    assert_eq!(status, 200, "undamaged again");
}

/// Damages a file of the given length.
type FileDamage = fn(&mut File, u64);

fn write_at(file: &mut File, offset: u64, bytes: &[u8]) {
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}
