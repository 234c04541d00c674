use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_flag_and_command_explains_itself() {
    fn check(command: &clap::Command) {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name}");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    let mut command = Cli::command();
    command.build();
    check(&command);
}

#[test]
fn has_defaults_that_work() {
    let CliCommand::Up(up) = parse("windlass up").unwrap().command else { panic!() };
    assert_eq!(up.serve.listen, "127.0.0.1:6443".parse().unwrap());
    assert_eq!(up.serve.shutdown_grace, Duration::from_secs(30));
    assert!(up.serve.data.data_dir.is_none() && up.node_name.is_none() && !up.no_node);
    let inflight = up.serve.inflight;
    assert_eq!(inflight.max_requests_inflight.get(), 400);
    assert_eq!(inflight.max_mutating_requests_inflight.get(), 200);
    assert!(up.serve.audit.audit_log_path.is_none());
}

#[test]
fn takes_the_flags_of_a_server() {
    let line = "windlass server --listen [::]:443 --tls-cert-file c --tls-private-key-file k \
                --client-ca-file ca --service-account-signing-key-file s \
                --service-account-key-file a --service-account-key-file b \
                --feature-gates A=true,B=false --feature-gates C=1 --shutdown-grace 1m30s -vv";
    let cli = parse(line).unwrap();
    assert_eq!(cli.logging.verbose, 2);
    let CliCommand::Server(server) = cli.command else { panic!() };
    assert_eq!(server.serve.shutdown_grace, Duration::from_secs(90));
    assert_eq!(server.service_account_key_file, [PathBuf::from("a"), PathBuf::from("b")]);
    let gates = server.serve.feature_gates.iter().map(|gate| (gate.name.as_str(), gate.enabled));
    assert_eq!(gates.collect::<Vec<_>>(), [("A", true), ("B", false), ("C", true)]);
}

#[test]
fn features_are_turned_off_wherever_there_is_a_server() {
    for command in ["up", "server"] {
        let line = format!("windlass {command} --feature-gates PodCertificateRequest=false");
        let serve = match parse(&line).unwrap().command {
            CliCommand::Up(up) => up.serve,
            CliCommand::Server(server) => server.serve,
            other => panic!("{other:?}"),
        };
        let gates = serve.feature_gates.iter().map(|gate| (gate.name.as_str(), gate.enabled));
        assert_eq!(gates.collect::<Vec<_>>(), [("PodCertificateRequest", false)], "{command}");
    }
}

#[test]
fn refuses_inconsistent_options() {
    for line in [
        "windlass",
        "windlass sideways",
        "windlass up --listen 6443",
        "windlass up --node-name a --no-node",
        "windlass up --node-name A_B",
        "windlass up --log-format xml",
        "windlass up --log-level debug -v",
        "windlass up --shutdown-grace 30",
        "windlass up --max-requests-inflight 0",
        "windlass up --min-request-timeout 0",
        "windlass up --min-request-timeout 86401",
        "windlass up --max-connections 0",
        "windlass up --max-connections-per-address none",
        "windlass up --audit-log-maxage 3",
        "windlass up --audit-log-mode blocking-strict",
        "windlass up --audit-log-path a --audit-log-mode strict",
        "windlass up --audit-log-path a --audit-anonymous-reads request",
        "windlass server --tls-cert-file c",
        "windlass server --tls-private-key-file k",
        "windlass server --service-account-key-file k",
        "windlass server --feature-gates A",
        "windlass server --feature-gates A=yes",
        "windlass up --feature-gates A",
        "windlass controllers",
        "windlass store",
        "windlass store backup",
        "windlass store check --data-dir d file",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn reads_durations_as_go_writes_them() {
    for (text, milliseconds) in [("0", 0), ("0s", 0), ("500ms", 500), ("90s", 90_000), ("1h2m3s", 3_723_000)]
    {
        assert_eq!(values::duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "5", "s", "-5s", "1.5s", "5 s", "5d", "5s6", "99999999999999999999s"] {
        assert!(values::duration(text).is_err(), "{text}");
    }
    assert!(values::duration(&format!("{}h", u64::MAX)).is_err());
}

#[test]
fn reads_when_a_credential_ends() {
    let day = Duration::from_secs(24 * 60 * 60);
    let CliCommand::User(UserCommand::Add(add)) = parse("windlass user add alice").unwrap().command else {
        panic!()
    };
    assert_eq!(add.expires, ExpiryTime::After(365 * day));
    for (text, wanted) in [
        ("90d", Some(90 * day)),
        ("1d12h", Some(day * 3 / 2)),
        ("45m", Some(Duration::from_secs(2700))),
        ("0d", None),
        ("0s", None),
        ("90", None),
        ("-1d", None),
        ("soon", None),
        ("99999999999d", None),
    ] {
        assert_eq!(values::expiry(text).ok(), wanted.map(ExpiryTime::After), "{text}");
    }
    let at = time::macros::datetime!(2027-01-31 0:00 UTC);
    assert_eq!(values::expiry("2027-01-31"), Ok(ExpiryTime::At(at)));
    assert_eq!(values::expiry("2027-01-31T00:00:00Z"), Ok(ExpiryTime::At(at)));
    assert!(values::expiry("2027-02-31").is_err());
    assert!(ExpiryTime::At(at).from(at).is_some() && ExpiryTime::After(day).from(at).is_some());
}

#[test]
fn refuses_names_that_no_certificate_should_hold() {
    for name in ["", " a", "a ", "a\nb", "\u{1b}[2J"] {
        assert!(values::user_name(name).is_err(), "{name:?}");
    }
    assert!(values::user_name("system:node:n1").is_ok());
    assert!(parse("windlass can-i get pods --as-group g").is_err());
    assert!(parse("windlass can-i get pods -n x -A").is_err());
}

/// The options of `up`, `server` and `controllers` that have a heading. All others stand under "Options".
const HEADINGS: [(&str, &[&str]); 11] = [
    ("Logging", &["log-format", "log-level", "verbose"]),
    ("Audit", &["audit-*"]),
    ("Store on etcd", &["etcd-*", "record-authorities"]),
    ("Leader election", &["leader-elect", "leader-elect-*"]),
    ("Node health", &["node-monitor-*", "node-startup-grace-period"]),
    ("Node", &["node-name", "projections", "no-node"]),
    (
        "Certificates and keys",
        &["tls-cert-file", "tls-private-key-file", "client-ca-file", "service-account-key-file"],
    ),
    ("Certificates and keys", &["service-account-signing-key-file"]),
    (
        "Bundles",
        &[
            "trust-namespace",
            "default-package-location",
            "secret-targets-enabled",
            "filter-*",
            "target-namespaces",
        ],
    ),
    ("Limits", &["max-*", "min-request-timeout"]),
    (
        "Authentication and admission",
        &[
            "anonymous-auth",
            "enable-*",
            "disable-*",
            "service-account-issuer",
            "service-account-jwks-uri",
            "api-audiences",
            "requestheader-*",
        ],
    ),
];

/// Of `up` and `controllers`, as above.
const SIGNING_HEADINGS: [(&str, &[&str]); 2] = [
    (
        "Signers",
        &[
            "signers",
            "signer-namespace",
            "pkcs11-*",
            "approve-kubelet-serving",
            "cluster-signing-duration",
            "ca-*",
        ],
    ),
    ("Signer CAs", &["cluster-signing-*"]),
];

fn heading(command: &str, option: &str) -> Option<&'static str> {
    let matches = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(prefix) => option.starts_with(prefix),
        None => option == *pattern,
    };
    let all = HEADINGS.iter().chain(&SIGNING_HEADINGS);
    let found = all.into_iter().find(|(_, options)| options.iter().any(matches));
    let found = found.map(|(heading, _)| *heading);
    let servers = ["up", "server", "controllers"].contains(&command);
    found.filter(|found| servers || ["Logging", "Store on etcd"].contains(found))
}

fn each_command(check: impl Fn(&clap::Command)) {
    fn walk(command: &clap::Command, check: &impl Fn(&clap::Command)) {
        check(command);
        let rest = command.get_subcommands().filter(|command| command.get_name() != "help");
        rest.for_each(|command| walk(command, check));
    }
    let mut command = Cli::command();
    command.build();
    walk(&command, &check);
}

#[test]
fn options_stand_under_their_headings() {
    each_command(|command| {
        for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
            let option = argument.get_long().unwrap_or(argument.get_id().as_str());
            if matches!(option, "help" | "version") {
                continue;
            }
            let name = command.get_name();
            assert_eq!(argument.get_help_heading(), heading(name, option), "{name} --{option}");
        }
    });
}

#[test]
fn the_short_option_o_is_the_output_format_everywhere() {
    each_command(|command| {
        for argument in command.get_arguments() {
            let (short, long) = (argument.get_short() == Some('o'), argument.get_long());
            assert_eq!(short, long == Some("output"), "{} {long:?}", command.get_name());
        }
    });
    let formats = [
        ("csr approve a", "json yaml name"),
        ("csr deny a", "json yaml name"),
        ("cert revoke 0a --undo", "json yaml name"),
        ("cert verify-ledger", "json yaml"),
        ("token delete abcdef", "json yaml name"),
        ("can-i get pods", "json yaml"),
        ("version", "json yaml"),
        ("user add a", "json yaml"),
        ("signer check", "json yaml"),
        ("store check", "json yaml"),
        ("store backup f", "json yaml"),
        ("store restore f", "json yaml"),
        ("store export f", "json yaml"),
        ("store import f", "json yaml"),
        ("store raise-revision --etcd-servers http://a:1", "json yaml"),
    ];
    for (line, taken) in formats {
        for format in ["json", "yaml", "name", "wide"] {
            let parsed = parse(&format!("windlass {line} -o {format}"));
            let wanted = taken.split(' ').any(|each| each == format);
            assert_eq!(parsed.is_ok(), wanted, "{line} -o {format}: {parsed:?}");
        }
    }
}

/// Verbs that summaries may start with.
const IMPERATIVES: [&str; 26] = [
    "Accept", "Approve", "Back", "Check", "Create", "Delete", "Deny", "Exclude", "Export", "Import", "List",
    "Pause", "Print", "Raise", "Renew", "Request", "Restore", "Resume", "Retire", "Return", "Revoke",
    "Rotate", "Run", "Show", "Start", "Verify",
];

#[test]
fn summaries_are_imperative_phrases() {
    each_command(|command| {
        let (name, about) = (command.get_name(), command.get_about().unwrap().to_string());
        let verb = about.split([' ', ',']).next().unwrap();
        assert!(IMPERATIVES.contains(&verb), "{name}: {about}");
        assert!(!about.ends_with('.') && !about.contains(". "), "{name}: {about}");
    });
}

#[test]
fn every_leaf_command_has_an_example() {
    each_command(|command| {
        if command.has_subcommands() && !command.is_args_conflicts_with_subcommands_set() {
            return;
        }
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = command.get_name();
        assert!(examples.starts_with("Examples:\n") && examples.contains("windlass "), "{name}");
        // Options in examples exist.
        for word in examples.split_whitespace().filter(|word| word.starts_with("--")) {
            let word = word.trim_start_matches("--").split('=').next().unwrap();
            let known = |command: &clap::Command| {
                command.get_arguments().any(|argument| argument.get_long() == Some(word))
            };
            let mut root = Cli::command();
            root.build();
            let up = root.find_subcommand("up").unwrap();
            assert!(known(command) || known(up), "{name}: --{word}");
        }
    });
}

/// Commands that send requests to an API server. The node agent has `--kubeconfig` only: it writes this file itself,
/// with one context.
#[test]
fn commands_with_a_kubeconfig_have_a_context() {
    let servers = std::cell::RefCell::new(Vec::new());
    each_command(|command| {
        let has = |long: &str| command.get_arguments().any(|each| each.get_long() == Some(long));
        if has("bootstrap-kubeconfig") {
            return;
        }
        assert_eq!(has("kubeconfig"), has("context"), "{}", command.get_name());
        if has("kubeconfig") {
            servers.borrow_mut().push(command.get_name().to_owned());
        }
    });
    let wanted = [
        "controllers",
        "issue",
        "list",
        "show",
        "approve",
        "deny",
        "list",
        "show",
        "revoke",
        "verify-ledger",
        "list",
        "check",
        "show",
        "plan",
        "start",
        "status",
        "pause",
        "resume",
        "rollback",
        "retire",
        "exclude",
        "accept",
        "status",
        "status",
        "create",
        "list",
        "delete",
        "can-i",
    ];
    assert_eq!(servers.into_inner(), wanted);
    for flag in ["--context", "-n"] {
        assert!(parse(&format!("windlass signer check --files-only {flag} a")).is_err(), "{flag}");
    }
}

/// Commands that read objects of namespaces. Bootstrap tokens are in kube-system, whatever the context says.
#[test]
fn commands_with_namespaced_objects_have_a_namespace() {
    for (line, taken) in [
        ("can-i get pods", true),
        ("signer list", true),
        ("signer check", true),
        ("bundle status a", true),
        ("signer show a.b/c", false),
        ("token list", false),
        ("csr list", false),
        ("cert list", false),
        ("trust status", false),
    ] {
        for flag in ["-n", "--namespace"] {
            let parsed = parse(&format!("windlass {line} {flag} shop"));
            assert_eq!(parsed.is_ok(), taken, "{line} {flag}: {parsed:?}");
        }
    }
}

#[test]
fn help_is_a_command() {
    for line in ["windlass help", "windlass help issue", "windlass help csr approve"] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
    }
}

#[test]
fn the_help_lists_all_controllers() {
    let help = parse("windlass controllers --help").unwrap_err().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for controller in windlass_controllers::ControllerName::ALL {
        assert!(help.contains(controller.name()), "{}", controller.name());
    }
}

#[test]
fn objects_are_named_as_they_are_printed() {
    let csr = |text: &str| values::csr_name(text).ok();
    for text in [
        "a",
        "csr/a",
        "certificatesigningrequest.certificates.k8s.io/a",
        "certificatesigningrequests.v1.certificates.k8s.io/a",
        "CertificateSigningRequest/a",
    ] {
        assert_eq!(csr(text).as_deref(), Some("a"), "{text}");
    }
    for text in ["pod/a", "csr/", "csr/a/b", "csr.example.com/a", "secret/a"] {
        assert_eq!(csr(text), None, "{text}");
    }
    let bundle = values::bundle_name("bundle.trust.cert-manager.io/my-org.com");
    assert_eq!(bundle.as_deref(), Ok("my-org.com"));
    let trust = values::trust_bundle_name("clustertrustbundle.certificates.k8s.io/a:b:c");
    assert_eq!(trust.as_deref(), Ok("a:b:c"));
    assert_eq!(values::trust_bundle_name("a:b:c").as_deref(), Ok("a:b:c"));
}

#[test]
fn listens_on_host_names() {
    for flag in [
        "up --listen",
        "server --listen",
        "controllers --kubeconfig k --metrics-listen",
        "node --kubeconfig k --cert-dir d --metrics-listen",
        "node --kubeconfig k --cert-dir d --rotate-server-certificates --listen",
    ] {
        assert!(parse(&format!("windlass {flag} localhost:6443")).is_ok(), "{flag}");
        for bad in ["localhost", ":6443", "localhost:", "localhost:70000", "a b:1", "-:1"] {
            let words = format!("windlass {flag}");
            let words = words.split_whitespace().chain([bad]);
            assert!(Cli::try_parse_from(words).is_err(), "{flag} {bad}");
        }
    }
    assert!(values::listen_address("localhost:6443").unwrap().ip().is_loopback());
    assert_eq!(values::listen_address("localhost:6443"), values::listen_address("LOCALHOST:6443"));
}
