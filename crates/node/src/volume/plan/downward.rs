//! Files of `downwardAPI` sources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use windlass_api::field::quote;
use windlass_api::names;
use windlass_api::quantity::Quantity;

use super::super::definition::{DownwardFile, DownwardValue};
use super::{BlockedReason, PayloadPlanner, blocked};

const NANOS: i128 = 1_000_000_000;
const NANOS_OF_MILLI: i128 = 1_000_000;

impl PayloadPlanner<'_> {
    pub(super) fn downward(&mut self, files: &[DownwardFile]) -> Result<(), BlockedReason> {
        let Some(pod) = self.world.pod else {
            return Err(blocked("downwardAPI: there is no pod"));
        };
        let mut reasons = Vec::new();
        for file in files {
            let value = match &file.value {
                DownwardValue::Field(path) => field(pod, path),
                DownwardValue::Resource { container, resource, divisor } => {
                    let allocatable = self.world.allocatable;
                    amount(pod, container, resource, divisor.as_deref(), allocatable)
                }
            };
            match value {
                Ok(value) => self.plain(&file.path, value.into_bytes(), file.mode, file.owner)?,
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() { Ok(()) } else { Err(BlockedReason(reasons)) }
    }
}

/// Formats a field of a pod as text.
fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let metadata = &pod.metadata;
    let entry = |map: &Option<BTreeMap<String, String>>, key: &str, checked: &str| {
        let broken = names::qualified_name(checked);
        if !broken.is_empty() {
            return Err(format!("invalid key subscript in {path}: {}", broken.join(";")));
        }
        // A missing key is written as an empty value.
        Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    match subscripted(path) {
        Some(("metadata.annotations", key)) => {
            return entry(&metadata.annotations, key, &key.to_lowercase());
        }
        Some(("metadata.labels", key)) => return entry(&metadata.labels, key, key),
        Some(_) => return Err(format!("fieldPath {} does not support subscript", quote(path))),
        None => {}
    }
    let text = |value: &Option<String>| Ok(value.clone().unwrap_or_default());
    match path {
        "metadata.annotations" => Ok(lines(&metadata.annotations)),
        "metadata.labels" => Ok(lines(&metadata.labels)),
        "metadata.name" => text(&metadata.name),
        "metadata.namespace" => text(&metadata.namespace),
        "metadata.uid" => text(&metadata.uid),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// Splits `a['b']` into `a` and `b`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(whole, _)| !whole.is_empty())
}

/// Formats one line per entry, sorted, without a trailing newline.
fn lines(map: &Option<BTreeMap<String, String>>) -> String {
    let entries = map.iter().flatten();
    let lines = entries.map(|(key, value)| format!("{key}={}", quote(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a resource request or limit of a container in units of the divisor, rounded up.
fn amount(
    pod: &Pod,
    container: &str,
    resource: &str,
    divisor: Option<&str>,
    allocatable: &BTreeMap<String, String>,
) -> Result<String, String> {
    let container = containers(pod)
        .find(|known| known.name == container)
        .ok_or_else(|| format!("container {container} not found"))?;
    let unsupported = || format!("unsupported container resource : {resource}");
    let (list, name) = resource.split_once('.').ok_or_else(unsupported)?;
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&name);
    if !known && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let own = match list {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    let own = own.and_then(|own| own.get(name)).map(|Text(text)| nanos(text)).transpose()?;
    let value = match own {
        // Without its own limit, a container has the node's.
        None | Some(0) if list == "limits" && known => {
            allocatable.get(name).map(|text| nanos(text)).transpose()?
        }
        own => own,
    };
    let unit = if name == "cpu" { NANOS_OF_MILLI } else { NANOS };
    let divisor = match divisor.map(nanos).transpose()? {
        None | Some(0) => NANOS,
        Some(divisor) => divisor,
    };
    // Both are rounded up before the division: CPU to thousandths, everything else to one.
    let (value, divisor) =
        (divide_rounding_up(value.unwrap_or_default(), unit), divide_rounding_up(divisor, unit));
    Ok(divide_rounding_up(value, divisor).to_string())
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

fn nanos(text: &str) -> Result<i128, String> {
    Quantity::parse(text).map(|amount| amount.nanos()).map_err(|error| error.to_string())
}

fn divide_rounding_up(value: i128, by: i128) -> i128 {
    let rest = value.checked_rem(by).unwrap_or_default();
    let whole = value.checked_div(by).unwrap_or_default();
    if rest != 0 && (rest > 0) == (by > 0) { whole.saturating_add(1) } else { whole }
}
