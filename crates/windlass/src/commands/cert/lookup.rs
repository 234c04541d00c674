//! Finds the one certificate of the ledger that a command is about.

use anyhow::{Result, bail};
use kube::Client;
use windlass_ledger::{
    AuthorityId, CertificateIndex, CertificateView, IssuanceRecord, KeyHash, SerialNumber,
};
use windlass_pki::ForeignCertificate;

use super::target::CertificateTarget;
use super::{ledger, list};
use crate::cli::CertIssuerArgs;
use crate::commands::print;

/// What a certificate must match.
#[derive(Debug)]
pub struct CertificateQuery {
    pub serial: SerialNumber,
    authority: Option<AuthorityId>,
    signer: Option<String>,
    /// Hash of the key of a certificate that is at hand: another one with the same serial number is not meant.
    key_hash: Option<KeyHash>,
}

/// A certificate of the ledger with its whole record.
pub struct FoundCertificate<'a> {
    pub view: CertificateView<'a>,
    pub record: IssuanceRecord,
}

impl CertificateQuery {
    /// Builds a query from an argument, the chain that it names if it names one, and flags.
    pub fn new(
        target: &CertificateTarget,
        chain: Option<&[ForeignCertificate]>,
        issuer: &CertIssuerArgs,
    ) -> Result<Self> {
        let (signer, authority) = (issuer.signer.clone(), issuer.authority.clone());
        match (target, chain.and_then(<[_]>::first)) {
            (CertificateTarget::Serial(serial, named), _) => {
                let authority = authority.or_else(|| named.clone());
                Ok(Self { serial: *serial, authority, signer, key_hash: None })
            }
            (_, Some(leaf)) => {
                let serial = SerialNumber::from_bytes(&leaf.serial())?;
                let key_hash = Some(KeyHash::from_spki(leaf.public_key().as_der()));
                Ok(Self { serial, authority, signer, key_hash })
            }
            (_, None) => bail!("no certificate found"),
        }
    }

    fn candidates<'a>(&self, index: &'a CertificateIndex) -> Vec<CertificateView<'a>> {
        let matches = |view: &CertificateView<'_>| {
            view.serial() == self.serial
                && self.authority.as_ref().is_none_or(|id| id.as_bytes() == view.authority_bytes())
                && self.signer.as_deref().is_none_or(|signer| signer == view.signer())
        };
        index.certificates().filter(matches).collect()
    }

    /// Finds the certificate; `None` if there is none. Fails with the candidates if there are several.
    pub async fn find<'a>(
        &self,
        client: &Client,
        index: &'a CertificateIndex,
        now: i64,
    ) -> Result<Option<FoundCertificate<'a>>> {
        let mut found = Vec::new();
        for view in self.candidates(index) {
            let record = ledger::read_record(client, view.position()).await?;
            if self.key_hash.is_none_or(|hash| hash == record.key_hash) {
                found.push(FoundCertificate { view, record });
            }
        }
        if found.len() > 1 {
            let views: Vec<CertificateView<'_>> = found.iter().map(|each| each.view).collect();
            eprint!("{}", candidates_text(&views, now));
            let (count, serial) = (views.len(), self.serial);
            bail!("{count} certificates have serial number {serial}; add --signer or --authority");
        }
        Ok(found.pop())
    }
}

/// Lists certificates with the same serial number by what tells them apart.
fn candidates_text(views: &[CertificateView<'_>], now: i64) -> String {
    // SIGNER, HOLDER, STATE, EXPIRES and AUTHORITY.
    let rows = list::rows(views, now, true).map(|row| row.into_iter().skip(1).take(5).collect());
    print::table(&rows.collect::<Vec<Vec<_>>>())
}
