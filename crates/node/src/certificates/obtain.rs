//! Obtaining one certificate: a key, a request, and what comes of it.

use std::sync::Arc;

use aws_lc_rs::rand;
use time::OffsetDateTime;
use tokio::sync::mpsc::UnboundedSender;
use windlass_pki::{KeyKind, PrivateKey};

use super::host::{self, Host};
use super::hub::RequestId;
use super::machine::{Event, Key, Refusal, Refuser};
use super::source::{Asker, Pod, Source};
use super::state::{Begun, Current, Kept};
use super::{Certificates, MISSING, Subject};
use crate::request::AskError;
use crate::sources::served::Presence;

/// What is done for one certificate.
pub struct Obtaining {
    /// With what.
    pub certificates: Arc<Certificates>,
    /// For whom.
    pub source: Arc<Source>,
    /// What there is.
    pub kept: Kept,
    /// With which key.
    pub key: Key,
    /// How far it has come.
    pub progress: UnboundedSender<Progress>,
}

/// How far it has come.
pub enum Progress {
    /// A request is begun, and on the disk.
    Begun(Arc<Begun>),
    /// Something else.
    Event(Event),
}

/// How it ended.
pub enum Obtained {
    /// There is a certificate.
    Issued {
        /// It.
        current: Arc<Current>,
        /// Whether it is on the disk.
        saved: bool,
    },
    /// Not well.
    Not(Event),
    /// The name of the request is somebody else's.
    Taken(Event),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// There is a certificate.
    Issued {
        /// It and those that vouch for it.
        chain: String,
        /// When it should be renewed.
        begin: Option<OffsetDateTime>,
    },
    /// There will be none.
    Refused {
        /// Who says so.
        by: Refuser,
        /// Why.
        why: String,
    },
    /// It is not there any more.
    Gone(&'static str),
    /// The server does not say.
    Trouble(String),
}

/// Why there is no request.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Why.
    pub message: String,
    /// Whether it will be no better another time.
    pub lasting: bool,
    /// Whether the name is somebody else's.
    pub taken: bool,
}

impl Failure {
    /// What went wrong, and when.
    pub fn of(error: AskError, when: &str) -> Self {
        let failure = Self::from(error);
        Self { message: format!("{when}: {}", failure.message), ..failure }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let lasting = match &error {
            AskError::Api(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
            AskError::Unwritable(_) => true,
            AskError::Incompatible { .. } | AskError::Api(_) | AskError::Silence => false,
        };
        Self { message: error.to_string(), lasting, taken: false }
    }
}

impl Obtaining {
    /// Asks for a certificate and waits for it.
    pub async fn run(self) -> Obtained {
        let obtained = match self.source.asker() {
            Asker::Pod(pod) => self.for_pod(pod).await,
            Asker::Host => self.for_host().await,
        };
        obtained.unwrap_or_else(|failure| {
            let Failure { message, lasting, taken } = failure;
            let event = Event::Trouble { message, lasting };
            if taken { Obtained::Taken(event) } else { Obtained::Not(event) }
        })
    }

    async fn for_pod(&self, pod: Pod<'_>) -> Result<Obtained, Failure> {
        let all = &self.certificates;
        let resource = self.served().await;
        let turn = all.turns.acquire().await;
        let begun = self.begin("req-").await?;
        let id = RequestId { namespace: pod.namespace.to_owned(), name: begun.name.clone() };
        let mut listener = all.hub.listen(id);
        let asked = all.requests.ask(&resource, pod, &self.source.wanted.source, &begun).await?;
        drop(turn);
        self.tell(Event::Asked);
        let ended = all.requests.wait(&resource, pod, &asked, &mut listener).await;
        let request = format!("{}/{}", pod.namespace, begun.name);
        Ok(self.judge(ended, &begun, &format!("PodCertificateRequest {request:?}")).await)
    }

    async fn for_host(&self) -> Result<Obtained, Failure> {
        let setup = &self.certificates.setup;
        let Subject::Host { common_name, names } = &self.source.wanted.subject else {
            let message = "a certificate of a pod is wanted where there is no pod".to_owned();
            return Err(Failure { message, lasting: true, taken: false });
        };
        let common_name = common_name.as_deref().unwrap_or(&setup.node);
        let (source, kind) = (&self.source.wanted.source, self.kind()?);
        let turn = self.certificates.turns.acquire().await;
        let begun = self.begin("host-csr-").await?;
        let host = Host { common_name, names, source, kind };
        let asked = host.ask(&setup.client, &begun).await?;
        drop(turn);
        self.tell(Event::Asked);
        let ended = host::wait(&setup.client, &asked).await;
        let which = format!("CertificateSigningRequest {:?}", begun.name);
        Ok(self.judge(ended, &begun, &which).await)
    }

    /// Waits until the server has requests of pods.
    async fn served(&self) -> kube::core::ApiResource {
        let mut presence = self.certificates.presence.subscribe();
        loop {
            match presence.borrow_and_update().clone() {
                Presence::Is(resource) => return resource,
                Presence::Missing => self.tell(Event::Hindered(MISSING.to_owned())),
                Presence::Unknown => {}
            }
            if presence.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// The request to go on with, or a new one that is on the disk before anybody hears of it.
    async fn begin(&self, prefix: &str) -> Result<Arc<Begun>, Failure> {
        if let (Key::Begun, Some(begun)) = (self.key, &self.kept.begun) {
            return Ok(begun.clone());
        }
        let (kind, name) = (self.kind()?, name(prefix)?);
        let key = off_thread(move || PrivateKey::generate_of(kind)).await?;
        let key = key.map_err(|error| trouble(error.to_string()))?;
        let begun = Arc::new(Begun { name, key });
        let kept = Kept { begun: Some(begun.clone()), ..self.kept.clone() };
        save(&self.certificates, &self.source, kept).await?;
        let _ = self.progress.send(Progress::Begun(begun.clone()));
        Ok(begun)
    }

    fn kind(&self) -> Result<KeyKind, Failure> {
        let key_type = self.source.wanted.source.key_type.as_str();
        Ok(match key_type {
            "RSA3072" => KeyKind::Rsa3072,
            "RSA4096" => KeyKind::Rsa4096,
            "ECDSAP256" => KeyKind::P256,
            "ECDSAP384" => KeyKind::P384,
            "ECDSAP521" => KeyKind::P521,
            "ED25519" => KeyKind::Ed25519,
            _ => {
                let message = format!("the key type {key_type:?} is not known");
                return Err(Failure { message, lasting: true, taken: false });
            }
        })
    }

    async fn judge(&self, ended: Ended, begun: &Begun, request: &str) -> Obtained {
        let refused = |by, message| Obtained::Not(Event::Refused(Refusal { by, message }));
        let (chain, begin) = match ended {
            Ended::Issued { chain, begin } => (chain, begin),
            Ended::Refused { by: by @ Refuser::Denied, why } => {
                return refused(by, format!("{request} was denied: {why}"));
            }
            Ended::Refused { by: by @ Refuser::Failed, why } => {
                return refused(by, format!("{request} failed: {why}"));
            }
            Ended::Gone(why) => return Obtained::Not(Event::Gone(format!("{request}: {why}"))),
            Ended::Trouble(message) => {
                return Obtained::Not(Event::Trouble { message, lasting: false });
            }
        };
        let (subject, now) = (&self.source.wanted.subject, (self.certificates.setup.clock)().wall);
        let current = match Current::issued(&begun.key, &chain, subject, begin, now) {
            Ok(current) => Arc::new(current),
            Err(why) => {
                let why = format!("what was issued for {request} is of no use: {why}");
                return refused(Refuser::Failed, why);
            }
        };
        let kept = Kept { current: Some(current.clone()), begun: None };
        let saved = save(&self.certificates, &self.source, kept).await;
        if let Err(failure) = &saved {
            let volume = self.source.id.volume.to_string();
            tracing::warn!(volume, "a certificate is not kept: {}", failure.message);
        }
        Obtained::Issued { current, saved: saved.is_ok() }
    }

    fn tell(&self, event: Event) {
        let _ = self.progress.send(Progress::Event(event));
    }
}

/// Writes what is to outlive the process, where it holds nobody up.
pub async fn save(all: &Certificates, source: &Arc<Source>, kept: Kept) -> Result<(), Failure> {
    let (files, source) = (all.setup.files.clone(), source.clone());
    let saved = off_thread(move || source.save(&files, &kept)).await?;
    saved.map_err(|error| trouble(error.to_string()))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| trouble("writing to the disk broke down".into()))
}

fn trouble(message: String) -> Failure {
    Failure { message, lasting: false, taken: false }
}

/// A name that nobody else has.
fn name(prefix: &str) -> Result<String, Failure> {
    // What Kubernetes itself makes such names of: no words come of it.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = [0; 20];
    rand::fill(&mut random).map_err(|_| trouble("there is no randomness".into()))?;
    let letters = random.iter().filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()));
    Ok(prefix.chars().chain(letters.map(|letter| char::from(*letter))).collect())
}
