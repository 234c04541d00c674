//! Host projections, as in the documentation page.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::geteuid;

use crate::trust_docs::code_blocks;

use super::volume_fixture::{VolumeFixture, anchor, bundle, read, wait_for_text, wait_until};

const PAGE: &str = include_str!("../../../../../docs/host-projections.md");

/// Returns the commands of a console block, each with its expected output.
fn console(others: usize) -> Vec<(&'static str, &'static str)> {
    let commands = code_blocks(PAGE, "console")[others].split("$ ").skip(1);
    commands.map(|command| command.split_once('\n').unwrap()).collect()
}

/// Returns a machine that has joined a server with the signer of the page, without a running agent.
fn machine() -> VolumeFixture {
    let mut world = VolumeFixture::with_signers_and_flags(code_blocks(PAGE, "yaml")[0], "");
    world.wait_for_agent_status("it has not joined", |said| said["registration"]["registered"] == true);
    world.stop_agent();
    world
}

/// Writes the file of the page, and starts the agent with it.
fn start(world: &mut VolumeFixture) {
    let lines = code_blocks(PAGE, "console")[0].replace("$ windlass node", "exec windlass node");
    world.run_agent(lines.strip_prefix("$ ").unwrap());
}

/// Returns the output of a command, which must succeed.
fn run_ok(mut command: Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.unwrap().status.success()
}

/// Returns the files of a volume with their contents and inodes.
fn files(volume: &Path) -> BTreeMap<String, (Vec<u8>, u64)> {
    let entries = fs::read_dir(volume.join("..data")).unwrap().map(|entry| entry.unwrap());
    let file = |path: PathBuf| (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), file(entry.path()))).collect()
}

/// Publishes more anchors of the page's signer.
fn more_anchors(world: &VolumeFixture) {
    let mut object = bundle("example.com:web:more", &anchor());
    object["spec"]["signerName"] = "example.com/web".into();
    world.apply(&[object]);
}

#[test]
fn five_minutes_as_the_page_has_them() {
    let mut world = machine();
    start(&mut world);
    let tls = world.path().join("tls");
    let status = world.wait_for_agent_status("the volume has no files", |said| said["volumes"]["ready"] == 1);
    let certificate = &status["volumes"]["certificates"][0];
    let names = (&certificate["volume"], &certificate["commonName"], &certificate["signerName"]);
    assert_eq!(names, (&"host/web".into(), &"web.n1.example.com".into(), &"example.com/web".into()));
    let serial = run_ok(world.shell("openssl x509 -in tls/web.pem -noout -serial"));
    let shown = certificate["serialNumber"].as_str().unwrap().to_uppercase();
    assert_eq!(
        serial.trim().trim_start_matches("serial=").trim_start_matches('0'),
        shown.trim_start_matches('0')
    );
    let text = String::from_utf8(world.status("").stdout).unwrap();
    assert!(text.contains("host/web: web.n1.example.com, expires "), "{text}");
    let reloaded = world.path().join("reloaded");
    wait_until("the command did not run", || reloaded.exists().then_some(()));

    let shows = console(1);
    assert_eq!(shows.len(), 5);
    for (command, output) in shows {
        let program = command.split(' ').next().unwrap();
        if program == "keytool" && !is_installed(program) {
            // Printed, because a skipped part of the test must not look like one that passed.
            eprintln!("keytool not found; only the magic number of the JKS file is verified");
            continue;
        }
        let printed = run_ok(world.shell(command));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match program {
            "keytool" => assert!(printed.contains("trustedCertEntry"), "{printed}"),
            "openssl" if output.is_empty() => {
                assert!(printed.contains("BEGIN CERTIFICATE"), "{printed}");
                assert!(printed.contains("friendlyName: web"), "{printed}");
            }
            _ => assert_eq!(words(&printed), words(output), "{command}"),
        }
    }
    assert_eq!(fs::read(tls.join("truststore.jks")).unwrap()[..4], [0xfe, 0xed, 0xfe, 0xed]);
    let key = "openssl pkcs12 -in tls/keystore.p12 -passin pass:changeit -nodes -nocerts \
               | openssl pkey -pubout";
    let of = "openssl x509 -in tls/web.pem -noout -pubkey";
    assert_eq!(run_ok(world.shell(key)), run_ok(world.shell(of)));

    // A restart of the agent changes no files, sends no notifications, and makes no requests.
    let (before, requests) = (files(&tls), world.count("csr"));
    fs::remove_file(&reloaded).unwrap();
    world.stop_server();
    world.kill_agent();
    world.start_agent("--projections projections.yaml");
    world.wait_for_agent_status("the volume is not found without the server", |said| {
        // It has its files, but does not know whether they are current; and it counts as one
        // volume.
        let volumes = &said["volumes"];
        volumes["blockedVolumes"][0]["stale"] == true
            && (&volumes["ready"], &volumes["blocked"]) == (&0.into(), &1.into())
            && volumes["certificates"] == status["volumes"]["certificates"]
            && !said["registration"]["error"].is_null()
    });
    assert_eq!(files(&tls), before);
    world.start_server();
    world.has_delivered(1.0);
    assert_eq!(files(&tls), before);
    assert!(!reloaded.exists());

    // A change of anchors changes only the files that contain them.
    more_anchors(&world);
    wait_until("the command did not run again", || reloaded.exists().then_some(()));
    let after = files(&tls);
    let differs = |name: &str| after[name].0 != before[name].0;
    assert!(differs("ca.pem") && differs("truststore.jks"));
    assert!(!differs("web.pem") && !differs("keystore.p12"));
    assert_eq!(read(&tls.join("ca.pem")).matches("BEGIN").count(), 2);
    assert_eq!(world.count("csr"), requests);
}

#[test]
fn an_error_in_the_file_changes_nothing() {
    let mut world = machine();
    start(&mut world);
    world.wait_for_agent_status("the volume has no files", |said| said["volumes"]["ready"] == 1);
    let (tls, file) = (world.path().join("tls"), world.path().join("projections.yaml"));
    let (before, good) = (files(&tls), read(&file));

    fs::write(&file, good.replace("keyPath: web.pem", "keyPath: web.key")).unwrap();
    let wrong = "projections.yaml:15:51: projections[0].keystores[1].keyPath: \"web.key\" is not a file of this volume";
    let problem = |said: &serde_json::Value| said["volumes"]["projectionsError"].clone();
    let said = world.wait_for_agent_status("the error is not reported", |said| !problem(said).is_null());
    assert!(problem(&said).as_str().unwrap().contains(wrong), "{said}");
    let message = String::from_utf8(world.status("").stdout).unwrap();
    assert!(message.contains("current file rejected"), "{message}");
    assert_eq!(files(&tls), before);
    // The previous volumes are still updated.
    more_anchors(&world);
    wait_until("the anchors are not kept up", || {
        (read(&tls.join("ca.pem")).matches("BEGIN").count() == 2).then_some(())
    });

    fs::write(
        &file,
        good.replace("path: ca.pem", "path: roots.pem")
            .replace("trustAnchorsPath: ca.pem", "trustAnchorsPath: roots.pem"),
    )
    .unwrap();
    world.wait_for_agent_status("the error is still reported", |said| problem(said).is_null());
    wait_until("the new file is not used", || tls.join("roots.pem").exists().then_some(()));
    wait_until("the old name is still there", || (!tls.join("ca.pem").exists()).then_some(()));

    // The agent does not start with such a file.
    world.stop_agent();
    fs::write(&file, good.replace("directory: /", "directory: ")).unwrap();
    world.start_agent("--projections projections.yaml");
    let log = world.wait_for_agent_failure();
    assert!(log.contains("projections.yaml:5:14: projections[0].directory: "), "{log}");
    assert!(log.contains("is not an absolute path"), "{log}");
}

#[test]
fn a_directory_that_is_a_link_is_not_written_to() {
    let mut world = machine();
    let [tls, other] = ["tls", "other"].map(|name| world.path().join(name));
    fs::create_dir(&other).unwrap();
    symlink(&other, &tls).unwrap();
    start(&mut world);
    let said = world.wait_for_agent_status("it is not reported", |said| said["volumes"]["blocked"] == 1);
    let problem = &said["volumes"]["blockedVolumes"][0];
    assert_eq!((&problem["volume"], &problem["stale"]), (&"host/web".into(), &false.into()));
    assert!(problem["message"].as_str().unwrap().contains("/tls"), "{problem}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    fs::remove_file(&tls).unwrap();
    world.wait_for_agent_status("it has no files", |said| said["volumes"]["ready"] == 1);
    assert!(tls.join("web.pem").exists());
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

/// A service that reloads its files on a signal, and records the number of anchors.
struct ReloadingService(Child);

impl ReloadingService {
    fn start(place: &Path) -> Self {
        let script = "trap 'grep -c BEGIN web/ca.pem >> heard' HUP; echo $$ > web.pid; \
                      while :; do sleep 0.05; done";
        let mut command = Command::new("sh");
        let child = command.args(["-c", script]).current_dir(place).stdin(Stdio::null()).spawn();
        let running = || fs::read_to_string(place.join("web.pid")).ok().filter(|pid| !pid.is_empty());
        let service = Self(child.unwrap());
        wait_until("the service does not run", running);
        service
    }
}

impl Drop for ReloadingService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that responds to every request and records them.
fn listener() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let log = heard.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            lines.read_line(&mut first).unwrap();
            log.lock().unwrap().push(first.trim_end().to_owned());
            let mut rest = String::new();
            while lines.read_line(&mut rest).unwrap() > 2 {
                rest.clear();
            }
            let answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, heard)
}

/// Returns the page's file for services, with paths that a test may use.
fn services(place: &Path, address: SocketAddr) -> String {
    let place = place.display();
    let mut text = code_blocks(PAGE, "yaml")[1].to_owned();
    for (from, to) in [
        ("/etc/web/tls", format!("{place}/web")),
        ("/etc/shop/tls", format!("{place}/shop")),
        ("/etc/shop/keystore.password", format!("{place}/keystore.password")),
        ("/run/web.pid", format!("{place}/web.pid")),
        ("127.0.0.1:9901", address.to_string()),
        (
            "[systemctl, reload, shop]",
            format!(
                "[sh, -c, 'cd $WINDLASS_DIRECTORY; \
                 echo $WINDLASS_PROJECTION $(grep -c BEGIN ca.pem) >> {place}/ran']"
            ),
        ),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    if !geteuid().is_root() {
        let kept =
            text.lines().filter(|line| !["user: ", "group: "].iter().any(|it| line.trim().starts_with(it)));
        text = kept.collect::<Vec<_>>().join("\n");
    }
    text
}

#[test]
fn services_are_notified_once_of_each_change() {
    let mut world = machine();
    let place = world.path().to_owned();
    let [web, shop, ran, heard] = ["web", "shop", "ran", "heard"].map(|name| place.join(name));
    let (address, calls) = listener();
    let _service = ReloadingService::start(&place);
    fs::write(place.join("projections.yaml"), services(&place, address)).unwrap();
    world.start_agent("--projections projections.yaml");

    // One of them waits for its password.
    world.wait_for_agent_status("it does not wait", |said| {
        let problem = said["volumes"]["blockedVolumes"][0]["message"].as_str().unwrap_or_default();
        let waits = problem.ends_with("keystore.password: file not found");
        waits && said["volumes"]["ready"] == 1 && said["volumes"]["blocked"] == 1
    });
    assert!(!shop.join("..data").exists());
    fs::write(place.join("keystore.password"), "secret\n").unwrap();
    world.wait_for_agent_status("not both have files", |said| said["volumes"]["ready"] == 2);

    wait_for_text(&heard, "1\n");
    wait_for_text(&ran, "shop 1\n");
    let call = "POST /certs/reload HTTP/1.1";
    let called = |times: usize| {
        wait_until("there was no call", || (calls.lock().unwrap()[..] == vec![call; times]).then_some(()))
    };
    called(1);
    let shown = run_ok(world.shell("openssl pkcs12 -in shop/keystore.p12 -passin pass:secret -nokeys"));
    assert!(shown.contains("friendlyName: shop"), "{shown}");
    let shown = run_ok(world.shell("openssl pkcs12 -in shop/truststore.p12 -passin pass:changeit -nokeys"));
    assert_eq!(shown.matches("BEGIN CERTIFICATE").count(), 1, "{shown}");
    run_ok(world.shell("openssl verify -CAfile web/ca.pem web/tls.crt shop/shop.pem"));
    if geteuid().is_root() {
        let facts = fs::metadata(web.join("tls.key")).unwrap();
        assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (1000, 1000, 0o640));
    }

    let before = (files(&web), files(&shop));
    world.stop_agent();
    world.start_agent("--projections projections.yaml");
    world.has_delivered(2.0);
    assert_eq!((files(&web), files(&shop)), before);
    more_anchors(&world);
    // For this change, and not for the restart.
    wait_for_text(&heard, "1\n2\n");
    wait_for_text(&ran, "shop 1\nshop 2\n");
    called(2);
}
