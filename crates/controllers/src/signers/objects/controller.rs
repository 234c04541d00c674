//! Watches Signer objects while the server has the kind.

use std::convert::Infallible;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use windlass_runtime::watch::{WatchErrorKind, watch_objects};

use super::{SignerObjects, SignerSources, file_sync, reporter};
use crate::metrics::{MetricFamilies, SIGNERS};
use crate::options::Clock;

/// Watches the objects, applies the entries of the signers file as objects, and reports the status of all.
pub(crate) async fn run(
    client: Client,
    resource: ApiResource,
    sources: Arc<SignerSources>,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let (mut known, mut listing) = (SignerObjects::new(), SignerObjects::new());
    let queue = metrics.queue(SIGNERS);
    let watch = watch_objects(api.clone(), &resource.plural, Config::default(), &queue, |event| {
        let event = match event {
            Ok(event) => event,
            // Without permission to read objects, the entries of the file alone count.
            Err(error) => {
                if error.kind == WatchErrorKind::Refused && known.is_empty() {
                    sources.clear_objects();
                }
                return;
            }
        };
        match event {
            Event::Init => {
                listing.clear();
                return;
            }
            Event::InitApply(object) => {
                listing.insert(object.name_any(), object);
                return;
            }
            Event::InitDone => known = std::mem::take(&mut listing),
            Event::Apply(object) => {
                known.insert(object.name_any(), object);
            }
            Event::Delete(object) => {
                known.remove(&object.name_any());
            }
        }
        sources.set_objects(Arc::new(known.clone()));
    });
    let files = file_sync::run(&api, &resource, &sources);
    let status = reporter::run(&api, &resource, &sources, &clock, &metrics);
    tokio::join!(watch, files, status).0
}
