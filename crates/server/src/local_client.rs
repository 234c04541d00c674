//! The server as a `tower` service for clients in the same process, without a socket.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::body::ResponseBody;
use crate::chain;
use crate::peer::Peer;
use crate::server::Server;
use crate::user::User;

/// Calls the server as one user.
#[derive(Clone)]
pub struct LocalClient {
    server: Arc<Server>,
    peer: Arc<Peer>,
}

impl LocalClient {
    /// Creates a service that sends requests as `user`.
    pub fn new(server: Arc<Server>, user: User) -> LocalClient {
        LocalClient { server, peer: Arc::new(Peer::local(user)) }
    }
}

impl<B> tower::Service<Request<B>> for LocalClient
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, peer) = (self.server.clone(), self.peer.clone());
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        Box::pin(async move { Ok(chain::handle_request(&server, &peer, request).await) })
    }
}
