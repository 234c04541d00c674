//! `windlass csr`: requests for certificates, on any server.

pub mod decide;
mod text;
pub mod view;

use anyhow::{Result, bail};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use time::OffsetDateTime;

use super::{connect, print};
use crate::cli::{CsrCommand, CsrDecideArgs, CsrListArgs, CsrShowArgs, Format};

use decide::{Decided, Decision, Reason};
use view::View;

pub use text::{brief, line, object};

/// A request for a certificate.
pub type Request = CertificateSigningRequest;

/// Requests to get at a time.
const PAGE: u32 = 500;

/// Does what was asked with requests.
pub fn run(command: CsrCommand) -> Result<()> {
    connect::block_on(async {
        match command {
            CsrCommand::List(arguments) => list(arguments).await,
            CsrCommand::Show(arguments) => show(arguments).await,
            CsrCommand::Approve(arguments) => decide(arguments, Decision::Approve).await,
            CsrCommand::Deny(arguments) => decide(arguments, Decision::Deny).await,
        }
    })
}

async fn list(arguments: CsrListArgs) -> Result<()> {
    let api: Api<Request> =
        Api::all(connect::client(arguments.server.kubeconfig.as_deref()).await?);
    let mut wanted = ListParams::default().limit(PAGE);
    if let Some(signer) = &arguments.signer {
        wanted = wanted.fields(&format!("spec.signerName={signer}"));
    }
    let now = OffsetDateTime::now_utc();
    let mut views = Vec::new();
    loop {
        let page = connect::answer(api.list(&wanted)).await?.map_err(connect::explain)?;
        views.extend(page.items.iter().map(|request| View::of(request, now)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => break,
        }
    }
    if arguments.pending {
        views.retain(View::is_pending);
    }
    if views.is_empty() && matches!(arguments.output.format, None | Some(Format::Wide)) {
        eprintln!("windlass: there are no such requests");
        return Ok(());
    }
    let items = json!({ "items": views });
    print::show(&items, arguments.output.format, |format| text::list(&views, format))
}

async fn show(arguments: CsrShowArgs) -> Result<()> {
    let api: Api<Request> =
        Api::all(connect::client(arguments.server.kubeconfig.as_deref()).await?);
    let request = get(&api, &arguments.name).await?;
    let view = View::of(&request, OffsetDateTime::now_utc());
    print::show(&view, arguments.output.format, |format| text::show(&view, &request, format))
}

async fn decide(arguments: CsrDecideArgs, decision: Decision) -> Result<()> {
    let client = connect::client(arguments.server.kubeconfig.as_deref()).await?;
    let api: Api<Request> = Api::all(client.clone());
    let reason = Reason::of(decision, arguments.reason, arguments.message);
    let mut failed = 0;
    let mut done = Vec::new();
    let format = arguments.output.format;
    for name in &arguments.names {
        let decided = async {
            let request = get(&api, name).await?;
            let decided = decide::decide(&client, &request, decision, &reason).await?;
            anyhow::Ok((View::of(&request, OffsetDateTime::now_utc()), decided))
        };
        match decided.await {
            Ok((view, decided)) => {
                let already = decided == Decided::Before;
                let what = decision.done();
                match format {
                    None => {
                        let (already, asked) = (if already { " already" } else { "" }, line(&view));
                        print::out(&format!("{} {what}{already}: {asked}\n", object(name)))?;
                    }
                    Some(Format::Name) => print::out(&format!("{}\n", object(name)))?,
                    Some(_) => {}
                }
                let decided = json!({ "name": name, "decision": what, "already": already });
                done.push(decided);
            }
            Err(error) if arguments.names.len() == 1 => return Err(error),
            Err(error) => {
                eprintln!("windlass: {error:#}");
                failed += 1;
            }
        }
    }
    print::show(&json!({ "items": done }), format, |_| String::new())?;
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} not {}", arguments.names.len(), decision.done()),
    }
}

/// The request of this name.
async fn get(api: &Api<Request>, name: &str) -> Result<Request> {
    match connect::answer(api.get_opt(name)).await?.map_err(connect::explain)? {
        Some(request) => Ok(request),
        None => bail!("there is no request {name:?}; see windlass csr list"),
    }
}
