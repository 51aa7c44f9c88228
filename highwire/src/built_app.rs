//! An app that was built: its routes, handlers and values, as all workers share them.

use crate::app::{ErrorHandler, NotFoundHandler};
use crate::files::OpenFiles;
use crate::handler::Route;
use crate::request::{BodyUse, Locals};
use crate::router::Router;
use crate::server::Caps;
use crate::states;
use crate::{Https, Response, StatusCode};
use std::any::{Any, TypeId};
use std::rc::Rc;
use std::sync::Arc;

/// Makes a worker's own value.
#[derive(Clone)]
pub(crate) struct Factory {
    make: Arc<dyn Fn() -> (TypeId, Rc<dyn Any>) + Send + Sync>,
}

impl Factory {
    pub(crate) fn new<T: Any>(factory: impl Fn() -> T + Send + Sync + 'static) -> Factory {
        Factory { make: Arc::new(move || (TypeId::of::<T>(), Rc::new(factory()))) }
    }
}

/// An app that was built.
pub(crate) struct BuiltApp {
    pub(crate) router: Router,
    pub(crate) routes: Vec<Arc<dyn Route>>,
    pub(crate) names: Vec<Vec<Box<str>>>,
    /// The routes' templates, for logs.
    pub(crate) paths: Vec<String>,
    pub(crate) fallback: Option<u32>,
    /// What calls the app's middleware where there is no route.
    pub(crate) missed: Option<u32>,
    pub(crate) states: states::Map,
    pub(crate) factories: Vec<Factory>,
    pub(crate) not_found: Option<NotFoundHandler>,
    pub(crate) on_error: Option<ErrorHandler>,
    pub(crate) https: Https,
    pub(crate) body_uses: Vec<BodyUse>,
    /// Of each route, if it has one of its own.
    pub(crate) body_limits: Vec<Option<u64>>,
    pub(crate) open_files: Arc<OpenFiles>,
}

impl BuiltApp {
    /// The answer to an error that the engine, or the app, has found.
    pub(crate) fn error(&self, status: StatusCode, text: &str) -> Response {
        match &self.on_error {
            Some(handler) => handler(status, text),
            None => Response::error(status, format!("{text}\n")),
        }
    }

    pub(crate) fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.states.get()
    }

    /// Each worker's own values, made on its thread.
    pub(crate) fn make_locals(&self) -> Locals {
        self.factories.iter().map(|factory| (factory.make)()).collect()
    }

    /// Bytes of the largest body that the route takes in this way.
    pub(crate) fn body_limit(&self, route: u32, body_use: BodyUse, caps: &Caps) -> u64 {
        let own = self.body_limits.get(route as usize).copied().flatten();
        match body_use {
            BodyUse::None => caps.unread_body_bytes,
            BodyUse::Whole => own.unwrap_or(caps.body_bytes),
            BodyUse::Parts => own.unwrap_or(caps.streamed_body_bytes),
        }
    }

    /// The template of a route and whether its handler is async, for logs.
    pub(crate) fn route(&self, route: u32) -> (&str, bool) {
        let path = self.paths.get(route as usize).map_or("", String::as_str);
        (path, self.routes.get(route as usize).is_some_and(|route| route.is_async()))
    }
}

#[cfg(test)]
mod tests {
    use crate::App;
    use crate::middleware::{BodyLimit, Kept, Next, from_fn};

    #[test]
    fn routes_are_described_by_path_and_kind_of_handler() {
        let limited = App::new().get("/limited", async || "a future").with(BodyLimit::new(1));
        let around = App::new()
            .get("/around", || "at once")
            .with(from_fn(async |request: Kept, next: Next| next.run(request).await));
        let app = App::new()
            .get("/plain", || "at once")
            .get("/async", async || "a future")
            .get("/blocking", crate::blocking(|| "elsewhere"))
            .nest("/in", limited)
            .nest("/in", around);
        let (app, _) = app.build().expect("an app");
        let kind = |route: u32| {
            let (path, is_async) = app.route(route);
            format!("{path}: {}", if is_async { "async" } else { "plain" })
        };
        let expected =
            ["/plain: plain", "/async: async", "/blocking: plain", "/in/limited: async", "/in/around: async"];
        let kinds: [String; 5] = std::array::from_fn(|route| kind(route as u32));
        assert_eq!(kinds, expected);
    }
}
