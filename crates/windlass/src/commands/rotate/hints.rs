//! What to do about a rotation that is held, and about its laggards.

use windlass_api::ca_rotation::{HeldReason, LaggardReason};

/// Returns what to do about a held rotation; empty if there is nothing to do but wait.
pub fn held_hint(reason: HeldReason, rotation: &str) -> String {
    match reason {
        // The laggards have hints of their own.
        HeldReason::ConsumersLagging | HeldReason::ConsumersNotRead => String::new(),
        HeldReason::LeavesOutstanding => format!(
            "renew these certificates, wait until they expire, or let them break with windlass rotate retire {rotation} --accept-outstanding"
        ),
        HeldReason::CaUnavailable => {
            "check the Signer with kubectl describe signer, and the Secret, files or token of its CA".into()
        }
        HeldReason::NotPublished => {
            "check the condition Published of the Signer, and the ClusterTrustBundles of the signer".into()
        }
        HeldReason::Paused => format!("continue with windlass rotate resume {rotation}"),
        HeldReason::CanarySoaking => "wait until the soak time of the canary is over".into(),
        HeldReason::LedgerUnavailable => "check the ledger with windlass cert verify-ledger".into(),
        HeldReason::ReportsUnavailable => {
            "check that NodeTrusts are served (windlass crds nodetrusts) and that the controllers may list them and Bundles".into()
        }
    }
}

/// Returns what to do about laggards of a rotation.
pub fn laggard_hint(reason: LaggardReason, rotation: &str) -> String {
    match reason {
        LaggardReason::NotWritten | LaggardReason::StillPresent => {
            "see why with windlass trust status, and for Bundles with windlass bundle status".into()
        }
        LaggardReason::NotRead => format!(
            "reload or restart the application, or accept it with windlass rotate accept {rotation} NAME"
        ),
        LaggardReason::NotReporting => format!(
            "restore the agent of the node; if the node is gone for good, windlass rotate exclude {rotation} NODE"
        ),
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::ca_rotation::RotationPhase;

    use super::*;

    const PAGE: &str = include_str!("../../../../../docs/rotation.md");

    #[test]
    fn the_page_explains_every_reason_and_phase() {
        for reason in HeldReason::ALL {
            assert!(PAGE.contains(&format!("\n| `{}` |", reason.as_str())), "{reason:?}");
        }
        let reasons = [
            LaggardReason::NotWritten,
            LaggardReason::NotRead,
            LaggardReason::StillPresent,
            LaggardReason::NotReporting,
        ];
        for reason in reasons {
            assert!(PAGE.contains(&format!("`{}`", reason.as_str())), "{reason:?}");
            assert!(!laggard_hint(reason, "x").is_empty());
        }
        for phase in RotationPhase::FORWARD {
            assert!(PAGE.contains(&format!("\n| `{phase}` |")), "{phase}");
        }
    }
}
