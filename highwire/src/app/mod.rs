//! The builder of an application: routes, state and settings.

pub(crate) mod built_app;
pub(crate) mod dispatch;
pub(crate) mod hooks;
pub(crate) mod https;
mod metrics;
#[cfg(feature = "openapi")]
mod openapi;
#[cfg(feature = "client")]
pub(crate) mod runtime;
#[cfg(feature = "json")]
pub(crate) mod shape;
pub(crate) mod shared;
pub(crate) mod spawn_blocking;
pub(crate) mod states;

use crate::app::built_app::{BuiltApp, WaitHooks};
use crate::app::dispatch::AppFactory;
use crate::app::hooks::Hooks;
use crate::app::shared::{AppData, ErrorHandler, NotFoundHandler, RejectionHandler};
use crate::app::states::Scopes;
use crate::files::open::OpenFiles;
use crate::handler::private::IntoRoute;
use crate::handler::{Handler, Route};
use crate::message::provided::Provided;
use crate::metrics::{Metrics, RouteLabels};
use crate::middleware::{IntoLayer, Layer, Missed};
#[cfg(feature = "openapi")]
use crate::openapi::{Described, documented::Documentation};
use crate::router::{MethodFilter, Pattern, Router};
use crate::server::{Config, Server};
use crate::ws::WebSocketHandler;
use crate::{Error, Files, Https, IntoResponse, Method, Problem, Request, Result, StatusCode};
use highwire_io::Listener;
use std::any::Any;
use std::sync::Arc;

/// An application: routes with their handlers, shared state, and the settings of the server that runs it.
///
/// Paths are templates. `{id}` in `/users/{id}` matches one segment, and `{*rest}` in `/files/{*rest}` matches the rest
/// of the path. The syntax of other routers, `/users/:id` and `/files/*rest`, is an error. GET handlers also answer
/// HEAD. The app answers OPTIONS automatically, and responds with 405 and `Allow` if a path has handlers, but none for
/// the method.
///
/// Errors in building (such as a malformed template, or two handlers for one route) are reported by the method that
/// finishes the app, such as [`listen`](Self::listen) or [`server`](Self::server).
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Path, Request, State, StatusCode};
///
/// let api = App::new().get("/users/{id}", |Path(id): Path<u64>, motto: State<String>| format!("user {id}: {}", *motto));
/// let app = App::new()
///     .get("/", || "hello")
///     .post("/orders", |order: String| (StatusCode::CREATED, order))
///     .nest("/api", api)
///     .not_found(|request: &Request<'_>| (StatusCode::NOT_FOUND, format!("nothing at {}", request.path())))
///     .state("be brief".to_string());
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/api/users/7").send().text(), "user 7: be brief");
/// assert_eq!(client.post("/orders").body("tea").send().status(), 201);
/// assert_eq!(client.get("/x").send().text(), "nothing at /x");
/// // A program would end with:
/// // app.listen("127.0.0.1:8080")?.run()
/// # Ok::<(), highwire::Error>(())
/// ```
pub struct App {
    routes: Vec<Registered>,
    scopes: Scopes,
    config: Config,
    not_found: Option<NotFoundHandler>,
    on_rejection: Option<RejectionHandler>,
    on_error: Option<ErrorHandler>,
    on_wait: Option<WaitHooks>,
    hooks: Hooks,
    host: Option<String>,
    fallback: Option<Arc<dyn Route>>,
    https: Https,
    metrics: Option<Arc<Metrics>>,
    #[cfg(feature = "openapi")]
    openapi: Option<crate::openapi::Publication>,
    layers: Vec<Arc<dyn Layer>>,
    /// Routes for the 405 and OPTIONS responses of nested apps' paths. Each is [`Missed`] inside the middleware of its
    /// nested app. With the index of that app's values.
    misses: Vec<(Arc<dyn Route>, usize)>,
    /// The methods that were called and have an effect only on the outermost app.
    outermost: Vec<&'static str>,
    /// The first error of the methods that build the app.
    mistake: Option<Error>,
}

struct Registered {
    host: Option<String>,
    filter: MethodFilter,
    path: String,
    route: Arc<dyn Route>,
    /// The index in `misses` for this path, if it belongs to a nested app with middleware.
    missed: Option<usize>,
    /// The index of the values of the app that has registered the route.
    scope: usize,
    #[cfg(feature = "openapi")]
    documentation: Documentation,
}

impl Default for App {
    fn default() -> App {
        App::new()
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("routes", &self.routes.len()).field("config", &self.config).finish_non_exhaustive()
    }
}

macro_rules! verbs {
    ($($verb:ident $method:ident,)*) => {$(
        #[doc = concat!("Registers a handler for ", stringify!($method), ".")]
        pub fn $verb<M>(self, path: &str, handler: impl Handler<M>) -> App {
            self.route(Method::$method, path, handler)
        }
    )*};
}

impl App {
    /// Creates an app without routes.
    pub fn new() -> App {
        App {
            routes: Vec::new(),
            scopes: Scopes::default(),
            config: Config::default(),
            not_found: None,
            on_rejection: None,
            on_error: None,
            on_wait: None,
            hooks: Hooks::default(),
            host: None,
            fallback: None,
            https: Https::default(),
            metrics: None,
            #[cfg(feature = "openapi")]
            openapi: None,
            layers: Vec::new(),
            misses: Vec::new(),
            outermost: Vec::new(),
            mistake: None,
        }
    }

    verbs! {
        get GET,
        head HEAD,
        post POST,
        put PUT,
        delete DELETE,
        options OPTIONS,
        patch PATCH,
        trace TRACE,
        connect CONNECT,
    }

    /// Registers a handler for a method, standard or not.
    pub fn route<M>(mut self, method: Method, path: &str, handler: impl Handler<M>) -> App {
        self.handle(MethodFilter::One(method), path, handler);
        self
    }

    /// Registers a handler of WebSocket connections, with the default settings; see [`ws`](crate::ws).
    #[doc(alias = "websocket")]
    pub fn ws<A, H: WebSocketHandler<A>>(mut self, path: &str, handler: H) -> App {
        self.register(MethodFilter::One(Method::GET), path, handler.into_handler().into_route());
        self
    }

    /// Registers a handler for every method that has no handler of its own at this path. HEAD is such a method, even if
    /// GET has a handler.
    pub fn any<M>(mut self, path: &str, handler: impl Handler<M>) -> App {
        self.handle(MethodFilter::Any, path, handler);
        self
    }

    /// Registers a handler for all paths without a route, in place of the 404. An app may have a fallback and no
    /// routes.
    pub fn fallback<M>(mut self, handler: impl Handler<M>) -> App {
        self.outermost.push("fallback");
        self.fallback = Some(handler.into_route());
        self
    }

    /// Serves the files of a folder below a prefix, for GET and HEAD. `files` is the folder's path, or a [`Files`] with
    /// settings.
    pub fn files(mut self, prefix: &str, files: impl Into<Files>) -> App {
        let prefix = prefix.trim_end_matches('/');
        match crate::files::route(files.into()) {
            Ok(route) => self.register(MethodFilter::One(Method::GET), &format!("{prefix}/{{*path}}"), route),
            Err(error) => self.mistake = self.mistake.or(Some(error)),
        }
        if !prefix.is_empty() {
            self.register(MethodFilter::One(Method::GET), prefix, crate::files::to_folder.into_route());
        }
        self
    }

    /// Passes all requests for a path and the paths below it on to other servers; see [`proxy`](crate::proxy).
    #[cfg(feature = "client")]
    pub fn proxy(mut self, prefix: &str, proxy: crate::proxy::Proxy) -> App {
        let prefix = prefix.trim_end_matches('/');
        self.register(MethodFilter::Any, &format!("{prefix}/{{*rest}}"), proxy.clone().into_route());
        self.register(MethodFilter::Any, if prefix.is_empty() { "/" } else { prefix }, proxy.into_route());
        self
    }

    /// Registers a handler of a program, which describes itself.
    fn handle<M>(&mut self, filter: MethodFilter, path: &str, handler: impl Handler<M>) {
        #[cfg(feature = "openapi")]
        let documentation = handler.documentation();
        self.register(filter, path, handler.into_route());
        #[cfg(feature = "openapi")]
        if let Some(registered) = self.routes.last_mut() {
            registered.documentation = documentation;
        }
    }

    /// Registers a route that no OpenAPI document has.
    fn register(&mut self, filter: MethodFilter, path: &str, route: Arc<dyn Route>) {
        self.routes.push(Registered {
            host: self.host.clone(),
            filter,
            path: path.to_string(),
            route,
            missed: None,
            scope: 0,
            #[cfg(feature = "openapi")]
            documentation: Documentation::Hidden,
        });
    }

    /// Moves another app's routes below a prefix, with its middleware around them and around their 405 and OPTIONS
    /// responses, and with its values. For requests of its routes, handlers and middleware find its values before those of
    /// this app, also the middleware around this app; for other requests nothing does. Settings, `https`, `not_found`, `on_error`,
    /// `on_rejection`, `on_wait`, `metrics`, `openapi` and a [`fallback`](App::fallback) of the other app are an error when the server is
    /// built, because they concern all paths; to take all paths below a prefix, register [`any`](App::any) with `/{*rest}` in the
    /// other app. Handlers see the whole path, including the prefix.
    pub fn nest(mut self, prefix: &str, mut other: App) -> App {
        let prefix = prefix.trim_end_matches('/');
        for mut registered in self.take_over(&mut other) {
            registered.path = match registered.path.as_str() {
                "/" if !prefix.is_empty() => prefix.to_string(),
                path => format!("{prefix}{path}"),
            };
            registered.host = registered.host.or_else(|| self.host.clone());
            self.routes.push(registered);
        }
        self
    }

    /// Moves another app's routes and values into this one, with the routes for one host name only. The name has no
    /// port, and its case does not matter. These routes take precedence over routes for every host.
    pub fn host(mut self, name: &str, mut other: App) -> App {
        for mut registered in self.take_over(&mut other) {
            registered.host = Some(name.to_string());
            self.routes.push(registered);
        }
        self
    }

    /// Wraps another app's routes in that app's middleware and returns them. Nests the other app's values in those of this
    /// app, and moves its first error.
    fn take_over(&mut self, other: &mut App) -> Vec<Registered> {
        if !other.outermost.is_empty() {
            let text =
                format!("a nested app has called {}, which only the outermost app may", other.outermost.join(" and "));
            self.mistake = self.mistake.take().or(Some(Error::Setting(text)));
        }
        if !other.layers.is_empty() {
            other.misses.push((Arc::new(Missed), 0));
            let own = other.misses.len() - 1;
            other.routes.iter_mut().for_each(|registered| _ = registered.missed.get_or_insert(own));
        }
        self.hooks.append(&mut other.hooks);
        other.enclose();
        let before = self.misses.len();
        let scope = self.scopes.nest(std::mem::take(&mut other.scopes));
        self.misses.extend(other.misses.drain(..).map(|(route, its)| (route, its + scope)));
        self.mistake = self.mistake.take().or(other.mistake.take());
        let mut routes = std::mem::take(&mut other.routes);
        for registered in &mut routes {
            registered.missed.iter_mut().for_each(|missed| *missed += before);
            registered.scope += scope;
        }
        routes
    }

    /// Wraps a middleware around all routes of this app, including routes that are added later, and around the app's
    /// responses to requests without a route; for a nested app, these are its 405 and OPTIONS responses. The first
    /// middleware is the outermost; see [`middleware`](crate::middleware).
    pub fn with(mut self, middleware: impl IntoLayer) -> App {
        self.layers.push(middleware.into_layer());
        self
    }

    /// Wraps this app's middleware around its routes, its `misses` and its fallback.
    fn enclose(&mut self) {
        for layer in std::mem::take(&mut self.layers).iter().rev() {
            for registered in &mut self.routes {
                registered.route = layer.wrap(registered.route.clone());
            }
            let misses = self.misses.iter_mut().map(|(route, _)| route);
            for route in misses.chain(&mut self.fallback) {
                *route = layer.wrap(route.clone());
            }
        }
    }

    /// Returns [`Missed`] inside this app's middleware, for requests without a route.
    fn missed(&self) -> Arc<dyn Route> {
        let wrap = |route, layer: &Arc<dyn Layer>| layer.wrap(route);
        self.layers.iter().rev().fold(Arc::new(Missed), wrap)
    }

    /// Adds a value that handlers take as [`State<T>`](crate::State). The handlers of a nested app see its own value, or that
    /// of the app around it. Each handler gets a clone, so wrap a value in an [`Arc`] if it cannot be cloned, if its clones are
    /// separate (`OnceLock`, `OnceCell`), or if they are costly (`Vec`, `HashMap`). A second value of the same type in one app is an error when the server is built.
    pub fn state<T: Any + Clone + Send + Sync>(mut self, value: T) -> App {
        if !self.scopes.insert(value) {
            self.twice::<T>("state");
        }
        self
    }

    fn twice<T>(&mut self, method: &str) {
        let text = format!(
            "App::{method} was called twice with {}; an app has one value of a type",
            std::any::type_name::<T>()
        );
        self.mistake = self.mistake.take().or(Some(Error::Setting(text)));
    }

    /// Gives each worker a value of its own, which `factory` makes on the worker's thread. Handlers take it as
    /// [`PerWorker<T>`](crate::PerWorker). Nested apps see it as they see a [`state`](App::state).
    pub fn per_worker<T: Any>(mut self, factory: impl Fn() -> T + Send + Sync + 'static) -> App {
        if !self.scopes.insert_factory(factory) {
            self.twice::<T>("per_worker");
        }
        self
    }

    /// Sets the function that answers requests whose path has no route; the default is a 404. A
    /// [`fallback`](App::fallback) takes precedence.
    pub fn not_found<R: IntoResponse>(mut self, handler: impl Fn(&Request<'_>) -> R + Send + Sync + 'static) -> App {
        self.outermost.push("not_found");
        self.not_found = Some(Arc::new(move |request| handler(request).into_response()));
        self
    }

    /// Sets the function that makes the responses to errors outside of handlers, such as malformed requests, panics and
    /// timeouts. The function gets the status and a text; its response is sent with that status. Only the outermost app may call this.
    pub fn on_error<R: IntoResponse>(mut self, handler: impl Fn(StatusCode, &str) -> R + Send + Sync + 'static) -> App {
        self.outermost.push("on_error");
        self.on_error = Some(Arc::new(move |status, text| handler(status, text).into_response().with_status(status)));
        self
    }

    /// Answers errors outside of handlers with [problem details](crate::Problem), as extractors do: 404, 405, 408, 413, 500 and so on.
    /// It is [`on_error`](Self::on_error) with a function that makes them. Errors of a request that cannot be read as HTTP are
    /// answered so, too.
    ///
    /// ```
    /// use highwire::{App, testing::Client};
    ///
    /// let mut client = Client::new(App::new().get("/", || "hello").problems())?;
    /// let answer = client.get("/none").send();
    /// assert_eq!(answer.header("content-type"), "application/problem+json");
    /// assert_eq!(answer.text(), r#"{"title":"Not Found","status":404,"detail":"not found"}"#);
    /// assert_eq!(client.post("/").send().header("content-type"), "application/problem+json");
    /// # Ok::<(), highwire::Error>(())
    /// ```
    pub fn problems(self) -> App {
        self.on_error(|status, text| Problem::new(status, text.trim_end().to_string()))
    }

    /// Sets the function that makes the response to a request that an extractor refuses. It gets the request and the [`Problem`] that the
    /// extractor would send, whose members say what is wrong: the wrong field, its place. The response has the problem's status unless
    /// the function sets another than 200, and keeps the refusal's header fields, such as `WWW-Authenticate`, unless it has its own.
    /// Only the outermost app may call this.
    ///
    /// It is not called for refusals that are no problem documents, such as those of a program's own extractors, for those of
    /// [`AsyncFromRequest::from_parts`](crate::AsyncFromRequest::from_parts), which come after the request was taken apart, and for errors
    /// outside of handlers ([`on_error`](Self::on_error)).
    ///
    /// ```
    /// use highwire::testing::Client;
    /// use highwire::{App, Path, Problem, Request};
    ///
    /// let app = App::new()
    ///     .get("/users/{id}", |Path(id): Path<u32>| format!("user {id}"))
    ///     .on_rejection(|request: &Request<'_>, problem: Problem| problem.with_instance(request.path()));
    /// let answer = Client::new(app)?.get("/users/x").send();
    /// assert_eq!(answer.status(), 404);
    /// assert!(answer.text().contains(r#""instance":"/users/x""#));
    /// # Ok::<(), highwire::Error>(())
    /// ```
    pub fn on_rejection<R: IntoResponse>(
        mut self,
        handler: impl Fn(&Request<'_>, Problem) -> R + Send + Sync + 'static,
    ) -> App {
        self.outermost.push("on_rejection");
        self.on_rejection = Some(Arc::new(move |request, problem| handler(request, problem).into_response()));
        self
    }

    /// Returns the routes of the app and of the apps that are nested in it so far, in the order in which they were registered: the
    /// method, or `None` for [`any`](Self::any), and the template of the path.
    ///
    /// ```
    /// use highwire::App;
    ///
    /// let app = App::new().get("/", || "hello").nest("/api", App::new().any("/users/{id}", || "a user"));
    /// let routes: Vec<_> = app.routes().map(|(method, path)| format!("{} {path}", method.map_or("*", |method| method.as_str()))).collect();
    /// assert_eq!(routes, ["GET /", "* /api/users/{id}"]);
    /// ```
    pub fn routes(&self) -> impl Iterator<Item = (Option<&Method>, &str)> {
        self.routes.iter().map(|registered| {
            let method = match &registered.filter {
                MethodFilter::One(method) => Some(method),
                MethodFilter::Any => None,
            };
            (method, &*registered.path)
        })
    }

    /// Sets functions that are called just before and just after a worker's thread blocks until something happens, on that
    /// thread. They are not called when the worker only looks whether something has. A program whose handlers need a lock, such as
    /// that of an interpreter, lets it go in `before` and takes it again in `after`. They must not panic. With the feature `tokio`, tasks
    /// that a handler gives to tokio run between the two, without such a lock.
    pub fn on_wait(
        mut self,
        before: impl Fn() + Send + Sync + 'static,
        after: impl Fn() + Send + Sync + 'static,
    ) -> App {
        self.outermost.push("on_wait");
        self.on_wait = Some(WaitHooks { before: Box::new(before), after: Box::new(after) });
        self
    }

    /// Sets the redirects of requests without TLS to https, and HSTS.
    pub fn https(mut self, https: Https) -> App {
        self.outermost.push("https");
        self.https = https;
        self
    }

    /// Changes the server's settings.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> App {
        self.outermost.push("configure");
        change(&mut self.config);
        self
    }

    /// Builds the server and listens on an address, such as `127.0.0.1:8080`, `[::1]:8080`, `:8080`, `unix:/run/x.sock`
    /// or `fd:3`. The returned server can listen on further addresses.
    ///
    /// # Errors
    /// Returns an error if a route or a setting is wrong, or if the server cannot listen on the address.
    pub fn listen(self, address: &str) -> Result<Server> {
        self.server()?.listen(address)
    }

    /// Builds the server on the listeners that a service manager has passed (`LISTEN_FDS`).
    ///
    /// # Errors
    /// Returns an error if a route or a setting is wrong, or if no listener was passed.
    pub fn listen_inherited(self) -> Result<Server> {
        let mut server = self.server()?;
        let listeners = Listener::inherited()?;
        if listeners.is_empty() {
            return Err(Error::Setting(
                "no listener was inherited (`LISTEN_FDS` is not a positive number, or `LISTEN_PID` is not this process)".to_string(),
            ));
        }
        for (_, listener) in listeners {
            server = server.listen_on(listener)?;
        }
        Ok(server)
    }

    /// Builds the server without a listener.
    ///
    /// # Errors
    /// Returns an error if a route or a setting is wrong.
    pub fn server(self) -> Result<Server> {
        let (app, config) = self.build()?;
        Server::new(AppFactory::new(app), config)
    }

    /// Builds what makes the app's service for each worker, for a [`Service`](highwire_engine::Service) of a program's own that lets
    /// the app answer some of its requests. The settings of [`configure`](Self::configure) are those of the program's server.
    ///
    /// # Errors
    /// Returns an error if a route is wrong.
    pub fn factory(self) -> Result<AppFactory> {
        let (app, _) = self.build()?;
        Ok(AppFactory::new(app))
    }

    pub(crate) fn build(mut self) -> Result<(BuiltApp, Config)> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let missed = (!self.layers.is_empty()).then(|| self.missed());
        self.enclose();
        #[cfg(feature = "openapi")]
        let mut described = Vec::new();
        let mut router = Router::default();
        let mut routes: Vec<Arc<dyn Route>> = Vec::new();
        let (mut names, mut scopes) = (Vec::new(), Vec::new());
        let mut paths: Vec<Option<Arc<str>>> = Vec::new();
        let mut labels = Vec::new();
        let mut measured = Vec::new();
        let first_missed = self.routes.len();
        let (states, kinds) = (self.scopes.resolve(), self.scopes.local_kinds());
        let check =
            |route: &Arc<dyn Route>, scope: usize, path: Option<&str>, parameters: &[Box<str>], called: &str| {
                let provided = Provided { path, parameters, states: &states[scope], per_worker: &kinds[scope] };
                route.check(&provided).map_err(|text| Error::Setting(format!("{called}: {text}")))
            };
        if let Some(fallback) = &self.fallback {
            check(fallback, 0, None, &[], "the fallback")?;
        }
        for registered in self.routes {
            let (host, pattern) = (registered.host.as_deref(), Pattern::parse(&registered.path)?);
            let path = &*registered.path;
            let called = format!("{} {}{path}", registered.filter, registered.host.as_deref().unwrap_or_default());
            check(&registered.route, registered.scope, Some(path), &pattern.names(), &called)?;
            router.insert(host, &registered.filter, &pattern, routes.len() as u32)?;
            if let Some(missed) = registered.missed {
                router.insert_missed(host, &pattern, (first_missed + missed) as u32);
            }
            routes.push(registered.route);
            scopes.push(registered.scope);
            names.push(pattern.names());
            #[cfg(feature = "openapi")]
            described.push(Described {
                host: registered.host.clone(),
                filter: registered.filter,
                path: registered.path.clone(),
                documentation: registered.documentation,
            });
            measured.push(RouteLabels { path: Some(registered.path.clone()), host: registered.host });
            paths.push(Some(registered.path.into()));
            labels.push(Some(called));
        }
        #[cfg(feature = "openapi")]
        if let Some(publication) = &self.openapi {
            publication.publish(&described, self.on_rejection.is_some())?;
        }
        let mut without_path = |route, scope| {
            routes.push(route);
            scopes.push(scope);
            names.push(Vec::new());
            paths.push(None);
            labels.push(None);
            routes.len() as u32 - 1
        };
        for (route, scope) in self.misses {
            without_path(route, scope);
        }
        let fallback = self.fallback.map(|route| without_path(route, 0));
        let missed = missed.map(|route| without_path(route, 0));
        let data = AppData {
            paths,
            names,
            states,
            scopes,
            not_found: self.not_found,
            on_rejection: self.on_rejection,
            on_error: self.on_error,
            body_limits: routes.iter().map(|route| route.body_limit()).collect(),
            open_files: OpenFiles::new(highwire_io::memory::descriptors()),
        };
        if let Some(metrics) = &self.metrics {
            metrics.name_routes(measured);
        }
        let app = BuiltApp {
            data: Arc::new(data),
            body_uses: routes.iter().map(|route| route.body_use()).collect(),
            router,
            routes,
            fallback,
            missed,
            values: self.scopes,
            https: self.https,
            on_wait: self.on_wait,
            hooks: self.hooks,
            metrics: self.metrics,
            labels,
        };
        Ok((app, self.config))
    }
}
