use super::*;

const NODE: &str = "system:node:n1";

/// One row: differences from a good request, and the expected messages.
struct PolicyCase {
    common_name: &'static str,
    organizations: &'static [&'static str],
    /// Any of the letters d, e, i and u: a name of that kind.
    names: &'static str,
    usages: &'static [&'static str],
    serving: Option<&'static str>,
    client: Option<&'static str>,
}

const SERVER: &[&str] = &["digital signature", "server auth"];
const CLIENTS: &[&str] = &["client auth", "digital signature"];
const ORGANIZATION: Option<&str> = Some("subject organization is not system:nodes");
const PREFIX: Option<&str> = Some("subject common name does not begin with system:node:");
const REQUIRED: Option<&str> = Some("DNS or IP subjectAltName is required");
const DNS: Option<&str> = Some("DNS subjectAltNames are not allowed");
const EMAIL: Option<&str> = Some("Email subjectAltNames are not allowed");
const IP: Option<&str> = Some("IP subjectAltNames are not allowed");
const URI: Option<&str> = Some("URI subjectAltNames are not allowed");
const SERVER_USAGES: Option<&str> =
    Some("usages did not match [digital signature key encipherment server auth]");
const CLIENT_USAGES: Option<&str> =
    Some("usages did not match [client auth digital signature key encipherment]");

fn alt_names(kinds: &str) -> AltNames {
    let some = |kind, name: &str| {
        if kinds.contains(kind) { vec![name.to_owned()] } else { Vec::new() }
    };
    AltNames {
        dns_names: some('d', "n1"),
        email_addresses: some('e', "a@b"),
        ip_addresses: some('i', "10.0.0.1").iter().map(|ip| ip.parse().unwrap()).collect(),
        uris: some('u', "spiffe://x/y"),
    }
}

fn text(verdict: Result<(), PolicyError>) -> Option<String> {
    verdict.err().map(|error| error.to_string())
}

const fn row(
    common_name: &'static str,
    organizations: &'static [&'static str],
    names: &'static str,
    usages: &'static [&'static str],
    serving: Option<&'static str>,
    client: Option<&'static str>,
) -> PolicyCase {
    PolicyCase { common_name, organizations, names, usages, serving, client }
}

const O: &[&str] = &["system:nodes"];

/// Each row violates one rule, or two adjacent ones of which the earlier must be reported.
const ROWS: [PolicyCase; 40] = [
    row(NODE, O, "d", SERVER, None, DNS),
    row(NODE, O, "i", SERVER, None, IP),
    row(NODE, O, "di", SERVER, None, DNS),
    row(NODE, O, "", CLIENTS, REQUIRED, None),
    row("system:node:", O, "d", SERVER, None, DNS),
    row("system:node:", O, "", CLIENTS, REQUIRED, None),
    // The organization is checked first.
    row("x", &[], "u", &[], ORGANIZATION, ORGANIZATION),
    row(NODE, &[], "d", SERVER, ORGANIZATION, ORGANIZATION),
    row(NODE, &[], "", CLIENTS, ORGANIZATION, ORGANIZATION),
    row(NODE, &["system:node"], "d", SERVER, ORGANIZATION, ORGANIZATION),
    row(NODE, &["System:nodes"], "d", SERVER, ORGANIZATION, ORGANIZATION),
    row(NODE, &["system:nodes", "system:nodes"], "d", SERVER, ORGANIZATION, ORGANIZATION),
    row(NODE, &["system:nodes", "x"], "", CLIENTS, ORGANIZATION, ORGANIZATION),
    row(NODE, &["x", "system:nodes"], "", CLIENTS, ORGANIZATION, ORGANIZATION),
    row(NODE, &["system:nodes", ""], "", CLIENTS, ORGANIZATION, ORGANIZATION),
    row(NODE, &["system:masters"], "", CLIENTS, ORGANIZATION, ORGANIZATION),
    // Then the alternative names.
    row(NODE, O, "e", SERVER, REQUIRED, EMAIL),
    row(NODE, O, "u", SERVER, REQUIRED, URI),
    row(NODE, O, "eu", CLIENTS, REQUIRED, EMAIL),
    row(NODE, O, "de", SERVER, EMAIL, DNS),
    row(NODE, O, "ie", SERVER, EMAIL, EMAIL),
    row(NODE, O, "iu", SERVER, URI, IP),
    row(NODE, O, "du", SERVER, URI, DNS),
    row(NODE, O, "deiu", SERVER, EMAIL, DNS),
    row("x", O, "iu", SERVER, URI, IP),
    // Servers are checked for usages before the common name, clients in reverse order.
    row("x", O, "d", SERVER, PREFIX, DNS),
    row("x", O, "", CLIENTS, REQUIRED, PREFIX),
    row("x", O, "", &[], REQUIRED, PREFIX),
    row("x", O, "d", &[], SERVER_USAGES, DNS),
    row("", O, "d", SERVER, PREFIX, DNS),
    row("", O, "", CLIENTS, REQUIRED, PREFIX),
    row("System:node:n1", O, "", CLIENTS, REQUIRED, PREFIX),
    row(" system:node:n1", O, "d", SERVER, PREFIX, DNS),
    row("system:node", O, "", CLIENTS, REQUIRED, PREFIX),
    // Usages.
    row(NODE, O, "d", CLIENTS, SERVER_USAGES, DNS),
    row(NODE, O, "", SERVER, REQUIRED, CLIENT_USAGES),
    row(NODE, O, "", &[], REQUIRED, CLIENT_USAGES),
    row(NODE, O, "", &["client auth"], REQUIRED, CLIENT_USAGES),
    row(NODE, O, "d", &["server auth"], SERVER_USAGES, DNS),
    row(NODE, O, "d", &[], SERVER_USAGES, DNS),
];

#[test]
fn nodes_get_what_the_first_broken_rule_allows() {
    for PolicyCase { common_name, organizations, names, usages, serving, client } in ROWS {
        let alt_names = alt_names(names);
        let (organizations, usages) = (organizations.to_vec(), usages.to_vec());
        let asked = RequestedAttributes { common_name, organizations, alt_names: &alt_names, usages };
        assert_eq!(text(validate_kubelet_serving(&asked)).as_deref(), serving, "{asked:?}");
        assert_eq!(text(validate_kubelet_client(&asked)).as_deref(), client, "{asked:?}");
    }
}

#[test]
fn usages_of_nodes_are_sets() {
    let table: [(&[&str], bool, bool); 12] = [
        (&["digital signature", "server auth"], true, false),
        (&["server auth", "digital signature"], true, false),
        (&["server auth", "key encipherment", "digital signature"], true, false),
        (&["server auth", "server auth", "digital signature"], true, false),
        (&["digital signature", "client auth"], false, true),
        (&["client auth", "key encipherment", "digital signature"], false, true),
        (&["client auth", "digital signature", "digital signature"], false, true),
        (&["client auth", "server auth", "digital signature"], false, false),
        (&["client auth", "signing"], false, false),
        (&["server auth", "signing"], false, false),
        (&["key encipherment"], false, false),
        (&["client auth", "digital signature", "any"], false, false),
    ];
    let (with, without) = (alt_names("d"), alt_names(""));
    for (usages, serving, client) in table {
        let asked = |alt_names| RequestedAttributes {
            common_name: NODE,
            organizations: O.to_vec(),
            alt_names,
            usages: usages.to_vec(),
        };
        let said = text(validate_kubelet_serving(&asked(&with)));
        assert_eq!(said.as_deref(), SERVER_USAGES.filter(|_| !serving), "{usages:?}");
        let said = text(validate_kubelet_client(&asked(&without)));
        assert_eq!(said.as_deref(), CLIENT_USAGES.filter(|_| !client), "{usages:?}");
    }
}

#[test]
fn clients_are_asked_for_usages_only() {
    let missing = Some("missing required usage for client certificate: client auth");
    let table: [(&[&str], Option<&str>); 10] = [
        (&["client auth"], None),
        (&["client auth", "digital signature"], None),
        (&["key encipherment", "client auth"], None),
        (&["client auth", "client auth", "digital signature", "key encipherment"], None),
        (&[], missing),
        (&["digital signature"], missing),
        (&["key encipherment", "digital signature"], missing),
        (&["client auth", "server auth"], Some("invalid usage for client certificate: server auth")),
        (&["any", "cert sign"], Some("invalid usage for client certificate: any")),
        (&["signing", "client auth"], Some("invalid usage for client certificate: signing")),
    ];
    for (usages, said) in table {
        for (common_name, kinds) in [("", ""), ("anybody", "deiu"), (NODE, "d")] {
            let alt_names = alt_names(kinds);
            let (organizations, usages) = (vec!["system:masters"], usages.to_vec());
            let asked = RequestedAttributes { common_name, organizations, alt_names: &alt_names, usages };
            assert_eq!(text(validate_api_client(&asked)).as_deref(), said, "{asked:?}");
        }
    }
}
