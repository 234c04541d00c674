//! The files in `deploy/` are held against the command line and against themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;

use super::{Cli, CliCommand, ServeArgs};

const ENVIRONMENT: &str = include_str!("../../../../deploy/systemd/windlass.env");
const SERVER: &str = include_str!("../../../../deploy/systemd/windlass-server.service");
const CONTROLLERS: &str = include_str!("../../../../deploy/systemd/windlass-controllers.service");
const MANIFEST: &str = include_str!("../../../../deploy/kubernetes/windlass-ha.yaml");

/// The settings of a unit, with continued lines joined.
fn unit(text: &str) -> BTreeMap<String, String> {
    let text = text.replace("\\\n", " ");
    let settings = text.lines().filter(|line| !line.starts_with('#'));
    let settings = settings.filter_map(|line| line.split_once('='));
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// What a unit starts, with the environment of its file.
fn parse_exec_start(unit: &BTreeMap<String, String>) -> CliCommand {
    let mut line = unit["ExecStart"].clone();
    for variable in ENVIRONMENT.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = variable.split_once('=').unwrap();
        line = line.replace(&format!("${{{name}}}"), value);
    }
    assert!(!line.contains("${"), "{line}");
    let words = line.split_whitespace().map(|word| word.replace("%H", "host"));
    parse_command(words)
}

fn parse_command(words: impl IntoIterator<Item = String>) -> CliCommand {
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).command
}

/// How long a server takes to go, at most.
fn shutdown_duration(serve: &ServeArgs) -> Duration {
    assert!(!serve.shutdown_delay_duration.is_zero(), "balancers need time");
    serve.shutdown_delay_duration + serve.shutdown_grace
}

#[test]
fn units_run_existing_commands() {
    let server = unit(SERVER);
    let CliCommand::Server(arguments) = parse_exec_start(&server) else { panic!() };
    assert_eq!(arguments.serve.etcd.etcd_servers.len(), 3);
    assert!(arguments.serve.etcd.etcd_certfile.is_some());
    assert!(arguments.serve.external_url.is_some());
    let patience: u64 = server["TimeoutStopSec"].parse().unwrap();
    assert!(Duration::from_secs(patience) > shutdown_duration(&arguments.serve));

    let CliCommand::Controllers(arguments) = parse_exec_start(&unit(CONTROLLERS)) else { panic!() };
    assert_eq!(arguments.signing.files().unwrap().len(), 4);
    assert!(arguments.election.leader_elect);
}

#[test]
fn units_are_confined_alike() {
    let etcd = unit(include_str!("../../../../deploy/systemd/etcd.service"));
    for text in [SERVER, CONTROLLERS] {
        let confined = unit(text);
        for (key, value) in &etcd {
            if key.starts_with("Protect") || key.starts_with("Restrict") || key == "NoNewPrivileges" {
                assert_eq!(confined.get(key), Some(value), "{key}");
            }
        }
        assert!(confined.get("User").is_some_and(|user| user != "root"));
    }
}

fn objects() -> Vec<Value> {
    let parts = MANIFEST.split("\n---\n");
    parts.map(|part| serde_saphyr::from_str(part).unwrap()).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The pods of what makes pods, with its name.
fn pods(objects: &[Value]) -> BTreeMap<String, Value> {
    let made = objects.iter().filter_map(|object| {
        let template = object.pointer("/spec/template")?;
        Some((text(object, "/metadata/name").to_owned(), template.clone()))
    });
    made.collect()
}

/// Parses the command line of a container that runs Windlass; `None` for other containers.
fn parse_container_command(pod: &Value) -> Option<CliCommand> {
    let container = pod.pointer("/spec/containers/0")?;
    let words = list(container, "command").iter().chain(list(container, "args"));
    let words: Vec<_> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
    (words.first()? == "windlass").then(|| parse_command(words))
}

#[test]
fn pods_run_existing_commands() {
    let objects = objects();
    let pods = pods(&objects);
    let Some(CliCommand::Server(server)) = parse_container_command(&pods["windlass-server"]) else {
        panic!()
    };
    let Some(CliCommand::Controllers(controllers)) = parse_container_command(&pods["windlass-controllers"])
    else {
        panic!()
    };
    assert_eq!(controllers.signing.files().unwrap().len(), 4);

    let grace = pods["windlass-server"].pointer("/spec/terminationGracePeriodSeconds");
    let grace = grace.and_then(Value::as_u64).unwrap();
    assert!(Duration::from_secs(grace) > shutdown_duration(&server.serve));

    let etcd = objects.iter().find(|object| object["kind"] == "StatefulSet").unwrap();
    let (name, service) = (text(etcd, "/metadata/name"), text(etcd, "/spec/serviceName"));
    let members = 0..etcd["spec"]["replicas"].as_u64().unwrap();
    let urls = members.map(|n| format!("https://{name}-{n}.{service}.windlass.svc:2379"));
    assert_eq!(server.serve.etcd.etcd_servers, urls.collect::<Vec<_>>());
    let external = server.serve.external_url.unwrap().url;
    let service = |object: &&Value| object["kind"] == "Service";
    let named = objects.iter().filter(service).any(|object| {
        let (name, space) = (text(object, "/metadata/name"), text(object, "/metadata/namespace"));
        external == format!("https://{name}.{space}.svc:6443")
    });
    assert!(named, "{external}");
}

/// Files that arguments name, with the flag or without.
fn files(container: &Value) -> Vec<&str> {
    let words = list(container, "args").iter().filter_map(Value::as_str);
    let values = words.map(|word| word.split_once('=').map_or(word, |(_, value)| value));
    values.filter(|value| value.starts_with('/') && !value.contains(char::is_whitespace)).collect()
}

#[test]
fn every_file_is_mounted() {
    for (name, pod) in pods(&objects()) {
        let container = pod.pointer("/spec/containers/0").unwrap();
        for file in files(container) {
            let below = |mount: &&Value| file.starts_with(text(mount, "/mountPath"));
            let mount = list(container, "volumeMounts").iter().find(below);
            let mount = mount.unwrap_or_else(|| panic!("{name}: {file}"));
            let volumes = list(&pod["spec"], "volumes");
            let Some(volume) = volumes.iter().find(|volume| volume["name"] == mount["name"]) else {
                assert_eq!(mount["name"], "data", "{name}: {file}");
                continue;
            };
            let items = list(&volume["secret"], "items");
            let last = file.rsplit('/').next().unwrap();
            let listed = items.is_empty() || items.iter().any(|item| item["path"] == last);
            assert!(listed, "{name}: {file}");
        }
    }
}

#[test]
fn everything_in_the_manifest_fits_together() {
    let objects = objects();
    let pods = pods(&objects);
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        let selector = match kind {
            "Service" => &object["spec"]["selector"],
            "NetworkPolicy" => &object["spec"]["podSelector"]["matchLabels"],
            "Namespace" => continue,
            _ => &object["spec"]["selector"]["matchLabels"],
        };
        let selected = pods.values().any(|pod| &pod["metadata"]["labels"] == selector);
        assert!(selector.is_object() && selected, "{kind} {selector}");
        assert_eq!(object["metadata"]["namespace"], "windlass", "{kind}");
    }
    for (name, pod) in &pods {
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true, "{name}");
        let containers = list(&pod["spec"], "containers").iter();
        for container in containers.chain(list(&pod["spec"], "initContainers")) {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{name}");
            assert!(container.pointer("/resources/limits/memory").is_some(), "{name}");
            let ports = list(container, "ports");
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let Some(asked) = container.pointer(&format!("/{probe}/httpGet")) else { continue };
                assert!(ports.iter().any(|port| port["name"] == asked["port"]), "{name} {probe}");
            }
        }
    }
    let server = pods["windlass-server"].pointer("/spec/containers/0").unwrap();
    assert_eq!(text(server, "/livenessProbe/httpGet/path"), "/livez");
    assert_eq!(text(server, "/readinessProbe/httpGet/path"), "/readyz");
}
