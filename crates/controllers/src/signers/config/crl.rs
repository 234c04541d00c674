//! The section `crl`: certificate revocation lists of a signer.

use std::fmt;
use std::time::Duration;

use windlass_api::field::FieldErrors;
use windlass_api::names;
use windlass_api::selector::labels::{LabelSelector, validate_label_selector};
use windlass_api::signer::AUTHORITY_PLACEHOLDER;
use windlass_pki::DistributionPoint;
use windlass_runtime::config::{ConfigField, ConfigResult};

const MINUTE: Duration = Duration::from_secs(60);
/// Validity of a list if the signer has no `duration`, and of those of built-in signers.
pub const DEFAULT_CRL_DURATION: Duration = Duration::from_secs(24 * 60 * 60);
/// Most URLs in one certificate, as the API allows.
const MAX_URLS: usize = 8;
/// Digits of the longest id that the API allows.
const MAX_ID_DIGITS: usize = 128;

/// Publication of certificate revocation lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlConfig {
    /// URLs that issued certificates contain; none if empty.
    pub distribution_points: Vec<DistributionPointTemplate>,
    /// Time from an update of the list until it expires. The next one is due after half of it.
    pub duration: Duration,
    /// ConfigMaps with the lists; `None` for none.
    pub config_map: Option<CrlConfigMap>,
}

/// ConfigMap with the lists of a signer in namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlConfigMap {
    /// Name of the ConfigMap in each namespace.
    pub name: String,
    /// Selects namespaces by their labels.
    pub namespaces: LabelSelector,
}

/// URL of a list, in which `{authority}` stands for the id of the CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributionPointTemplate(String);

impl CrlConfig {
    pub(super) fn parse(section: &ConfigField<'_>) -> ConfigResult<CrlConfig> {
        let fields = section.fields(&["distributionPoints", "duration", "configMap"])?;
        let distribution_points = fields.list("distributionPoints", DistributionPointTemplate::parse);
        if distribution_points.as_ref().is_ok_and(|points| points.len() > MAX_URLS) {
            section.error(format!("has more than {MAX_URLS} distributionPoints"));
        }
        let duration = fields.optional("duration", |field| field.duration_at_least(MINUTE));
        let config_map = fields.optional("configMap", CrlConfigMap::parse);
        Ok(CrlConfig {
            distribution_points: distribution_points?,
            duration: duration?.unwrap_or(DEFAULT_CRL_DURATION),
            config_map: config_map?,
        })
    }
}

impl CrlConfigMap {
    fn parse(section: &ConfigField<'_>) -> ConfigResult<CrlConfigMap> {
        let fields = section.fields(&["name", "namespaceSelector"])?;
        let name = fields.required("name", |field| field.valid_name(names::dns1123_subdomain));
        let namespaces = fields.optional("namespaceSelector", |field| {
            let selector = field.to_json();
            let mut errors = FieldErrors::new();
            validate_label_selector(field.path(), &selector, &mut errors);
            field.report_field_errors(errors.iter())?;
            LabelSelector::from_object(&selector).map_err(|error| field.error(error.to_string()))
        });
        let namespaces = namespaces?.unwrap_or_else(LabelSelector::everything);
        Ok(CrlConfigMap { name: name?, namespaces })
    }
}

impl DistributionPointTemplate {
    fn parse(field: &ConfigField<'_>) -> ConfigResult<DistributionPointTemplate> {
        let template = DistributionPointTemplate(field.text()?.to_owned());
        if template.0.replace(AUTHORITY_PLACEHOLDER, "").contains(['{', '}']) {
            let detail = format!("has an unknown placeholder; the only one is {AUTHORITY_PLACEHOLDER}");
            return Err(field.invalid(detail));
        }
        // Every id is valid if the longest is.
        match DistributionPoint::parse(&template.expand(&"0".repeat(MAX_ID_DIGITS))) {
            Ok(_) => Ok(template),
            Err(error) => Err(field.invalid(format!("is not a URL of a list: {error}"))),
        }
    }

    /// Returns the URL for the list of a CA; `None` if its id is too long for a URL.
    pub fn resolve(&self, authority_id: &str) -> Option<DistributionPoint> {
        DistributionPoint::parse(&self.expand(authority_id)).ok()
    }

    fn expand(&self, authority_id: &str) -> String {
        self.0.replace(AUTHORITY_PLACEHOLDER, authority_id)
    }
}

impl fmt::Display for DistributionPointTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the URLs for certificates that a CA signs.
pub fn resolve_points(templates: &[DistributionPointTemplate], authority_id: &str) -> Vec<DistributionPoint> {
    templates.iter().filter_map(|template| template.resolve(authority_id)).collect()
}
