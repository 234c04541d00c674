//! `windlass csr`: manages certificate signing requests, on any server.

pub mod decision;
mod text;
pub mod view;

use anyhow::{Result, bail};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use time::OffsetDateTime;

use super::{api_client, print};
use crate::cli::{CsrCommand, CsrDecideArgs, CsrListArgs, CsrShowArgs, OutputFormat};

use decision::{CsrDecision, DecisionOutcome, DecisionReason};
use view::CsrView;

pub use text::{DescriptionWriter, names_summary, object, summarize};

pub type CsrObject = CertificateSigningRequest;

const PAGE: u32 = 500;

pub fn run(command: CsrCommand) -> Result<()> {
    api_client::block_on(async {
        match command {
            CsrCommand::List(arguments) => list(arguments).await,
            CsrCommand::Show(arguments) => show(arguments).await,
            CsrCommand::Approve(arguments) => decide(arguments, CsrDecision::Approve).await,
            CsrCommand::Deny(arguments) => decide(arguments, CsrDecision::Deny).await,
        }
    })
}

async fn list(arguments: CsrListArgs) -> Result<()> {
    let api: Api<CsrObject> = Api::all(api_client::connect(&arguments.server).await?);
    let mut wanted = ListParams::default().limit(PAGE);
    if let Some(signer) = &arguments.signer {
        wanted = wanted.fields(&format!("spec.signerName={signer}"));
    }
    let now = OffsetDateTime::now_utc();
    let mut views = Vec::new();
    loop {
        let page = api_client::with_timeout(api.list(&wanted)).await?.map_err(api_client::explain)?;
        views.extend(page.items.iter().map(|request| CsrView::from_csr(request, now)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => break,
        }
    }
    if arguments.pending {
        views.retain(|view| view.is_pending);
    }
    if views.is_empty() && matches!(arguments.output.format, None | Some(OutputFormat::Wide)) {
        eprintln!("windlass: no requests found");
        return Ok(());
    }
    let items = json!({ "items": views });
    print::show(&items, arguments.output.format, |format| text::list(&views, format))
}

async fn show(arguments: CsrShowArgs) -> Result<()> {
    let api: Api<CsrObject> = Api::all(api_client::connect(&arguments.server).await?);
    let request = get(&api, &arguments.name).await?;
    let view = CsrView::from_csr(&request, OffsetDateTime::now_utc());
    print::show(&view, arguments.output.format, |format| text::show(&view, &request, format))
}

async fn decide(arguments: CsrDecideArgs, decision: CsrDecision) -> Result<()> {
    let client = api_client::connect(&arguments.server).await?;
    let api: Api<CsrObject> = Api::all(client.clone());
    let reason = DecisionReason::from_flags(decision, arguments.reason, arguments.message);
    let mut failed = 0;
    let mut done = Vec::new();
    let format = arguments.output.format;
    for name in &arguments.names {
        let decided = async {
            let request = get(&api, name).await?;
            let decided = decision::decide(&client, &request, decision, &reason).await?;
            anyhow::Ok((CsrView::from_csr(&request, OffsetDateTime::now_utc()), decided))
        };
        match decided.await {
            Ok((view, decided)) => {
                let already = decided == DecisionOutcome::Before;
                let what = decision.done();
                match format {
                    None => {
                        let already = if already { "already " } else { "" };
                        let (name, summary) = (object(name), summarize(&view));
                        print::write_stdout(&format!("{name} {already}{what}: {summary}\n"))?;
                    }
                    Some(OutputFormat::Name) => print::write_stdout(&format!("{}\n", object(name)))?,
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
        _ => bail!("{failed} of {} requests not {}", arguments.names.len(), decision.done()),
    }
}

async fn get(api: &Api<CsrObject>, name: &str) -> Result<CsrObject> {
    match api_client::with_timeout(api.get_opt(name)).await?.map_err(api_client::explain)? {
        Some(request) => Ok(request),
        None => bail!("request {name:?} not found; list requests with windlass csr list"),
    }
}
