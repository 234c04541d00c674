//! The signers that are known here, with what they sign with: read from files only.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use windlass_controllers::sign::Signer;
use windlass_controllers::signers::config::{ConfigError, Custom, RequestProfile, Signers};

use super::authority::{Ca, Form};
use super::terms::{Document, Kind};
use super::{built_in, custom};
use crate::cli::{DataDirArgs, SignersOfArgs};
use crate::commands::data_dir;
use crate::datadir::Layout;
use crate::expiry::{Lifetime, Monitored, Role};

/// A signer that is known here.
#[derive(Debug)]
pub struct Known {
    pub document: Document,
    pub ca: Ca,
    /// The longest that certificates may last, and the field that says so.
    pub longest: Vec<(&'static str, Duration)>,
    /// The bundle that its anchors are published in.
    pub bundle: Option<String>,
    /// Wildcards that several requesters share, as `field pattern`.
    pub shared_wildcards: Vec<String>,
}

/// Where to look.
#[derive(Debug)]
pub struct Places {
    /// The data directory, if there is one.
    pub data: Option<Layout>,
    /// The file of the user's own signers, if there is one.
    pub signers: Option<PathBuf>,
}

impl Places {
    /// What was said, or else what `windlass up` would use, if it is there.
    pub fn of(arguments: &SignersOfArgs) -> Result<Self> {
        let given = arguments.data_dir.is_some();
        let data = match data_dir::layout(&DataDirArgs { data_dir: arguments.data_dir.clone() }) {
            Ok(layout) if layout.root().is_dir() => Some(layout),
            Ok(layout) if given => bail!("there is no data directory {}", layout.root().display()),
            Err(error) if given => return Err(error),
            Ok(_) | Err(_) => None,
        };
        let usual = data.as_ref().map(Layout::signers).filter(|file| file.exists());
        Ok(Self { data, signers: arguments.signers.clone().or(usual) })
    }

    /// What the data directory has issued to its server and administrator, and the serving CA, which
    /// is no signer's. One that is not there has never been made.
    pub fn own_certificates(&self) -> Vec<Lifetime> {
        let Some(data) = &self.data else { return Vec::new() };
        let own = [
            ("serving", Role::Renewed, "server.crt"),
            ("admin", Role::Renewed, "admin.crt"),
            ("serving-ca", Role::OwnAuthority, "ca.crt"),
        ];
        let read = |(name, role, file)| Monitored::file(name, role, data.pki(file)).read().ok();
        own.into_iter().filter_map(read).collect()
    }

    /// The user's own signers.
    pub fn custom(&self) -> Result<Vec<Custom>, ConfigError> {
        let read = self.signers.as_deref().map(Signers::load).transpose()?;
        Ok(read.map(|read| read.signers).unwrap_or_default())
    }
}

impl Known {
    /// Kubernetes' own, with their CAs if the data directory of `windlass up` is here.
    pub fn built_in(data: Option<&Layout>) -> Vec<Self> {
        let documents = built_in::NAMES.into_iter().filter_map(built_in::document);
        let known = documents.map(|document| Self {
            ca: data.map_or(Ca::Elsewhere, |data| own_ca(data, &document.name)),
            document,
            longest: Vec::new(),
            bundle: None,
            shared_wildcards: Vec::new(),
        });
        known.collect()
    }

    /// One of the user's own.
    pub fn custom(custom: &Custom) -> Self {
        let requests =
            custom.requests.as_ref().map(|profile| ("requests.maxDuration", profile.longest));
        let pods = custom.pods.as_ref().map(|profile| ("pods.maxDuration", profile.longest));
        let shared = custom.requests.iter().flat_map(RequestProfile::shared_wildcards);
        Self {
            shared_wildcards: shared.map(|(field, each)| format!("{field} {each}")).collect(),
            document: custom::document(custom),
            ca: Ca::chosen(&custom.ca),
            longest: requests.into_iter().chain(pods).collect(),
            bundle: custom.publish.as_ref().map(|publication| publication.bundle.clone()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.document.name
    }

    /// Where it comes from.
    pub fn kind(&self) -> Kind {
        self.document.kind
    }
}

/// The files that `windlass up` signs with.
fn own_ca(data: &Layout, name: &str) -> Ca {
    let pair = match Signer::named(name) {
        Some(Signer::Client | Signer::KubeletClient) => "client-ca",
        Some(Signer::KubeletServing | Signer::LegacyUnknown) => "kubelet-serving-ca",
        None => return Ca::Elsewhere,
    };
    let (certificate, key) = (data.pki(&format!("{pair}.crt")), data.pki(&format!("{pair}.key")));
    // A server with other CAs makes none there, and one that never ran has none yet.
    match certificate.exists() || key.exists() {
        true => Ca::read(&certificate, &key, Form::One),
        false => Ca::Elsewhere,
    }
}
