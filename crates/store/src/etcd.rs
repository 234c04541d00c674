//! The distributed engine: any number of processes on one etcd cluster.
//!
//! The store's revision is the cluster's plus a base ([`meta_key`]), and includes changes by other
//! users of etcd. [`client`] sends the calls on connections to [`members`], [`txn`] and [`reader`]
//! implement the operations; [`feed`] is the task that owns the sinks and one [`watcher`],
//! [`compactor`] the one that compacts history; [`core`] is their shared state. An `i64` is an etcd
//! revision, a [`Revision`] is a store revision; only [`keys`] converts between them.

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
    BoxFuture, ChangeEvent, CommittedWrite, Error, KeyRange, RangePage, Revision, Sink, Store, WriteRequest,
};
use client::EtcdClient;
use compactor::Compactor;
use core::{EtcdCore, ReplayControl};
use feed::{AttachRequest, EventFeed, replay};
use keys::KeySpace;
pub(crate) use migrate::{EtcdSource, EtcdTarget};
pub use revision_offset::{RaisedRevision, raise_revision};

/// Connection options of an [`EtcdStore`] store.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Client addresses of the members, as `http://` or `https://` URLs.
    pub endpoints: Vec<String>,
    /// TLS files for connections to `https://` endpoints.
    pub tls: Option<EtcdTlsFiles>,
    /// Prefix of all keys of the store.
    pub prefix: String,
    /// Timeout of one attempt before another member is tried.
    pub attempt: Duration,
    /// Timeout of a call with all its attempts.
    pub patience: Duration,
    /// Compaction interval. `None` if etcd compacts itself, or another of its users does.
    pub compaction: Option<Duration>,
    /// Minimum age of compacted history; other users of etcd may compact sooner.
    pub retain_age: Duration,
}

use EtcdOptions as Options;

/// TLS files for connections to etcd, all in PEM.
#[derive(Debug, Clone, Default)]
pub struct EtcdTlsFiles {
    /// CA certificates that verify the members' certificates.
    pub ca: Option<PathBuf>,
    /// Client certificate and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdOptions {
    /// Returns the cluster's name for messages.
    pub fn name(&self) -> String {
        format!("etcd at {}", self.endpoints.join(","))
    }

    /// Returns the default options for a cluster.
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

/// The store on an etcd cluster. Dropping it closes the store.
pub struct EtcdStore {
    core: Arc<EtcdCore>,
    inbox: UnboundedSender<AttachRequest>,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
}

impl EtcdStore {
    /// Connects to the cluster; blocks until it answers or the call times out.
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

    /// Runs a call on the store's runtime, where it completes even if the caller goes away.
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

/// Creates a dedicated runtime, so that sinks and watches continue while callers block theirs; also
/// returns the cluster's name for errors.
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

/// Calls wait more than they compute. With few processors, a second thread would only take them
/// from the callers.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).clamp(1, 2))
}

/// Blocks until a task has finished, from any thread.
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

    fn history(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>> {
        self.call(move |core| async move {
            let upto = core.check_history(after).await?;
            core.prepare(after, upto).await?;
            let mut found = Vec::new();
            let mut deliver = |events: &[ChangeEvent]| {
                let room = limit - found.len();
                found.extend(events.iter().take(room).cloned());
                Ok(if found.len() < limit { ReplayControl::Continue } else { ReplayControl::Stop })
            };
            core.replay(after, upto, &mut deliver).await?;
            Ok(found)
        })
    }

    fn watch(&self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // Most of the replay happens here, so that the feed waits only for the rest.
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
        // Blocking on the threads is not allowed where this may be dropped.
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}
