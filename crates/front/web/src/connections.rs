//! Limit of connections, so that clients cannot take the files that runs need.

use std::{io, pin::Pin, sync::Arc};

use axum::{Extension, middleware::AddExtension};
use axum_server::accept::Accept;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Layer as _;

/// Maximum number of connections.
const MOST: usize = 4096;

/// Connections that may be open at the same time, at all listeners together.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Semaphore>);

impl Connections {
    /// Half of the files that this process may open, at most [`MOST`].
    pub(crate) fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let half = files.and_then(|files| usize::try_from(files / 2).ok());
        Self::at_most(half.map_or(MOST, |half| half.clamp(1, MOST)))
    }

    fn at_most(number: usize) -> Self {
        Self(Arc::new(Semaphore::new(number)))
    }

    /// Limits the connections of an acceptor.
    pub(crate) fn limit<A>(&self, acceptor: A) -> LimitedAcceptor<A> {
        LimitedAcceptor {
            acceptor,
            connections: self.clone(),
        }
    }
}

/// Accepts connections up to the limit, and closes further ones at once.
#[derive(Clone, Debug)]
pub(crate) struct LimitedAcceptor<A> {
    acceptor: A,
    connections: Connections,
}

/// Place of a connection, which is free again when the connection ends.
type ConnectionPlace = Arc<OwnedSemaphorePermit>;

impl<A, I, S> Accept<I, S> for LimitedAcceptor<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
    A::Service: Send,
{
    type Stream = A::Stream;
    type Service = AddExtension<A::Service, ConnectionPlace>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let place = Arc::clone(&self.connections.0).try_acquire_owned();
        let accepted = place.map(|place| (place, self.acceptor.accept(stream, service)));
        Box::pin(async move {
            let (place, accepted) = accepted.map_err(io::Error::other)?;
            let (stream, service) = accepted.await?;
            Ok((stream, Extension(Arc::new(place)).layer(service)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[derive(Clone)]
    struct Accepting;

    impl Accept<(), ()> for Accepting {
        type Stream = ();
        type Service = ();
        type Future = std::future::Ready<io::Result<((), ())>>;

        fn accept(&self, (): (), (): ()) -> Self::Future {
            ready(Ok(((), ())))
        }
    }

    #[test]
    fn a_connection_beyond_the_limit_is_refused_until_another_one_ends() {
        let connections = Connections::at_most(2);
        let (one, other) = (connections.limit(Accepting), connections.limit(Accepting));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let first = one.accept((), ()).await.unwrap();
            let _second = other.accept((), ()).await.unwrap();
            assert!(one.accept((), ()).await.is_err());
            drop(first);
            other.accept((), ()).await.unwrap();
        });
    }
}
