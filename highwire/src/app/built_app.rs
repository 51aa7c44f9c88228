//! A built app: its routes, handlers and values, which all workers share.

use crate::Https;
use crate::app::hooks::Hooks;
use crate::app::shared::AppData;
use crate::app::states::Scopes;
use crate::handler::Route;
use crate::message::request::BodyUse;
use crate::metrics::Metrics;
use crate::router::Router;
use std::sync::Arc;

/// The result of [`App::build`](crate::App::build).
pub(crate) struct BuiltApp {
    pub(crate) data: Arc<AppData>,
    pub(crate) router: Router,
    pub(crate) routes: Vec<Arc<dyn Route>>,
    pub(crate) fallback: Option<u32>,
    /// The route that runs the app's middleware for requests that match no other route. `None` if the app has no
    /// middleware.
    pub(crate) missed: Option<u32>,
    pub(crate) values: Scopes,
    pub(crate) https: Https,
    pub(crate) on_wait: Option<WaitHooks>,
    pub(crate) hooks: Hooks,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) body_uses: Vec<BodyUse>,
    /// The method, host and template of each route, for logs; `None` for those without a template.
    pub(crate) labels: Vec<Option<String>>,
}

/// The functions that are called before and after a worker blocks.
pub(crate) struct WaitHooks {
    pub(crate) before: Box<dyn Fn() + Send + Sync>,
    pub(crate) after: Box<dyn Fn() + Send + Sync>,
}

impl BuiltApp {
    /// Returns a route's method and template, and true if its handler is async, for logs. A route without a template is
    /// `(fallback)` or `(none)`.
    pub(crate) fn route(&self, route: u32) -> (&str, bool) {
        let label = match self.labels.get(route as usize) {
            Some(Some(label)) => label,
            Some(None) if self.fallback == Some(route) => "(fallback)",
            _ => "(none)",
        };
        (label, self.routes.get(route as usize).is_some_and(|route| route.is_async()))
    }
}

#[cfg(test)]
mod tests {
    use crate::App;
    use crate::middleware::{BodyLimit, Next, OwnedRequest, from_fn};

    #[test]
    fn routes_are_described_by_method_path_and_kind_of_handler() {
        let limited = App::new().get("/limited", async || "a future").with(BodyLimit::new(1));
        let around = App::new()
            .get("/around", || "at once")
            .with(from_fn(async |request: OwnedRequest, next: Next| next.run(request).await));
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
        let expected = [
            "GET /plain: plain",
            "GET /async: async",
            "GET /blocking: plain",
            "GET /in/limited: async",
            "GET /in/around: async",
        ];
        let kinds: [String; 5] = std::array::from_fn(|route| kind(route as u32));
        assert_eq!(kinds, expected);
    }
}
