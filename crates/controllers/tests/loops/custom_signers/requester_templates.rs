//! Tests of name patterns with requester placeholders, and of names that are never approved
//! automatically.

use super::*;

const CORP: &str = r#"
- name: example.com/corp
  ca: {files: {certificate: tls.crt, key: tls.key}}
  requests:
    commonNames: ["system:node:{node}", "*"]
    dnsNames: ["{node}.corp.example", "{serviceAccount}.{namespace}.corp.example"]
    uris: ["spiffe://corp.example/{node}/*"]
    usages: [digital signature, server auth]
    maxDuration: 24h
    approval:
      automatic:
        users: [system:node:a, system:node:b, "system:serviceaccount:web:api"]
"#;

const ASKED: CsrTemplate<'static> = CsrTemplate {
    signer: "example.com/corp",
    subject: "",
    names: &["DNS:a.corp.example"],
    usages: &["server auth"],
    seconds: None,
};

async fn start_fixture() -> SignerFixture {
    let files = tempfile::tempdir().unwrap();
    write_ca(files.path(), &authority("ca", 9), &[]);
    SignerFixture::start_in(files, CORP).await
}

impl SignerFixture {
    /// Waits until a condition states why a request is not approved.
    async fn wait_for_objection(&self, name: &str) -> String {
        let reported = |request: Option<&Csr>| {
            request.is_some_and(|r| condition(r, "windlass.dev/ApprovalDelayed").is_some())
        };
        let request = wait_until(&self.requests(), name, "be objected to", reported).await.unwrap();
        assert!(condition(&request, "Approved").is_none(), "{name}");
        condition(&request, "windlass.dev/ApprovalDelayed").unwrap().message.clone().unwrap()
    }
}

/// Regression test: a wildcard let two nodes obtain each other's names.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_its_own_name_and_no_other() {
    let site = start_fixture().await;
    let [a, b] = ["a", "b"].map(|node| site.requests_as(&format!("system:node:{node}"), "x"));
    ASKED.create(&a, "own").await;
    ASKED.create(&b, "others").await;
    let own = site.wait_until_settled("own").await;
    assert!(own.status.unwrap().certificate.is_some());
    let message = site.wait_for_objection("others").await;
    assert!(message.contains("DNS name \"a.corp.example\" is not allowed"), "{message}");
    let account = site.requests_as("system:serviceaccount:web:api", "x");
    CsrTemplate { names: &["DNS:api.web.corp.example"], ..ASKED }.create(&account, "account").await;
    assert!(site.wait_until_settled("account").await.status.unwrap().certificate.is_some());
    // Not signed even after manual approval: the placeholder stands for the requester, not the
    // approver.
    approve(&site.requests(), "others").await;
    let failed = site.wait_until_settled("others").await;
    let failed = condition(&failed, "Failed").unwrap();
    assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_common_name_are_not_approved_automatically() {
    let site = start_fixture().await;
    let a = site.requests_as("system:node:a", "x");
    CsrTemplate { names: &[], ..ASKED }.create(&a, "nameless").await;
    let wanted = "the request has neither a subject nor a subject alternative name";
    assert_eq!(site.wait_for_objection("nameless").await, wanted);
    CsrTemplate { names: &[], subject: "CN=anything", ..ASKED }.create(&a, "named").await;
    assert!(site.wait_until_settled("named").await.status.unwrap().certificate.is_some());
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_leads_to_the_uri_of_another() {
    let site = start_fixture().await;
    let a = site.requests_as("system:node:a", "x");
    for (name, uri) in [
        ("once", "URI:spiffe://corp.example/a/%2e%2e/b/x"),
        ("twice", "URI:spiffe://corp.example/a/%252e%252e/b/x"),
        ("slash", "URI:spiffe://corp.example/a/x%2F..%2Fb"),
    ] {
        CsrTemplate { names: &[uri], ..ASKED }.create(&a, name).await;
        let message = site.wait_for_objection(name).await;
        assert!(message.starts_with("URI "), "{message}");
    }
    CsrTemplate { names: &["URI:spiffe://corp.example/a/x"], ..ASKED }.create(&a, "plain").await;
    assert!(site.wait_until_settled("plain").await.status.unwrap().certificate.is_some());
    site.world.shut_down().await;
}
