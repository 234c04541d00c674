//! `windlass rotate plan`: what a rotation would do, and what would hold it. Changes nothing.
//!
//! - `snapshot`: reads the signer, consumers and certificates from the server.
//! - `evaluation`: derives the plan, as a pure function.
//! - `text`: formats the plan for people.

mod consumers;
mod evaluation;
mod snapshot;
mod text;

use anyhow::Result;
use kube::Client;
use time::OffsetDateTime;

use super::rotations::{self, SignerObject};
use crate::cli::RotatePlanArgs;
use crate::commands::{api_client, print};

pub use evaluation::RotationPlan;
pub use text::consequences;

/// Prints the plan of a rotation.
pub async fn run(arguments: RotatePlanArgs) -> Result<()> {
    let client = api_client::connect(&arguments.server).await?;
    let now = OffsetDateTime::now_utc();
    let signer = rotations::find_signer(&client, &arguments.signer).await?;
    let plan = compute(&client, signer, now).await?;
    print::show(&plan, arguments.output.format, |_| text::text(&plan, now))
}

/// Reads the state of the server and derives the plan.
pub async fn compute(client: &Client, signer: SignerObject, now: OffsetDateTime) -> Result<RotationPlan> {
    let snapshot = snapshot::fetch(client, signer).await?;
    Ok(evaluation::evaluate(&snapshot, now))
}
