//! Folders whose files the server sends itself, before the application.

use crate::asgi::service::Asgi;
use highwire::Files;
use highwire::server::{AppFactory, Dispatcher};
use highwire_engine::http::{HeaderValue, StatusCode};
use highwire_engine::proto::Head;
use highwire_engine::request::{BodyUse, Caller};
use highwire_engine::{Begin, Cause, MakeService as _, Outcome, Response, Service, Shared};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The route of the application. Those of the folders follow.
const APPLICATION: u32 = 0;

/// Folders by the paths at which they are mounted.
pub(crate) struct Mounts {
    /// The paths, each with a slash at its end.
    prefixes: Arc<[Box<[u8]>]>,
    app: AppFactory,
}

impl Mounts {
    /// Opens the folders. `expires` is the time, in seconds, for which clients may keep the files.
    pub(crate) fn new(folders: &BTreeMap<String, PathBuf>, expires: u32) -> highwire::Result<Option<Mounts>> {
        if folders.is_empty() {
            return Ok(None);
        }
        let mut app = highwire::App::new();
        for (prefix, folder) in folders {
            let files = Files::new(folder).cache_control("*", format!("max-age={expires}"));
            app = app.files(prefix, files);
        }
        let prefixes = folders.keys().map(|prefix| format!("{}/", prefix.trim_end_matches('/')).into_bytes().into());
        Ok(Some(Mounts { prefixes: prefixes.collect(), app: app.factory()? }))
    }

    pub(crate) fn make(&self, shared: &Arc<Shared>) -> Folders {
        Folders { prefixes: self.prefixes.clone(), files: self.app.make(shared) }
    }
}

/// The folders of one worker.
pub(crate) struct Folders {
    prefixes: Arc<[Box<[u8]>]>,
    files: Dispatcher,
}

/// The service of one worker: an application behind folders.
pub(crate) struct Mounted {
    pub(crate) application: Asgi,
    pub(crate) folders: Option<Folders>,
}

impl Mounted {
    /// Returns the service that has a route, and the route's number there.
    fn of(&mut self, route: u32) -> (&mut dyn Service, u32) {
        match &mut self.folders {
            Some(folders) if route != APPLICATION => (&mut folders.files, route - 1),
            _ => (&mut self.application, route),
        }
    }
}

impl Service for Mounted {
    fn route(&mut self, head: &Head, window: &[u8], caller: Caller<'_>) -> Result<u32, Box<Response>> {
        if let Some(folders) = &mut self.folders {
            let path = head.target.path.of(window);
            if folders.prefixes.iter().any(|prefix| path.starts_with(prefix)) {
                return folders.files.route(head, window, caller).map(|route| route + 1);
            }
        }
        self.application.route(head, window, caller)
    }

    fn body_use(&self, route: u32) -> BodyUse {
        match &self.folders {
            Some(folders) if route != APPLICATION => folders.files.body_use(route - 1),
            _ => self.application.body_use(route),
        }
    }

    fn body_limit(&self, route: u32, body_use: BodyUse) -> Option<u64> {
        match &self.folders {
            Some(folders) if route != APPLICATION => folders.files.body_limit(route - 1, body_use),
            _ => self.application.body_limit(route, body_use),
        }
    }

    fn begin(&mut self, mut request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        if request.route == APPLICATION {
            return self.application.begin(request, answer);
        }
        let (service, route) = self.of(request.route);
        request.route = route;
        service.begin(request, answer)
    }

    fn poll(&mut self, (route, place): (u32, u32), cx: &mut Context<'_>) -> Poll<Response> {
        let (service, route) = self.of(route);
        service.poll((route, place), cx)
    }

    fn cancel(&mut self, (route, place): (u32, u32)) {
        let (service, route) = self.of(route);
        service.cancel((route, place));
    }

    fn strict_transport_security(&self) -> Option<HeaderValue> {
        self.application.strict_transport_security()
    }

    fn error(&self, status: StatusCode, text: &str) -> Response {
        self.application.error(status, text)
    }

    fn panicked(&self, route: Option<u32>, cause: &Cause) -> Response {
        match (&self.folders, route) {
            (Some(folders), Some(route)) if route != APPLICATION => folders.files.panicked(Some(route - 1), cause),
            _ => self.application.panicked(route, cause),
        }
    }

    fn has_work(&self) -> bool {
        self.application.has_work()
    }

    fn before_wait(&mut self) {
        self.application.before_wait();
    }

    fn after_wait(&mut self) {
        self.application.after_wait();
    }

    fn end(&mut self) {
        if let Some(folders) = &mut self.folders {
            folders.files.end();
        }
        self.application.end();
    }
}
