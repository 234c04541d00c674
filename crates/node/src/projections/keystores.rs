//! Keystores in formats other than PEM, built from the files of a volume. The same content and
//! password give the same bytes.

use windlass_pki::{
    ForeignCertificate, KeyStore, KeystoreProtection, Pkcs12Profile, PrivateKey, TrustStore,
    labelled_certificates, pem,
};
use zeroize::Zeroizing;

use super::HostProjection;
use super::secret::Passphrase;
use crate::volume::definition::ProjectedSource;
use crate::volume::path::VolumePath;
use crate::volume::payload::{PayloadFile, VolumePayload};
use crate::volume::plan::BlockedReason;

/// Permission bits of users other than owner and group.
const OTHERS: u32 = 0o007;

/// A keystore file. It takes owner and mode from the file that it is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct KeystoreFile {
    /// Path of the keystore, relative to the volume.
    pub path: VolumePath,
    /// The format, the input files and the protection of the keystore.
    pub kind: KeystoreKind,
}

/// Format of a keystore, with its input files.
#[derive(Clone, Debug, PartialEq)]
pub enum KeystoreKind {
    /// A PKCS#12 trust store with trust anchors and no key.
    Pkcs12Trust {
        /// Path of the PEM file with the trust anchors.
        trust: VolumePath,
        /// Password and algorithms of the keystore; `None` leaves it unprotected.
        seal: Option<(Passphrase, Pkcs12Profile)>,
    },
    /// A JKS trust store with trust anchors and no key.
    JksTrust {
        /// Path of the PEM file with the trust anchors.
        trust: VolumePath,
        /// The password that protects the integrity of the keystore.
        password: Passphrase,
    },
    /// A PKCS#12 keystore with a key and its certificates.
    Pkcs12Key {
        /// Path of the PEM file with the key.
        key: VolumePath,
        /// Path of the certificate file; `None` means the key file contains the certificates.
        chain: Option<VolumePath>,
        /// Alias of the key in the keystore.
        alias: String,
        /// The password that encrypts the key and protects the keystore.
        password: Passphrase,
        /// The encryption and MAC algorithms of the PKCS#12 file.
        profile: Pkcs12Profile,
    },
}

impl KeystoreKind {
    /// Returns the file whose owner and mode the keystore takes.
    pub fn primary_input(&self) -> &VolumePath {
        match self {
            Self::Pkcs12Trust { trust, .. } | Self::JksTrust { trust, .. } => trust,
            Self::Pkcs12Key { key, .. } => key,
        }
    }

    /// Returns the file with the anchors of a trust store; `None` for a key store.
    pub fn trust_anchors(&self) -> Option<&VolumePath> {
        match self {
            Self::Pkcs12Trust { trust, .. } | Self::JksTrust { trust, .. } => Some(trust),
            Self::Pkcs12Key { .. } => None,
        }
    }

    /// Returns all input files with the names of the fields that reference them.
    pub fn inputs(&self) -> Vec<(&'static str, &VolumePath)> {
        match self {
            Self::Pkcs12Trust { trust, .. } | Self::JksTrust { trust, .. } => {
                vec![("trustAnchorsPath", trust)]
            }
            Self::Pkcs12Key { key, chain, .. } => {
                let chain = chain.iter().map(|chain| ("certificateChainPath", chain));
                [("keyPath", key)].into_iter().chain(chain).collect()
            }
        }
    }

    /// Returns the password; `None` for an unprotected PKCS#12 trust store.
    pub fn passphrase(&self) -> Option<&Passphrase> {
        match self {
            Self::Pkcs12Trust { seal, .. } => seal.as_ref().map(|(password, _)| password),
            Self::JksTrust { password, .. } | Self::Pkcs12Key { password, .. } => Some(password),
        }
    }
}

/// Returns the files of a volume with its keystores, or all reasons why they cannot be built.
pub fn finish(projection: &HostProjection, payload: VolumePayload) -> Result<VolumePayload, BlockedReason> {
    let mut finished = restrict_key_access(projection, payload);
    let mut reasons = Vec::new();
    for KeystoreFile { path, kind } in &projection.stores {
        let made = match build_keystore(projection, kind, &finished) {
            Ok(Some(file)) => finished.add(path.clone(), file).map_err(|error| error.to_string()),
            Ok(None) => Ok(()),
            Err(why) => Err(format!("{path}: {why}")),
        };
        reasons.extend(made.err());
    }
    if reasons.is_empty() { Ok(finished) } else { Err(BlockedReason(reasons)) }
}

/// Removes the permissions of other users from keys generated here. A pod isolates its volumes from
/// other users; a host does not.
fn restrict_key_access(projection: &HostProjection, payload: VolumePayload) -> VolumePayload {
    let sources = projection.definition.sources.iter().map(|(_, source)| source);
    let keys = sources.flat_map(ProjectedSource::key_paths).collect::<Vec<_>>();
    if keys.is_empty() {
        return payload;
    }
    let mut closed = VolumePayload::new(payload.group());
    for (path, file) in payload.files() {
        let mut file = file.clone();
        if keys.contains(&path) {
            file.mode &= !OTHERS;
        }
        // The paths did not conflict before.
        let _ = closed.add(path.clone(), file);
    }
    closed
}

/// Builds one keystore. Returns `None` if an optional input is missing.
fn build_keystore(
    projection: &HostProjection,
    kind: &KeystoreKind,
    payload: &VolumePayload,
) -> Result<Option<PayloadFile>, String> {
    for (_, input) in kind.inputs() {
        if payload.get(input).is_none() {
            let is_optional = may_be_missing(projection, input);
            let missing = || Err(format!("{input} is not in the volume"));
            return if is_optional { Ok(None) } else { missing() };
        }
    }
    let read = |path| payload.get(path).map_or(&[][..], |file| file.bytes.as_slice());
    let (bytes, mask) = match kind {
        KeystoreKind::Pkcs12Trust { trust, seal } => {
            let store = trust_store(trust, read(trust))?;
            let password = seal.as_ref().map(|(passphrase, _)| passphrase.password()).transpose()?;
            let protection = match (&password, seal) {
                (Some(password), Some((_, profile))) => {
                    KeystoreProtection::Sealed { password, profile: *profile }
                }
                _ => KeystoreProtection::Open,
            };
            (store.to_pkcs12(&protection), 0)
        }
        KeystoreKind::JksTrust { trust, password } => {
            (trust_store(trust, read(trust))?.to_jks(&password.password()?), 0)
        }
        KeystoreKind::Pkcs12Key { key: path, chain, alias, password, profile } => {
            let key = private_key(path, read(path))?;
            let from = chain.as_ref().unwrap_or(path);
            let chain = certificates(from, read(from))?;
            let store = KeyStore::new(alias, &key, &chain).map_err(|error| error.to_string())?;
            (store.to_pkcs12(&password.password()?, *profile), OTHERS)
        }
    };
    let bytes = Zeroizing::new(bytes.map_err(|error| error.to_string())?);
    let model = payload.get(kind.primary_input());
    let (mode, owner) = model.map_or((0, None), |model| (model.mode, model.owner));
    Ok(Some(PayloadFile { bytes, mode: mode & !mask, owner }))
}

/// Returns whether a file comes from an optional object.
fn may_be_missing(projection: &HostProjection, path: &VolumePath) -> bool {
    let mut objects = projection.definition.sources.iter().filter_map(|(_, source)| source.object());
    objects.any(|object| {
        let is_named = object.items.iter().any(|item| item.path == *path);
        object.optional && (is_named || object.items.is_empty())
    })
}

/// Parses the anchors of a file. An empty file has none; that is how missing optional bundles are
/// written.
fn trust_store(path: &VolumePath, text: &[u8]) -> Result<TrustStore, String> {
    if text.trim_ascii().is_empty() {
        return Ok(TrustStore::new([]));
    }
    Ok(TrustStore::new(&certificates(path, text)?))
}

/// Parses the certificates of a file, at least one. The file may also contain a key.
fn certificates(path: &VolumePath, text: &[u8]) -> Result<Vec<ForeignCertificate>, String> {
    let found = labelled_certificates(text).map(|der| ForeignCertificate::from_der(&der));
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| format!("{path}: {error}"))?;
    if found.is_empty() { Err(format!("{path}: no certificate found")) } else { Ok(found) }
}

/// Parses the only key of a file, which may also contain certificates.
fn private_key(path: &VolumePath, text: &[u8]) -> Result<PrivateKey, String> {
    let blocks = pem::blocks(text).map_err(|error| format!("{path}: {error}"))?;
    let labels = [pem::PRIVATE_KEY, pem::EC_PRIVATE_KEY, pem::RSA_PRIVATE_KEY];
    let mut keys = blocks.iter().filter(|block| labels.contains(&block.label.as_str()));
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) => pem::encode(&key.label, &key.contents),
        (Some(_), Some(_)) => return Err(format!("{path}: more than one private key")),
        (None, _) => return Err(format!("{path}: no private key found")),
    };
    PrivateKey::from_pem(key.as_bytes()).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests;
