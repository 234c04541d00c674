//! `windlass controllers`: the controllers alone, against any API server.

use anyhow::{Result, bail};

use crate::cli::ControllersArgs;

/// Works until told to stop.
pub fn run(arguments: ControllersArgs) -> Result<()> {
    bail!(
        "the controllers cannot run alone yet (kubeconfig {}); `windlass up` runs them in process",
        arguments.kubeconfig.display()
    )
}
