//! Obtains one certificate and keeps it good.
//!
//! [`machine`] decides; this performs. Everybody who uses the certificate asks [`Manager::current`].

pub mod machine;
pub mod pace;
pub mod report;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{broadcast, mpsc, watch};
use windlass_pki::{PrivateKey, PublicKey, parse_certificate_blocks};

use crate::clock::{self, Clock};
use crate::files::DiskError;
use crate::identity::{Identity, IdentityError};
use crate::request::{self, AskError, Outcome, PATIENCE};
use crate::store::{Loaded, Store, StoreError};
use crate::template::{Purpose, Template};

use machine::{Action, Event, Key, Machine};

pub use machine::Credential;
pub use pace::{Backoff, Pace};
pub use report::{Cause, Doing, HeldReport, Notice, Report, Trouble};

/// Makes a client that asks as somebody, or says why it cannot: that is shown to operators.
pub type Clients =
    Arc<dyn Fn(Credential) -> BoxFuture<'static, Result<Client, String>> + Send + Sync>;

/// Random numbers from 0 to 1.
pub type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// What a manager is made of.
#[derive(Clone)]
pub struct Setup {
    /// What the certificate is for.
    pub purpose: Purpose,
    /// Where it is kept.
    pub store: Store,
    /// What has to be in it; nothing is asked for while this is not known.
    pub templates: watch::Receiver<Option<Template>>,
    /// How to ask.
    pub clients: Clients,
    /// What time it is.
    pub clock: Clock,
    /// So that nodes that began together do not ask together.
    pub random: Random,
    /// How fast things are tried again.
    pub pace: Pace,
}

/// Obtains one certificate and keeps it good, while it runs.
pub struct Manager {
    setup: Setup,
    /// Taken by whoever runs it.
    machine: Mutex<Option<Machine>>,
    current: watch::Sender<Option<Arc<Identity>>>,
    report: watch::Sender<Report>,
    notices: broadcast::Sender<Notice>,
}

/// What to do when a bootstrap credential is not known.
const NEW_TOKEN: &str = "; the bootstrap token has expired or was deleted: put one that windlass \
                         token create makes into the bootstrap kubeconfig";

/// How many notices wait for somebody who is slow.
const NOTICES: usize = 64;

impl Manager {
    /// Begins with what was loaded from its store. Nothing is asked for before it runs.
    pub fn new(setup: Setup, loaded: Loaded) -> Self {
        let found = loaded.identity.map(Arc::new);
        let random = (setup.random)();
        let (purpose, pace) = (setup.purpose, setup.pace);
        let machine = Machine::new(purpose, pace, found.clone(), loaded.warnings, random);
        Self {
            report: watch::Sender::new(machine.report()),
            current: watch::Sender::new(found),
            notices: broadcast::Sender::new(NOTICES),
            machine: Mutex::new(Some(machine)),
            setup,
        }
    }

    /// The certificate to use, now and whenever there is another. It may have expired: whoever
    /// verifies it knows best what time it is.
    pub fn current(&self) -> watch::Receiver<Option<Arc<Identity>>> {
        self.current.subscribe()
    }

    /// What it holds, until when, what it waits for and why.
    pub fn report(&self) -> Report {
        self.report.borrow().clone()
    }

    /// The report, now and whenever it changes.
    pub fn reports(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// What happens from now on that is worth an event.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }

    /// Waits until there is a certificate that has not expired. If there is none in time, this is
    /// what stands in the way.
    pub async fn ready(&self, patience: Duration) -> Result<Arc<Identity>, Report> {
        let mut current = self.current();
        let good = |held: &Option<Arc<Identity>>| {
            held.as_ref().is_some_and(|held| held.is_valid_at((self.setup.clock)().wall))
        };
        let found = tokio::time::timeout(patience, current.wait_for(good)).await;
        let found = found.ok().and_then(Result::ok).and_then(|held| held.clone());
        found.ok_or_else(|| self.report())
    }

    /// Does what is to be done until it is told to end. Runs once: another call ends at once.
    pub async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(machine) = machine else { return };
        let (progress, told) = mpsc::unbounded_channel();
        let mut driver = Driver { manager: self, machine, job: None, progress, told };
        tokio::select! {
            () = driver.drive() => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    }

    fn publish(&self, identity: Arc<Identity>) {
        self.current.send_replace(Some(identity));
    }
}

struct Driver<'a> {
    manager: &'a Manager,
    machine: Machine,
    /// What is under way.
    job: Option<BoxFuture<'static, Event>>,
    /// How far it has come.
    progress: mpsc::UnboundedSender<Event>,
    told: mpsc::UnboundedReceiver<Event>,
}

impl Driver<'_> {
    async fn drive(&mut self) {
        let mut templates = self.manager.setup.templates.clone();
        let first = templates.borrow_and_update().clone();
        self.step(Event::Template(first));
        self.step(Event::Tick);
        let mut has_templates = true;
        loop {
            let pause = self.machine.idle_for((self.manager.setup.clock)());
            let event = tokio::select! {
                // What a job tells comes before how it ends.
                biased;
                Some(event) = self.told.recv() => event,
                event = under_way(&mut self.job) => {
                    self.job = None;
                    event
                }
                changed = templates.changed(), if has_templates => {
                    has_templates = changed.is_ok();
                    Event::Template(templates.borrow_and_update().clone())
                }
                () = tokio::time::sleep(pause) => Event::Tick,
            };
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        let setup = &self.manager.setup;
        let actions = self.machine.step(event, (setup.clock)(), (setup.random)());
        for action in actions {
            self.perform(action);
        }
        let report = self.machine.report();
        self.manager.report.send_if_modified(|before| {
            let changed = *before != report;
            *before = report;
            changed
        });
    }

    fn perform(&mut self, action: Action) {
        let setup = self.manager.setup.clone();
        match action {
            Action::Obtain { key, credential, template } => {
                let holds = self.manager.current.borrow().clone();
                let asking = Asking { setup, holds, progress: self.progress.clone() };
                self.job = Some(asking.obtain(key, credential, template).boxed());
            }
            Action::Cancel => {
                self.job = None;
                while self.told.try_recv().is_ok() {}
            }
            Action::Store(identity) => self.job = Some(store(setup, identity).boxed()),
            Action::Publish(identity) => self.manager.publish(identity),
            Action::Notify(notice) => {
                log(setup.purpose, &notice);
                // Nobody need listen.
                let _ = self.manager.notices.send(notice);
            }
        }
    }
}

/// How a job ends, if there is one.
async fn under_way(job: &mut Option<BoxFuture<'static, Event>>) -> Event {
    match job {
        Some(job) => Pin::new(job).await,
        None => std::future::pending().await,
    }
}

fn log(purpose: Purpose, notice: &Notice) {
    let certificate = purpose.prefix();
    match notice {
        Notice::Stored { expires, .. } => {
            let expires = clock::text(*expires);
            tracing::info!(certificate, expires, "stored a new certificate");
        }
        Notice::Trouble(trouble) => {
            let reason = trouble.cause.reason();
            tracing::warn!(certificate, reason, "{}", trouble.message);
        }
    }
}

async fn store(setup: Setup, identity: Arc<Identity>) -> Event {
    let now = (setup.clock)().wall;
    match off_thread(move || setup.store.save(&identity, now)).await {
        Ok(()) => Event::Stored,
        Err(trouble) => Event::Failed(trouble),
    }
}

struct Asking {
    setup: Setup,
    holds: Option<Arc<Identity>>,
    progress: mpsc::UnboundedSender<Event>,
}

impl Asking {
    async fn obtain(self, key: Key, credential: Credential, template: Template) -> Event {
        match self.try_to_obtain(key, credential, &template).await {
            Ok(identity) => Event::Issued(Arc::new(identity)),
            Err(mut trouble) => {
                if (trouble.cause, credential) == (Cause::Unauthorized, Credential::Bootstrap) {
                    trouble.message.push_str(NEW_TOKEN);
                }
                Event::Failed(trouble)
            }
        }
    }

    async fn try_to_obtain(
        &self,
        key: Key,
        credential: Credential,
        template: &Template,
    ) -> Result<Identity, Trouble> {
        let (purpose, now) = (self.setup.purpose, (self.setup.clock)().wall);
        let key = self.key(key).await?;
        let client = tokio::time::timeout(PATIENCE, (self.setup.clients)(credential)).await;
        let client = client.unwrap_or_else(|_| Err(format!("no credential after {PATIENCE:?}")));
        let client = client.map_err(|why| trouble(Cause::NoCredential, why))?;
        let asked = request::ask(&client, purpose, template, &key, now).await?;
        let _ = self.progress.send(Event::Asked(asked.name.clone()));
        tracing::debug!(certificate = purpose.prefix(), request = asked.name, "asked");
        let stage = |stage| drop(self.progress.send(Event::Stage(stage)));
        let outcome = request::wait(&client, &asked, self.setup.pace.patience, stage).await;
        identity_of(outcome, &asked.name, key)
    }

    async fn key(&self, key: Key) -> Result<PrivateKey, Trouble> {
        let (store, now) = (self.setup.store.clone(), (self.setup.clock)().wall);
        let holds: Option<PublicKey> =
            self.holds.as_ref().map(|held| held.key().public_key().clone());
        off_thread(move || match key {
            Key::Kept => store.key(holds.as_ref(), now),
            Key::Fresh => store.new_key(),
        })
        .await
    }
}

/// What came of a request.
fn identity_of(outcome: Outcome, name: &str, key: PrivateKey) -> Result<Identity, Trouble> {
    let (cause, message) = match outcome {
        Outcome::Issued(text) => {
            let chain = parse_certificate_blocks(&text).map_err(IdentityError::from);
            let identity = chain.and_then(|chain| Identity::new(chain, key));
            let bad = |error| format!("what was issued for {name} is of no use: {error}");
            return identity.map_err(|error| trouble(Cause::BadCertificate, bad(error)));
        }
        Outcome::Denied(why) => (Cause::RequestDenied, format!("{name} was denied: {why}")),
        Outcome::Failed(why) => (Cause::RequestFailed, format!("the signer refused {name}: {why}")),
        Outcome::Gone(why) => (Cause::RequestGone, format!("{name} is gone: {why}")),
        Outcome::Unauthorized(why) => (Cause::Unauthorized, why),
        Outcome::TimedOut(stage) => {
            (Cause::NotDecided, format!("{name} still waits {}", stage.text()))
        }
    };
    Err(trouble(cause, message))
}

/// Does what waits for the disk where it holds nobody up.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(trouble(Cause::DiskFailed, "writing to the disk broke down".into())),
    }
}

fn trouble(cause: Cause, message: String) -> Trouble {
    Trouble { cause, message }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        let cause = match &error {
            StoreError::Disk(disk) if DiskError::is_full(disk) => Cause::DiskFull,
            StoreError::Disk(_) | StoreError::Key(_) => Cause::DiskFailed,
        };
        trouble(cause, error.to_string())
    }
}

impl From<AskError> for Trouble {
    fn from(error: AskError) -> Self {
        let cause = match &error {
            AskError::Incompatible { .. } => Cause::RequestTaken,
            AskError::Unwritable(_) => Cause::Unwritable,
            AskError::Silence => Cause::Unreachable,
            AskError::Api(kube::Error::Api(status)) => match status.code {
                401 => Cause::Unauthorized,
                403 => Cause::Forbidden,
                404 => Cause::NotServed,
                // It will not take it another time either.
                400 | 422 => Cause::Unwritable,
                _ => Cause::ServerError,
            },
            AskError::Api(_) => Cause::Unreachable,
        };
        trouble(cause, error.to_string())
    }
}

#[cfg(test)]
mod tests;
