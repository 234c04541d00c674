//! Connections that end when the lease is lost.
//!
//! A process may be suspended while a request is between its sender and the socket, and would send it when it resumes.
//! So the tasks that drive connections check the lease before every step, and sockets before every write: encrypting a
//! request takes long enough to be suspended in it. What remains is a suspension between that check and the system call;
//! a request that is sent then fails with a conflict if another leader has answered it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt as _;
use futures::future::MapOk;
use http::Uri;
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};
use windlass_runtime::client_error::name_server;

use super::lease_guard::LeaseGuard;

/// Creates a client whose connections work only while this process leads.
pub fn connect(config: &Config, lease_guard: Arc<LeaseGuard>) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let fenced = FencedConnector { tcp, lease_guard: lease_guard.clone() };
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(fenced)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: legacy::Client<_, Body> =
        legacy::Client::builder(FencedExecutor { lease_guard }).build(connector);
    // As kube builds a client that has no connector of its own.
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    let builder = ClientBuilder::new(service, config.default_namespace.clone());
    Ok(name_server(builder, &config.cluster_url).build())
}

/// Opens sockets that are written only while this process leads.
#[derive(Clone)]
struct FencedConnector {
    tcp: HttpConnector,
    lease_guard: Arc<LeaseGuard>,
}

type TcpConnection = <HttpConnector as Service<Uri>>::Response;

impl Service<Uri> for FencedConnector {
    type Response = FencedStream<TcpConnection>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = MapOk<
        <HttpConnector as Service<Uri>>::Future,
        Box<dyn FnOnce(TcpConnection) -> FencedStream<TcpConnection> + Send>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let lease_guard = self.lease_guard.clone();
        self.tcp.call(address).map_ok(Box::new(|stream| FencedStream { stream, lease_guard }))
    }
}

/// A socket that is written only while this process leads.
struct FencedStream<S> {
    stream: S,
    lease_guard: Arc<LeaseGuard>,
}

impl<S> FencedStream<S> {
    fn check_lease(&self) -> io::Result<()> {
        let lost = || io::Error::new(io::ErrorKind::ConnectionAborted, "another process may be the leader");
        if self.lease_guard.is_leading() { Ok(()) } else { Err(lost()) }
    }
}

impl<S: Write + Unpin> Write for FencedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_lease()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_lease()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Read + Unpin> Read for FencedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Connection> Connection for FencedStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

/// Spawns the background tasks of a client, above all its connections.
#[derive(Clone)]
struct FencedExecutor {
    lease_guard: Arc<LeaseGuard>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Executor<Task> for FencedExecutor {
    fn execute(&self, task: Task) {
        tokio::spawn(FencedTask { task: Some(task), lease_guard: self.lease_guard.clone() });
    }
}

/// A task that is dropped when this process does not lead.
struct FencedTask {
    task: Option<Task>,
    lease_guard: Arc<LeaseGuard>,
}

impl Future for FencedTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.lease_guard.is_leading() {
            self.task = None;
        }
        match &mut self.task {
            Some(task) => task.as_mut().poll(context),
            None => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::OffsetDateTime;
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_socket_is_not_written_after_the_lease() {
        let lease_guard = Arc::new(LeaseGuard::new(Arc::new(|| OffsetDateTime::UNIX_EPOCH)));
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut stream =
            FencedStream { stream: hyper_util::rt::TokioIo::new(ours), lease_guard: lease_guard.clone() };
        lease_guard.extend(lease_guard.now(), Duration::from_secs(10));
        let write = |stream: &mut FencedStream<_>| {
            let mut context = Context::from_waker(std::task::Waker::noop());
            Pin::new(stream).poll_write(&mut context, b"write")
        };
        assert!(matches!(write(&mut stream), Poll::Ready(Ok(5))));
        tokio::time::advance(Duration::from_secs(10)).await;
        let Poll::Ready(Err(error)) = write(&mut stream) else { panic!("written without the lease") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(stream);
        let mut received = String::new();
        theirs.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "write");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_stops_when_its_lease_expires() {
        let lease_guard = Arc::new(LeaseGuard::new(Arc::new(|| OffsetDateTime::UNIX_EPOCH)));
        let driver = FencedExecutor { lease_guard: lease_guard.clone() };
        let (orders, mut ordered) = mpsc::unbounded_channel::<u32>();
        let (results, mut done) = mpsc::unbounded_channel();
        lease_guard.extend(lease_guard.now(), Duration::from_secs(10));
        driver.execute(Box::pin(async move {
            while let Some(order) = ordered.recv().await {
                results.send(order).unwrap();
            }
        }));
        orders.send(1).unwrap();
        assert_eq!(done.recv().await, Some(1));
        // In flight when the lease expires, as after the process was suspended.
        orders.send(2).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(done.recv().await, None);
        assert!(orders.is_closed());
    }
}
