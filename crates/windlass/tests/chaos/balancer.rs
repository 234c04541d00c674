//! A minimal TCP load balancer: round robin over the servers that accept connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Timeout for connecting to a server.
const CONNECT: Duration = Duration::from_millis(500);

/// Starts a balancer for these servers; it stops with the runtime.
pub async fn start(servers: [SocketAddr; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for turn in 0.. {
            // A client that has disconnected must not stop the balancer.
            let Ok((client, _)) = listener.accept().await else { continue };
            tokio::spawn(serve(client, [servers[turn % 2], servers[(turn + 1) % 2]]));
        }
    });
    address
}

async fn serve(mut client: TcpStream, servers: [SocketAddr; 2]) {
    for server in servers {
        if let Ok(Ok(mut server)) = timeout(CONNECT, TcpStream::connect(server)).await {
            let _ = server.set_nodelay(true);
            let _ = client.set_nodelay(true);
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
