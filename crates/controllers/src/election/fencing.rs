//! Connections that end when the lease is lost.
//!
//! A process may be suspended while a request is between its sender and the socket, and would send it when it resumes.
//! So the tasks that drive connections check the lease before every step.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use kube::client::ClientBuilder;
use kube::{Client, Config};

use super::lease_guard::LeaseGuard;

/// Creates a client whose connections work only while this process leads.
pub fn connect(config: Config, lease_guard: Arc<LeaseGuard>) -> kube::Result<Client> {
    let url = config.cluster_url.clone();
    let builder = ClientBuilder::try_from((config, FencedExecutor { lease_guard }))?;
    Ok(windlass_runtime::client_error::name_server(builder, &url).build())
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
    use tokio::sync::mpsc;

    use super::*;

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
