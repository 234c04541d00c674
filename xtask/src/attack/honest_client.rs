//! The honest client: an administrator's requests, one every 50 ms, and their latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol};

use super::target::AttackTarget;
use crate::bench::memory;

/// Pause between two requests of the honest client.
const INTERVAL: Duration = Duration::from_millis(50);
/// Timeout after which a request has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Every n-th request uses a new connection.
const NEW_CONNECTION: usize = 5;

const PATHS: [&str; 3] = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces?limit=50"];

/// A client that sends ordinary requests while the attack runs.
pub struct HonestClient {
    stop: watch::Sender<bool>,
    work: JoinHandle<Result<LatencySamples>>,
    peak: Arc<AtomicU64>,
}

/// All requests: time sent, latency, and success.
#[derive(Default)]
pub struct LatencySamples(Vec<(Instant, Duration, bool)>);

#[derive(Default)]
pub struct PhaseLatencies {
    pub worst: Duration,
    pub count: usize,
    /// Number of failed requests in the phase.
    pub failed: usize,
}

impl HonestClient {
    /// Starts the client on a separate thread and runtime.
    pub fn start(target: &AttackTarget) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let peak = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, pid, highest) = (target.honest.clone(), target.pid(), peak.clone());
        let work = thread::spawn(move || {
            runtime.block_on(async {
                tokio::spawn(sample_memory(pid, highest));
                send_requests(client, stopped).await
            })
        });
        Ok(Self { stop, work, peak })
    }

    /// Resets the recorded peak memory.
    pub fn reset_peak(&self) {
        self.peak.store(0, Ordering::Relaxed);
    }

    /// Stops the client. Returns the latencies and the server's peak memory since the last reset,
    /// if its process is known.
    pub fn stop(self) -> Result<(LatencySamples, Option<u64>)> {
        self.stop.send_replace(true);
        let samples = self.work.join().ok().context("the honest client panicked")??;
        ensure!(!samples.0.is_empty(), "the honest client sent nothing");
        let peak = self.peak.load(Ordering::Relaxed);
        Ok((samples, (peak > 0).then_some(peak)))
    }
}

async fn sample_memory(pid: Option<u32>, peak: Arc<AtomicU64>) {
    while let Some(resident) = pid.and_then(|pid| memory(pid, "VmRSS:").ok()) {
        peak.fetch_max(resident, Ordering::Relaxed);
        sleep(INTERVAL).await;
    }
}

async fn send_requests(client: HttpClient, mut stopped: watch::Receiver<bool>) -> Result<LatencySamples> {
    let mut samples = LatencySamples::default();
    let mut connection = Some(client.connect_with(HttpProtocol::Http2).await?);
    while !*stopped.borrow() {
        let number = samples.0.len();
        let path = PATHS[number % PATHS.len()];
        let sent = Instant::now();
        let fresh = number % NEW_CONNECTION == NEW_CONNECTION - 1;
        let mut used = if fresh { None } else { connection.take() };
        let done = timeout(PATIENCE, request(&client, &mut used, path)).await;
        let succeeded = matches!(done, Ok(Ok(())));
        samples.0.push((sent, sent.elapsed(), succeeded));
        if succeeded && !fresh {
            connection = used;
        }
        tokio::select! {
            () = sleep(INTERVAL) => {}
            _ = stopped.changed() => {}
        }
    }
    Ok(samples)
}

/// Sends one request, on a new connection if there is none.
async fn request(client: &HttpClient, connection: &mut Option<HttpConnection>, path: &str) -> Result<()> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(client.connect_with(HttpProtocol::Http2).await?),
    };
    connection.expect(Method::GET, path, Bytes::new()).await?;
    Ok(())
}

impl LatencySamples {
    /// Splits into requests that ended before `begun`, were open during the attack, or were sent
    /// after `ended`.
    pub fn split(&self, begun: Instant, ended: Instant) -> [PhaseLatencies; 3] {
        let mut phases: [PhaseLatencies; 3] = Default::default();
        for (sent, took, succeeded) in &self.0 {
            let phase = match () {
                () if *sent + *took < begun => 0,
                () if *sent < ended => 1,
                () => 2,
            };
            let phase = &mut phases[phase];
            phase.worst = phase.worst.max(*took);
            phase.count += 1;
            phase.failed += usize::from(!succeeded);
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_open_during_the_attack_counts_there() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let sample = |sent, took, good| (at(sent), Duration::from_millis(took), good);
        let samples = LatencySamples(vec![
            sample(0, 10, true),
            sample(90, 50, true),
            sample(150, 10, false),
            sample(250, 5, true),
        ]);
        let [before, during, after] = samples.split(at(100), at(200));
        assert_eq!((before.count, during.count, after.count), (1, 2, 1));
        assert_eq!(during.worst, Duration::from_millis(50));
        assert_eq!((before.failed, during.failed, after.failed), (0, 1, 0));
    }
}
