//! Idle anonymous connections: more than a server with a soft limit of 1024 open files can hold.

use std::sync::Arc;

use anyhow::Result;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use windlass_testkit::HttpProtocol;

use super::AttackGuard;
use super::target::AttackTarget;

const CONNECTIONS: usize = 1_500;
/// Number of concurrent connection setups.
const SETUPS: usize = 32;

/// Opens connections that never send a request.
pub async fn connect(target: &AttackTarget) -> Result<AttackGuard> {
    let places = Arc::new(Semaphore::new(SETUPS));
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, places) = (target.anonymous.clone(), places.clone());
        connections.spawn(async move {
            let _place = places.acquire().await?;
            // A server that defends itself rejects connections.
            anyhow::Ok(client.negotiate(HttpProtocol::Http2).await.ok())
        });
    }
    let mut held = Vec::new();
    while let Some(connection) = connections.join_next().await {
        held.extend(connection??);
    }
    eprintln!("attack:   {} idle connections", held.len());
    Ok(Box::new(held))
}
