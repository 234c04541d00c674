//! Cost of authentication and authorization.
//!
//! Different callers read the same object repeatedly, and the server's CPU time is divided by the
//! number of reads. The callers take turns within one run, because the machine is shared: only the
//! differences are meaningful.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use windlass_testkit::{HttpClient, HttpProtocol};

use super::BenchContext;
use super::rates::{NAMESPACE, fill};
use super::server::{READER, ServerProcess};
use super::table::{ResultTable, TableRow};

const CLIENTS: usize = 8;
/// Turns per caller; the median counts.
const TURNS: usize = 5;
const ROLES: usize = 1_000;
const BINDINGS: usize = 5_000;

/// Measures all types of callers before and after many roles are created.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let data = bench.scratch.join("access");
    let server = ServerProcess::start(bench, &data).await?;
    fill(&server, NAMESPACE, 1, 1_024).await?;
    let admin = server.client.clone();
    let reader = admin.with_token(READER);
    post(&admin, "clusterroles", &role("reader-role")).await?;
    post(&admin, "clusterrolebindings", &binding("reader-role", "reader-role", "reader")).await?;

    let account = admin.with_token(&account_token(&admin).await?);
    let person = certificate_user(bench, &data, &admin)?;
    let lasts = bench.phase() / 3;
    let callers = [&admin, &reader, &account, &person].map(|client| (client, HttpProtocol::Http1, lasts));
    let few = measure_median_cpu(&server, &callers).await?;
    many_roles(&admin).await?;
    let many = measure_median_cpu(&server, &callers[..2]).await?;

    let [as_admin, as_reader, as_account, as_person] = few[..] else { unreachable!() };
    let [admin_later, reader_later] = many[..] else { unreachable!() };
    let note = |text: &str| format!("server CPU a GET; {text}");
    table.add(
        TableRow::lower("get by a static token, no rules asked", as_admin, "us")
            .with_note(note("a member of system:masters")),
    );
    let added = |value: f64| (value - as_admin).max(0.0);
    table.add(
        TableRow::lower("RBAC, default roles: adds", added(as_reader), "us")
            .with_note(note("the same, but allowed by a role")),
    );
    let later = (reader_later - admin_later).max(0.0);
    table.add(
        TableRow::lower("RBAC, 1,000 roles and 5,000 bindings: adds", later, "us")
            .with_note(note("the bar is 10 us")),
    );
    table.add(
        TableRow::lower("service-account token: adds", added(as_account), "us")
            .with_note(note("signature, account, and a role")),
    );
    table.add(
        TableRow::lower("client certificate: adds", added(as_person), "us")
            .with_note(note("on an open connection, and a role")),
    );
    server.stop()
}

/// Returns the median CPU time of one read in microseconds, for each caller.
async fn measure_median_cpu(
    server: &ServerProcess,
    callers: &[(&HttpClient, HttpProtocol, Duration)],
) -> Result<Vec<f64>> {
    let mut measured = vec![Vec::new(); callers.len()];
    for _ in 0..TURNS {
        for (samples, (client, protocol, lasts)) in measured.iter_mut().zip(callers) {
            samples.push(cost(server, client, *protocol, *lasts).await?);
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    Ok(measured.into_iter().map(median).collect())
}

async fn cost(
    server: &ServerProcess,
    client: &HttpClient,
    protocol: HttpProtocol,
    lasts: Duration,
) -> Result<f64> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/filled-0");
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = client.connect_with(protocol).await?;
        // The first read of a connection verifies its certificate.
        connection.expect(Method::GET, &path, Bytes::new()).await?;
        connections.push(connection);
    }
    let (before, started) = (server.process.cpu_seconds()?, Instant::now());
    let mut workers = JoinSet::new();
    for mut connection in connections {
        let path = path.clone();
        workers.spawn(async move {
            let mut done = 0_u64;
            while started.elapsed() < lasts {
                connection.expect(Method::GET, &path, Bytes::new()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(worker) = workers.join_next().await {
        done += worker??;
    }
    ensure!(done > 0, "nothing was read");
    Ok((server.process.cpu_seconds()? - before) * 1e6 / done as f64)
}

/// Creates roles and bindings that do not concern the measured callers.
async fn many_roles(admin: &HttpClient) -> Result<()> {
    let mut workers = JoinSet::new();
    for worker in 0..CLIENTS {
        let client = admin.clone();
        workers.spawn(async move {
            for number in (worker..ROLES).step_by(CLIENTS) {
                post(&client, "clusterroles", &role(&format!("role-{number}"))).await?;
            }
            for number in (worker..BINDINGS).step_by(CLIENTS) {
                let (name, user) = (format!("binding-{number}"), format!("user-{}", number % 997));
                let bound = binding(&name, &format!("role-{}", number % ROLES), &user);
                post(&client, "clusterrolebindings", &bound).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

fn role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        ],
    })
}

/// Binds a role to the user, the certificate's group and the service account.
fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
            {"kind": "ServiceAccount", "name": user, "namespace": NAMESPACE},
        ],
    })
}

pub async fn post(client: &HttpClient, plural: &str, object: &Value) -> Result<()> {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    connection.expect(Method::POST, &path, object.to_string().into()).await?;
    Ok(())
}

/// Returns a token of the service account `reader`.
async fn account_token(admin: &HttpClient) -> Result<String> {
    let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    connection.expect(Method::POST, &accounts, account.to_string().into()).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/reader/token");
    let answer = connection.expect(Method::POST, &path, request.to_string().into()).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["status"]["token"].as_str().context("no token in the answer")?.to_owned())
}

/// Returns a client for the user `reader` with a client certificate instead of a token.
fn certificate_user(bench: &BenchContext, data: &std::path::Path, admin: &HttpClient) -> Result<HttpClient> {
    let made = Command::new(&bench.binary)
        .args(["user", "add", "reader", "--out", "-", "--data-dir"])
        .arg(data)
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kubeconfig = String::from_utf8(made.stdout)?;
    let field = |name: &str| -> Result<Vec<u8>> {
        let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name));
        Ok(STANDARD.decode(line.with_context(|| format!("no {name} in the kubeconfig"))?.trim())?)
    };
    let (chain, key) = (field("client-certificate-data:")?, field("client-key-data:")?);
    Ok(admin.with_certificate(&fs::read(data.join("pki/ca.crt"))?, &chain, &key))
}
