//! Limits on the size of request bodies, per route.

use super::{IntoLayer, Layer};
use crate::handler::{Endpoint, Route};
use crate::message::provided::Provided;
use crate::message::request::BodyUse;
use std::sync::Arc;

/// Limits the size of request bodies. If a handler takes the body and the body is larger, the response is 413. If the
/// client announces the length, this happens before the body is received. Of several limits, the one nearest to the
/// handler holds. Without a `BodyLimit`, bodies that a handler takes whole are limited by the server's
/// [`Limits::body_bytes`](crate::server::Limits::body_bytes), and those that it takes in parts by
/// [`Limits::streamed_body_bytes`](crate::server::Limits::streamed_body_bytes).
///
/// ```
/// use highwire::middleware::BodyLimit;
/// use highwire::{App, Handler};
///
/// let upload = |body: String| body.len().to_string();
/// let app = App::new().post("/upload", upload.with(BodyLimit::new(64 << 20))).with(BodyLimit::new(4096));
/// # let _ = app;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct BodyLimit(u64);

impl BodyLimit {
    /// Creates a limit of this number of bytes.
    pub fn new(bytes: u64) -> BodyLimit {
        BodyLimit(bytes)
    }
}

impl IntoLayer for BodyLimit {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_layer(self) -> Arc<dyn Layer> {
        Arc::new(self)
    }
}

impl Layer for BodyLimit {
    fn wrap(&self, inner: Arc<dyn Route>) -> Arc<dyn Route> {
        Arc::new(Limited { inner, bytes: self.0 })
    }
}

struct Limited {
    inner: Arc<dyn Route>,
    bytes: u64,
}

impl Route for Limited {
    fn body_use(&self) -> BodyUse {
        self.inner.body_use()
    }
    fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
        self.inner.check(provided)
    }
    fn body_limit(&self) -> Option<u64> {
        self.inner.body_limit().or(Some(self.bytes))
    }
    fn is_async(&self) -> bool {
        self.inner.is_async()
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        self.inner.clone().endpoint()
    }
}
