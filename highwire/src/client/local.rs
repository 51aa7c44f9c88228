//! Requests that this process answers, without sockets.

use super::request::Request;
use highwire_engine::client::{Answer, Failure};
use highwire_engine::response::Content;
use std::future::Future;
use std::pin::Pin;

/// Answers the requests of a client in place of servers.
pub(crate) trait Local: Send + Sync {
    /// Answers a request, whose content is separate.
    fn answer<'a>(&'a self, request: &'a Request, content: Content) -> Answering<'a>;
}

/// The future of [`Local::answer`].
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Box<Answer>, Failure>> + 'a>>;
