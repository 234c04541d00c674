//! The distributed engine: any number of processes on one etcd cluster.
//!
//! The store's revision is the cluster's plus a base ([`meta_key`]), and counts the changes of others
//! too. [`client`] makes the calls on connections to [`members`], [`txn`] and [`reader`] say what
//! they mean; [`feed`] is the task that owns the sinks and one [`watcher`], [`compactor`] the one
//! that forgets history; [`core`] is what they share. An `i64` is a revision as etcd counts, a
//! [`Revision`] as the store does; only [`keys`] makes one of the other.

mod applied_revision;
mod client;
mod compactor;
mod core;
mod feed;
mod keys;
mod members;
mod meta_key;
mod migrate;
mod reader;
mod revision_offset;
#[cfg(test)]
mod tests;
mod txn;
mod version;
mod watcher;
mod wire;

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::fatal_latch::FatalLatch;
use crate::{
    BoxFuture, ChangeEvent, CommittedWrite, Error, KeyRange, RangePage, Revision, Sink, Store,
    WriteRequest,
};
use client::EtcdClient;
use compactor::Compactor;
use core::{EtcdCore, ReplayControl};
use feed::{AttachRequest, EventFeed, replay};
use keys::KeySpace;
pub(crate) use migrate::{EtcdSource, EtcdTarget};
pub use revision_offset::{RaisedRevision, raise_revision};

/// How to reach an [`EtcdStore`] store.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// The members' client addresses, as `http://` or `https://` URLs.
    pub endpoints: Vec<String>,
    /// What secures the connections to `https://` endpoints.
    pub tls: Option<EtcdTlsFiles>,
    /// The store's keys are those below this one.
    pub prefix: String,
    /// How long one member may take to answer before another is asked.
    pub attempt: Duration,
    /// How long a call may take before it fails.
    pub patience: Duration,
    /// How often to forget old history. `None` if etcd does that by itself, or another of its users.
    pub compaction: Option<Duration>,
    /// History younger than this is kept, unless somebody else forgets it.
    pub retain_age: Duration,
}

use EtcdOptions as Options;

/// The files that secure the connections to etcd, all in PEM.
#[derive(Debug, Clone, Default)]
pub struct EtcdTlsFiles {
    /// The certificates that may have signed those of the members.
    pub ca: Option<PathBuf>,
    /// This client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdOptions {
    /// How the cluster is called in messages.
    pub fn name(&self) -> String {
        format!("etcd at {}", self.endpoints.join(","))
    }

    /// The defaults for a cluster.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            prefix: "/windlass".to_owned(),
            attempt: Duration::from_secs(2),
            patience: Duration::from_secs(5),
            compaction: Some(Duration::from_secs(5 * 60)),
            retain_age: Duration::from_secs(5 * 60),
        }
    }
}

/// The store on an etcd cluster. Dropping it closes it.
pub struct EtcdStore {
    core: Arc<EtcdCore>,
    inbox: UnboundedSender<AttachRequest>,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
}

impl EtcdStore {
    /// Connects to the cluster; blocks until it has answered or is out of patience.
    pub fn open(options: Options) -> Result<Self, Error> {
        let (runtime, name) = runtime(&options)?;
        let fuse = FatalLatch::new(name.clone());
        let (interval, age) = (options.compaction, options.retain_age);
        let opening = async move {
            let client = EtcdClient::open(&options, name, fuse.clone()).await?;
            EtcdCore::open(client, KeySpace::with_prefix(&options.prefix), fuse).await.map(Arc::new)
        };
        let core = match block_on(runtime.handle(), opening) {
            Ok(core) => core,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (inbox, wanted) = unbounded_channel();
        runtime.spawn(EventFeed::new(Arc::clone(&core), wanted).run());
        runtime.spawn(Compactor::new(Arc::clone(&core), interval, age, Instant::now()).run());
        tracing::debug!(etcd = %core.client.name.display(), revision = core.position(), "opened store");
        let handle = runtime.handle().clone();
        Ok(Self { core, inbox, handle, runtime: Mutex::new(Some(runtime)) })
    }

    /// Runs a call on the store's runtime, where it ends even if the caller goes away.
    fn call<T, F>(&self, call: impl FnOnce(Arc<EtcdCore>) -> F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        if self.core.closed.load(Ordering::Acquire) {
            return Box::pin(std::future::ready(Err(Error::Closed)));
        }
        let task = self.handle.spawn(call(Arc::clone(&self.core)));
        Box::pin(async move { task.await.unwrap_or(Err(Error::Closed)) })
    }

    fn shut_down(&self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.shut_down();
    }
}

/// A runtime of its own, so that sinks and watches go on while callers block theirs; and how the
/// cluster is called in errors.
fn runtime(options: &Options) -> Result<(Runtime, PathBuf), Error> {
    let name = PathBuf::from(options.name());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .thread_name("store-etcd")
        .enable_all()
        .build()
        .map_err(|error| Error::Unavailable { path: name.clone(), what: error.to_string() })?;
    Ok((runtime, name))
}

/// Calls wait more than they compute. Where there are few processors, a second thread only takes them
/// from those who call.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).clamp(1, 2))
}

/// Blocks until a task has ended, from any thread.
fn block_on<T: Send + 'static>(
    handle: &Handle,
    task: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (done, answer) = sync_channel(1);
    handle.spawn(async move {
        let _ = done.send(task.await);
    });
    answer.recv().unwrap_or(Err(Error::Closed))
}

impl Store for EtcdStore {
    fn commit(&self, write: WriteRequest) -> BoxFuture<'_, Result<CommittedWrite, Error>> {
        self.call(|core| async move {
            let _open = core.gate.read().await;
            if core.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            txn::commit(&core, write).await
        })
    }

    fn range(&self, range: KeyRange) -> BoxFuture<'_, Result<RangePage, Error>> {
        self.call(|core| async move { reader::range(&core, &range).await })
    }

    fn history(
        &self,
        after: Revision,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>> {
        self.call(move |core| async move {
            let upto = core.check_history(after).await?;
            core.prepare(after, upto).await?;
            let mut found = Vec::new();
            let mut tell = |events: &[ChangeEvent]| {
                let room = limit - found.len();
                found.extend(events.iter().take(room).cloned());
                Ok(if found.len() < limit { ReplayControl::Continue } else { ReplayControl::Stop })
            };
            core.replay(after, upto, &mut tell).await?;
            Ok(found)
        })
    }

    fn watch(&self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // Most of the replay happens here, so that the feed waits only for the rest of it.
        let core = Arc::clone(&self.core);
        let (after, sink) = block_on(&self.handle, async move {
            let upto = core.check_history(after).await?;
            core.prepare(after, upto).await?;
            let seen = replay(&core, after, upto, &mut sink).await?;
            Ok((seen, sink))
        })?;
        let (done, answer) = sync_channel(1);
        self.inbox.send(AttachRequest { after, sink, done }).map_err(|_| Error::Closed)?;
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.call(move |core| async move { reader::compact(&core, upto).await })
    }

    fn revision(&self) -> Revision {
        self.core.position()
    }

    fn floor(&self) -> Revision {
        self.core.floor()
    }

    fn failure(&self) -> Option<Error> {
        self.core.latch.cause()
    }

    fn failed(&self) -> BoxFuture<'static, Error> {
        Box::pin(self.core.latch.wait())
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.core.closed.store(true, Ordering::Release);
            let _commits_are_done = self.core.gate.write().await;
            self.shut_down();
            self.inbox.closed().await;
            self.core.latch.cause().map_or(Ok(()), Err)
        })
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        if self.core.closed.load(Ordering::Acquire) {
            return Box::pin(std::future::ready(Err(Error::Closed)));
        }
        Box::pin(self.core.catch_up(&self.handle))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn lost_since(&self) -> Option<Instant> {
        self.core.lost_since()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.shut_down();
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Waiting for the threads is not allowed where this may be dropped.
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}
