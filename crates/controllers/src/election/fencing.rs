//! Connections that end with the time in which we lead.
//!
//! A process may be stopped when a request is on its way inside of it, between whoever sends it and the
//! socket. When it goes on, that request would still leave. So what drives a connection looks at the
//! time before it does anything at all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use kube::client::ClientBuilder;
use kube::{Client, Config};

use super::lease_guard::LeaseGuard;

/// A client with connections of its own, which work only while we lead.
pub fn connect(config: Config, tenure: Arc<LeaseGuard>) -> kube::Result<Client> {
    let url = config.cluster_url.clone();
    let builder = ClientBuilder::try_from((config, FencedExecutor { tenure }))?;
    Ok(windlass_runtime::client_error::name_server(builder, &url).build())
}

/// Runs what a client needs done in the background: first of all, its connections.
#[derive(Clone)]
struct FencedExecutor {
    tenure: Arc<LeaseGuard>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Executor<Task> for FencedExecutor {
    fn execute(&self, task: Task) {
        tokio::spawn(FencedTask { task: Some(task), tenure: self.tenure.clone() });
    }
}

/// A task that is dropped instead of going on when we do not lead.
struct FencedTask {
    task: Option<Task>,
    tenure: Arc<LeaseGuard>,
}

impl Future for FencedTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.tenure.is_leading() {
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
    async fn a_task_does_not_go_on_when_the_time_is_over() {
        let tenure = Arc::new(LeaseGuard::new(Arc::new(|| OffsetDateTime::UNIX_EPOCH)));
        let driver = FencedExecutor { tenure: tenure.clone() };
        let (orders, mut ordered) = mpsc::unbounded_channel::<u32>();
        let (results, mut done) = mpsc::unbounded_channel();
        tenure.extend(tenure.now(), Duration::from_secs(10));
        driver.execute(Box::pin(async move {
            while let Some(order) = ordered.recv().await {
                results.send(order).unwrap();
            }
        }));
        orders.send(1).unwrap();
        assert_eq!(done.recv().await, Some(1));
        // On its way when the time is over, as after having been stopped.
        orders.send(2).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(done.recv().await, None);
        assert!(orders.is_closed());
    }
}
