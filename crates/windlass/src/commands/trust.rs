//! `windlass trust`: shows which nodes have which trust bundle in their volumes, and packages the
//! certificates that this machine trusts.
//!
//! - `server_watch`: watches bundles, trust reports and Nodes of the server.
//! - `delivery`: evaluates them.
//! - `text`: formats the result for people.
//! - `package`: converts the system's trust store to a default package of Bundles.

pub mod delivery;
mod package;
pub mod server_watch;
mod text;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{api_client, print};
use crate::cli::{OutputFormat, TrustCommand, TrustStatusArgs};

use delivery::{BundleDelivery, DeliveryOverview, TrustState, overview};
use server_watch::TrustWatcher;

pub use text::{count_text, delivery_summary};

/// Runs a subcommand of `windlass trust`.
pub fn run(command: TrustCommand) -> Result<()> {
    let arguments = match command {
        TrustCommand::Status(arguments) => arguments,
        TrustCommand::Package(arguments) => return package::run(&arguments),
    };
    let well = api_client::block_on(status(arguments))?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}

/// What `windlass trust status` has to evaluate, from its flags.
struct TrustQuery {
    bundle: Option<String>,
    signer: Option<String>,
    gone: bool,
    wait: bool,
}

/// Result of evaluating a query.
struct TrustAnswer {
    overview: DeliveryOverview,
    well: bool,
}

async fn status(arguments: TrustStatusArgs) -> Result<bool> {
    let TrustStatusArgs { bundle, signer, gone, wait, timeout, output, server } = arguments;
    let question = TrustQuery { bundle, signer, gone, wait };
    let client = api_client::connect(&server).await?;
    let mut server = TrustWatcher::start(client).await?;
    let mut answer = question.evaluate(&server.world);
    if wait && !answer.well {
        eprintln!("windlass: waiting: {}", text::overview_summary(&answer.overview, gone));
        let patience = match timeout.is_zero() {
            true => Duration::MAX,
            false => timeout,
        };
        let waited = async {
            loop {
                server.change().await?;
                answer = question.evaluate(&server.world);
                if answer.well {
                    return anyhow::Ok(());
                }
            }
        };
        match tokio::time::timeout(patience, waited).await {
            Ok(waited) => waited?,
            Err(_) => {
                let state = text::overview_summary(&answer.overview, gone);
                eprintln!("windlass: timed out after {timeout:?}: {state}");
            }
        }
    }
    show(&question, &answer, output.format)?;
    Ok(answer.well)
}

impl TrustQuery {
    fn evaluate(&self, world: &TrustState) -> TrustAnswer {
        let mut overview = overview(world);
        let found = &mut overview.deliveries;
        match (&self.bundle, &self.signer) {
            (Some(name), _) => found.retain(|delivery| delivery.name == *name),
            (None, Some(signer)) => found.retain(|delivery| delivery.is_from_signer(signer)),
            (None, None) => {}
        }
        let well = match &self.bundle {
            Some(_) if self.gone => found.iter().all(|delivery| delivery.carriers.is_empty()),
            // A missing bundle is trivially delivered, but the user probably mistyped its name.
            // With `--wait`, a bundle that no node selects is not complete either.
            Some(_) => {
                let asked_for = |delivery: &BundleDelivery| !self.wait || delivery.nodes > 0;
                !found.is_empty() && found.iter().all(|one| one.is_complete() && asked_for(one))
            }
            None => found.iter().all(BundleDelivery::is_complete),
        };
        // An unmatched volume carries no bundle that would have to be removed.
        if self.gone {
            overview.unmatched.clear();
        }
        let well = well && overview.unmatched.is_empty() && overview.unreported.is_empty();
        TrustAnswer { overview, well }
    }
}

fn show(question: &TrustQuery, answer: &TrustAnswer, format: Option<OutputFormat>) -> Result<()> {
    let now = OffsetDateTime::now_utc();
    let people = matches!(format, None | Some(OutputFormat::Wide));
    let overview = &answer.overview;
    if people && !overview.agentless.is_empty() {
        eprintln!("windlass: {}", text::agentless(&overview.agentless));
    }
    let rest = |mut document: Value| {
        let DeliveryOverview { unmatched, unreported, agentless, .. } = overview;
        document["unmatched"] = json!(unmatched);
        document["unreported"] = json!(unreported);
        let missing = unreported.iter().map(|one| &one.node).chain(agentless);
        document["nodesWithoutReport"] = json!(missing.collect::<BTreeSet<_>>());
        document
    };
    let deliveries = &overview.deliveries;
    let Some(name) = &question.bundle else {
        if people && deliveries.is_empty() {
            eprintln!("windlass: no bundles found");
        }
        let items = deliveries.iter().map(BundleDelivery::summary).collect::<Vec<_>>();
        let document = rest(json!({ "items": items }));
        return print::show(&document, format, |format| text::list(overview, format, now));
    };
    match deliveries.first() {
        Some(delivery) => print::show(&rest(delivery.document()), format, |format| match question.gone {
            true => text::carrier_details(delivery, overview, format, now),
            false => text::bundle_details(delivery, overview, format, now),
        }),
        None if question.gone => {
            if people {
                eprintln!("windlass: bundle {name:?} does not exist, and no report lists it");
            }
            let document = rest(json!({ "name": name, "exists": false }));
            print::show(&document, format, |format| text::uncertainty_notes(overview, format, now))
        }
        None => bail!("bundle {name:?} not found; list bundles with windlass trust status"),
    }
}
