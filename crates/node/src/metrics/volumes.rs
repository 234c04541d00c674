//! What is counted of volumes, under the names that KEP-3257 gives it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::head;
use crate::volume::definition::ProjectedSource;
use crate::volume_manager::report::VolumeReport;

/// What a source of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceType {
    /// A `clusterTrustBundle` source: trust anchors from ClusterTrustBundles.
    ClusterTrustBundle,
    /// A `podCertificate` source: a key and its certificate chain.
    PodCertificate,
    /// A `configMap` source: keys of a ConfigMap.
    ConfigMap,
    /// A `secret` source: keys of a Secret.
    Secret,
    /// A `serviceAccountToken` source: a bound, refreshed token.
    ServiceAccountToken,
    /// A `downwardAPI` source: fields and resources of the pod.
    DownwardApi,
}

impl SourceType {
    /// Returns the type of a volume source.
    pub fn from_source(source: &ProjectedSource) -> Self {
        match source {
            ProjectedSource::Bundle(_) => Self::ClusterTrustBundle,
            ProjectedSource::Certificate(_) => Self::PodCertificate,
            ProjectedSource::ConfigMap(_) => Self::ConfigMap,
            ProjectedSource::Secret(_) => Self::Secret,
            ProjectedSource::Token(_) => Self::ServiceAccountToken,
            ProjectedSource::Downward(_) => Self::DownwardApi,
        }
    }

    /// Returns the value of the `projected_volume_source_type` metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterTrustBundle => "ClusterTrustBundle",
            Self::PodCertificate => "PodCertificate",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::ServiceAccountToken => "ServiceAccountToken",
            Self::DownwardApi => "DownwardAPI",
        }
    }
}

/// Counters and histograms of volume refreshes and bundle deliveries; thread-safe.
#[derive(Debug, Default)]
pub struct VolumeMetrics {
    counts: Mutex<VolumeCounts>,
}

#[derive(Clone, Debug, Default)]
struct VolumeCounts {
    refreshes: BTreeMap<(SourceType, &'static str), Histogram>,
    since_change: Histogram,
    since_arrival: Histogram,
}

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

#[derive(Clone, Debug, Default)]
struct Histogram {
    /// Those of this bound and none below it.
    each: [u64; BOUNDS.len()],
    all: u64,
    seconds: f64,
}

impl Histogram {
    fn count(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(count) = place.and_then(|place| self.each.get_mut(place)) {
            *count += 1;
        }
        self.all += 1;
        self.seconds += seconds;
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(self.each) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.all);
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {}", self.seconds);
        let _ = writeln!(out, "{name}_count{braces} {}", self.all);
    }
}

impl VolumeMetrics {
    /// A source of a volume was looked at anew, and is as it should be on the disk, or not.
    pub fn refreshed(&self, source: SourceType, ok: bool, took: Duration) {
        let status = if ok { "OK" } else { "Error" };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.refreshes.entry((source, status)).or_default().count(took);
    }

    /// A change of a bundle is on the disk, so long after it came here and, as far as the clocks
    /// agree, so long after it was made.
    pub fn delivered(&self, since_arrival: Duration, since_change: Option<Duration>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.since_arrival.count(since_arrival);
        if let Some(took) = since_change {
            counts.since_change.count(took);
        }
    }

    /// Writes everything that is counted, with what is known now.
    pub fn write<'a>(
        &self,
        out: &mut String,
        volumes: impl Iterator<Item = &'a VolumeReport>,
        bundles: Option<usize>,
        certificates: &BTreeMap<(String, &'static str), u64>,
    ) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = "clustertrustbundle_informer_cache_size";
        head(out, name, "gauge", "Bytes that the ClusterTrustBundles take which the node knows");
        if let Some(bundles) = bundles {
            let _ = writeln!(out, "{name} {bundles}");
        }
        let name = "projectedvolumesource_instances";
        head(out, name, "gauge", "Sources of the volumes of this node, by type");
        let mut instances = BTreeMap::<SourceType, u64>::new();
        for source in volumes.flat_map(|volume| &volume.sources) {
            *instances.entry(*source).or_default() += 1;
        }
        for (source, number) in instances {
            let source = source.name();
            let _ = writeln!(out, "{name}{{projected_volume_source_type=\"{source}\"}} {number}");
        }
        counts.write_refreshes(out);
        let name = "windlass_node_trust_delivery_seconds";
        head(out, name, "histogram", "From a change of a trust bundle to the file on the disk");
        counts.since_change.write(out, name, "from=\"change\"");
        counts.since_arrival.write(out, name, "from=\"arrival\"");
        let name = "kubelet_podcertificate_states";
        head(out, name, "gauge", "Certificates of pods, by signer and state");
        for ((signer, state), number) in certificates {
            let signer = signer.escape_default();
            let _ = writeln!(out, "{name}{{signer_name=\"{signer}\",state=\"{state}\"}} {number}");
        }
    }
}

impl VolumeCounts {
    fn write_refreshes(&self, out: &mut String) {
        let labels = |source: &SourceType, status: &str| {
            format!("projected_volume_source_type=\"{}\",status=\"{status}\"", source.name())
        };
        let name = "projectedvolumesource_refresh_count";
        head(out, name, "counter", "How often sources of volumes were looked at anew");
        for ((source, status), histogram) in &self.refreshes {
            let _ = writeln!(out, "{name}{{{}}} {}", labels(source, status), histogram.all);
        }
        let name = "projectedvolumesource_refresh_duration";
        head(out, name, "histogram", "How long that took, in seconds, with the write to the disk");
        for ((source, status), histogram) in &self.refreshes {
            histogram.write(out, name, &labels(source, status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_the_name_that_was_promised() {
        let metrics = VolumeMetrics::default();
        let source = SourceType::ClusterTrustBundle;
        metrics.refreshed(source, true, Duration::from_millis(3));
        metrics.refreshed(source, false, Duration::from_millis(30));
        metrics.delivered(Duration::from_millis(40), Some(Duration::from_millis(700)));
        metrics.delivered(Duration::from_secs(90), None);
        let volume = VolumeReport {
            directory: "v".into(),
            sources: vec![source, SourceType::Secret, source],
            ready: true,
            blocked: None,
            changed: None,
            anchors: Vec::new(),
            certificates: Vec::new(),
        };
        let states = BTreeMap::from([(("a.b/c".to_owned(), "fresh"), 4)]);
        let mut text = String::new();
        metrics.write(&mut text, std::iter::once(&volume), Some(7), &states);
        let bundle = "projected_volume_source_type=\"ClusterTrustBundle\"";
        for line in [
            "clustertrustbundle_informer_cache_size 7".to_owned(),
            format!("projectedvolumesource_instances{{{bundle}}} 2"),
            format!("projectedvolumesource_refresh_count{{{bundle},status=\"Error\"}} 1"),
            format!(
                "projectedvolumesource_refresh_duration_bucket\
                 {{{bundle},status=\"OK\",le=\"0.005\"}} 1"
            ),
            "windlass_node_trust_delivery_seconds_bucket{from=\"change\",le=\"0.5\"} 0".to_owned(),
            "windlass_node_trust_delivery_seconds_bucket{from=\"change\",le=\"1\"} 1".to_owned(),
            "windlass_node_trust_delivery_seconds_bucket{from=\"arrival\",le=\"60\"} 1".to_owned(),
            "windlass_node_trust_delivery_seconds_count{from=\"arrival\"} 2".to_owned(),
            "kubelet_podcertificate_states{signer_name=\"a.b/c\",state=\"fresh\"} 4".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
