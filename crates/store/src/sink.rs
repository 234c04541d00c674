//! Delivery of the feed to sinks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{ChangeEvent, Error, FeedMessage, Sink};

pub(crate) fn deliver_changes(sink: &mut Sink, events: &[ChangeEvent]) -> Result<(), Error> {
    deliver(sink, FeedMessage::Changes(events))
}

/// Calls a sink; one that panics is an error.
pub(crate) fn deliver(sink: &mut Sink, message: FeedMessage<'_>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| sink(message))).map_err(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Error::Failed { what: format!("a sink of the feed panicked: {text}") }
    })
}
