//! The data of the app and its server that handlers and middleware use.

use crate::app::states;
use crate::files::open::OpenFiles;
use crate::message::request::{BodyUse, Request};
use crate::{Problem, Response, StatusCode};
use highwire_engine::Asked;
use std::sync::Arc;

/// Turns an error's status and text into a response.
pub(crate) type ErrorHandler = Arc<dyn Fn(StatusCode, &str) -> Response + Send + Sync>;

/// Makes the response to a request that has no route.
pub(crate) type NotFoundHandler = Arc<dyn Fn(&Request<'_>) -> Response + Send + Sync>;

/// Makes the response to a request that an extractor has refused.
pub(crate) type RejectionHandler = Arc<dyn Fn(&Request<'_>, Problem) -> Response + Send + Sync>;

/// The data of an app beside its routes.
pub(crate) struct AppData {
    /// The path template of each route; `None` for those without one.
    pub(crate) paths: Vec<Option<Arc<str>>>,
    /// The names of each route's parameters.
    pub(crate) names: Vec<Vec<Box<str>>>,
    /// The values of the app, and of each nested app.
    pub(crate) states: Vec<states::Map>,
    /// For each route, the index of its values.
    pub(crate) scopes: Vec<usize>,
    pub(crate) not_found: Option<NotFoundHandler>,
    pub(crate) on_error: Option<ErrorHandler>,
    pub(crate) on_rejection: Option<RejectionHandler>,
    /// For each route, the limit on the request body in bytes, if the route has its own.
    pub(crate) body_limits: Vec<Option<u64>>,
    pub(crate) open_files: Arc<OpenFiles>,
}

impl AppData {
    /// Returns the response to an error that the engine or the app has found.
    pub(crate) fn error(&self, status: StatusCode, text: &str) -> Response {
        match &self.on_error {
            Some(handler) => handler(status, text),
            None => Response::error(status, format!("{text}\n")),
        }
    }

    /// Returns the index of the values of a route's app; 0, the outermost, without a route.
    #[inline]
    pub(crate) fn scope(&self, route: u32) -> usize {
        self.scopes.get(route as usize).copied().unwrap_or_default()
    }

    /// Returns the route's own limit on the request body in bytes, or `None` if it has none or does not use the body.
    pub(crate) fn body_limit(&self, route: u32, body_use: BodyUse) -> Option<u64> {
        let own = self.body_limits.get(route as usize).copied().flatten();
        own.filter(|_| body_use != BodyUse::None)
    }
}

/// The data of the app and of the engine that all routes on one worker share.
pub(crate) struct Shared {
    pub(crate) app: Arc<AppData>,
    engine: Arc<highwire_engine::Shared>,
}

impl Shared {
    pub(crate) fn new(app: Arc<AppData>, engine: Arc<highwire_engine::Shared>) -> Shared {
        Shared { app, engine }
    }

    /// Returns the limit in bytes on a request body that the route uses in this way.
    #[cfg(any(feature = "compress", feature = "tower"))]
    pub(crate) fn body_limit(&self, route: u32, body_use: BodyUse) -> u64 {
        self.app.body_limit(route, body_use).unwrap_or_else(|| body_use.limit(&self.engine.config().limits))
    }

    pub(crate) fn engine(&self) -> &highwire_engine::Shared {
        &self.engine
    }

    /// Runs a function on the blocking pool. Its result is polled from the returned [`Asked`].
    pub(crate) fn ask<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
        self.engine.ask(function)
    }
}
