//! `windlass trust`: which nodes have which trust bundle in their volumes; and whom this machine trusts.
//!
//! - `world`: what the server has: bundles, what nodes report, and nodes.
//! - `delivery`: what is made of it.
//! - `text`: how that is said to people.
//! - `package`: the system's store as the default package of Bundles.

mod delivery;
mod package;
mod text;
mod world;

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;
use time::OffsetDateTime;

use super::{connect, print};
use crate::cli::{Format, TrustCommand, TrustStatusArgs};

use delivery::{Delivery, World, deliveries};
use world::Server;

/// Does what was asked about trust.
pub fn run(command: TrustCommand) -> Result<()> {
    let arguments = match command {
        TrustCommand::Status(arguments) => arguments,
        TrustCommand::Package(arguments) => return package::run(&arguments),
    };
    let well = connect::block_on(status(arguments))?;
    if !well {
        std::process::exit(1);
    }
    Ok(())
}

/// What is asked.
struct Question {
    bundle: Option<String>,
    signer: Option<String>,
    gone: bool,
    wait: bool,
}

/// What there is to say.
struct Answer {
    deliveries: Vec<Delivery>,
    well: bool,
}

async fn status(arguments: TrustStatusArgs) -> Result<bool> {
    let TrustStatusArgs { bundle, signer, gone, wait, timeout, output, server } = arguments;
    let question = Question { bundle, signer, gone, wait };
    let client = connect::client(server.kubeconfig.as_deref()).await?;
    let mut server = Server::look(client).await?;
    let mut answer = question.answer(&server.world);
    if wait && !answer.well {
        eprintln!("windlass: waiting: {}", text::brief(&answer.deliveries, gone));
        let patience = match timeout.is_zero() {
            true => Duration::MAX,
            false => timeout,
        };
        let waited = async {
            loop {
                server.change().await?;
                answer = question.answer(&server.world);
                if answer.well {
                    return anyhow::Ok(());
                }
            }
        };
        match tokio::time::timeout(patience, waited).await {
            Ok(waited) => waited?,
            Err(_) => eprintln!("windlass: it is not so after {timeout:?}"),
        }
    }
    show(&question, &answer, &server.world, output.format)?;
    Ok(answer.well)
}

impl Question {
    fn answer(&self, world: &World) -> Answer {
        let mut found = deliveries(world);
        match (&self.bundle, &self.signer) {
            (Some(name), _) => found.retain(|delivery| delivery.name == *name),
            (None, Some(signer)) => found.retain(|delivery| delivery.is_of(signer)),
            (None, None) => {}
        }
        let well = match &self.bundle {
            Some(_) if self.gone => found.iter().all(|delivery| delivery.carriers.is_empty()),
            // One that is not there can be nowhere, but that is hardly what was meant.
            // And whoever waits for nodes to have it does not mean none.
            Some(_) => {
                let asked_for = |delivery: &Delivery| !self.wait || delivery.nodes > 0;
                !found.is_empty() && found.iter().all(|one| one.is_well() && asked_for(one))
            }
            None => found.iter().all(Delivery::is_well),
        };
        Answer { deliveries: found, well }
    }
}

fn show(question: &Question, answer: &Answer, world: &World, format: Option<Format>) -> Result<()> {
    let now = OffsetDateTime::now_utc();
    let people = matches!(format, None | Some(Format::Wide));
    let silent = world.silent();
    if people && !silent.is_empty() {
        eprintln!("windlass: {}", text::silent(&silent));
    }
    let deliveries = &answer.deliveries;
    let Some(name) = &question.bundle else {
        if people && deliveries.is_empty() {
            eprintln!("windlass: there are no such bundles");
            return Ok(());
        }
        let items = deliveries.iter().map(Delivery::summary).collect::<Vec<_>>();
        let document = json!({ "items": items, "nodesWithoutReport": silent });
        return print::show(&document, format, |format| text::list(deliveries, format));
    };
    match deliveries.first() {
        Some(delivery) => {
            let mut document = serde_json::to_value(delivery)?;
            document["nodesWithoutReport"] = json!(silent);
            print::show(&document, format, |format| match question.gone {
                true => text::carriers(delivery, format, now),
                false => text::one(delivery, format, now),
            })
        }
        None if question.gone => {
            if people {
                eprintln!("windlass: there is no bundle {name:?}, and no node has it");
            }
            Ok(())
        }
        None => bail!("there is no bundle {name:?}; see windlass trust status"),
    }
}
