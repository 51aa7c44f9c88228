//! The service of a worker: it begins each request as a task of the event loop.

use super::awaitable::Sent;
use super::channel::{Finished, Receive, Send, Target, finish};
use super::convert::option;
use super::exchange::Exchange;
use super::scope::Scopes;
use super::shared::Shared;
use super::websocket::Socket;
use crate::gil::Released;
use crate::rsgi::{HttpProtocol, Scope, WebSocketProtocol};
use crate::thread_bound::ThreadBound;
use crate::vectorcall;
use crate::wsgi::Wsgi;
use highwire::ws::{Deflate, WebSocketUpgrade};
use highwire_engine::context::Spawner;
use highwire_engine::http::StatusCode;
use highwire_engine::proto::Head;
use highwire_engine::request::{BodyUse, Caller, Ready};
use highwire_engine::response::Content;
use highwire_engine::{Begin, Outcome, Response, Service};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

/// The most bytes of a body that a WSGI application gets by default. It is received before the application is called.
const MOST_BODY_BYTES: u64 = 1 << 30;

/// The service of one worker.
pub(crate) struct Asgi {
    application: Py<PyAny>,
    shared: Rc<Shared>,
    tasks: Tasks,
    /// The exchanges that have no response yet, and free places.
    pending: Vec<Option<Target>>,
    free: Vec<u32>,
    released: Released,
    /// True if messages of WebSockets are compressed for clients that offer it.
    deflates: bool,
    /// The most bytes of a received message of a WebSocket.
    most_message_bytes: u64,
    /// True if the application is one of RSGI.
    is_rsgi: bool,
    /// Set if the application is one of WSGI, which is called in this thread.
    wsgi: Option<Wsgi>,
    /// The most bytes of a body that a WSGI application gets.
    most_body_bytes: u64,
}

/// How tasks are made.
struct Tasks {
    /// `asyncio.Task`, with the names of its keyword arguments; or the loop's `create_task`, before Python 3.12.
    make: Py<PyAny>,
    names: Py<PyTuple>,
    is_eager: bool,
    /// `contextvars.Context`, because a request must not see what another one has set.
    context: Py<PyAny>,
    empty: Py<PyAny>,
}

impl Tasks {
    fn new(py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<Tasks> {
        let is_eager = py.version_info() >= (3, 12);
        let (make, names) = if is_eager {
            let names = PyTuple::new(py, ["loop", "eager_start", "name", "context"])?;
            (py.import("asyncio")?.getattr("Task")?, names)
        } else {
            (event_loop.getattr("create_task")?, PyTuple::new(py, ["name", "context"])?)
        };
        Ok(Tasks {
            make: make.unbind(),
            names: names.unbind(),
            is_eager,
            context: py.import("contextvars")?.getattr("Context")?.unbind(),
            empty: "".into_pyobject(py)?.into_any().unbind(),
        })
    }

    fn begin<'py>(&self, coroutine: &Bound<'py, PyAny>, event_loop: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = coroutine.py();
        let context = self.context.bind(py).call0()?;
        let (make, empty) = (self.make.bind(py), self.empty.bind(py));
        if self.is_eager {
            let eager = pyo3::types::PyBool::new(py, true);
            let arguments = [coroutine, event_loop.bind(py), eager.as_any(), empty, &context];
            return vectorcall::call(make, &arguments, Some(&self.names));
        }
        vectorcall::call(make, &[coroutine, empty, &context], Some(&self.names))
    }
}

impl Asgi {
    pub(crate) fn new(py: Python<'_>, options: &Bound<'_, PyDict>, tasks: Arc<AtomicUsize>) -> PyResult<Asgi> {
        let get = |name: &str| -> PyResult<Py<PyAny>> {
            let missing = || pyo3::exceptions::PyKeyError::new_err(name.to_owned());
            Ok(options.get_item(name)?.ok_or_else(missing)?.unbind())
        };
        let event_loop = get("loop")?;
        let shared = Shared {
            scopes: Scopes::new(py, options)?,
            sent: Py::new(py, Sent)?.into_any(),
            log: get("log")?,
            event_loop: event_loop.clone_ref(py),
            spawner: RefCell::default(),
            tasks,
        };
        Ok(Asgi {
            application: get("application")?,
            shared: Rc::new(shared),
            tasks: Tasks::new(py, event_loop.bind(py))?,
            pending: Vec::new(),
            free: Vec::new(),
            released: Released::default(),
            deflates: option(options, "ws_deflate")?.unwrap_or(true),
            is_rsgi: option(options, "rsgi")?.unwrap_or(false),
            wsgi: match options.get_item("wsgi")?.filter(|base| !base.is_none()) {
                Some(base) => Some(Wsgi::new(py, base.cast()?)?),
                None => None,
            },
            most_body_bytes: option(options, "limit_body")?.unwrap_or(MOST_BODY_BYTES),
            most_message_bytes: option(options, "ws_max_size")?.unwrap_or(16 * 1024 * 1024),
        })
    }

    /// Calls the application. Its task runs until it first has to wait.
    fn call(&self, scope: &Bound<'_, PyAny>, target: &Target) -> PyResult<()> {
        let py = scope.py();
        if self.is_rsgi {
            let protocol = match target {
                Target::Http(exchange) => Bound::new(py, HttpProtocol(ThreadBound::new(exchange.clone())))?.into_any(),
                Target::WebSocket(socket) => {
                    Bound::new(py, WebSocketProtocol(ThreadBound::new(socket.clone())))?.into_any()
                }
            };
            return self.begin_task(&[scope, &protocol], target);
        }
        let receive = Bound::new(py, Receive(ThreadBound::new(target.clone())))?;
        let send = Bound::new(py, Send(ThreadBound::new(target.clone())))?;
        self.begin_task(&[scope, receive.as_any(), send.as_any()], target)
    }

    fn begin_task(&self, arguments: &[&Bound<'_, PyAny>], target: &Target) -> PyResult<()> {
        let py = arguments[0].py();
        // The task may give the event loop work, and a request may begin before the turn waits.
        super::shared::set_work(true);
        let application = self.application.bind(py);
        let begun = vectorcall::call(application, arguments, None)
            .and_then(|coroutine| self.tasks.begin(&coroutine, &self.shared.event_loop));
        match begun {
            Ok(task) => {
                let words = self.shared.words();
                if self.tasks.is_eager && task.call_method0(&words.done)?.is_truthy()? {
                    finish(target, &task)?;
                } else {
                    let finished = Bound::new(py, Finished(ThreadBound::new(target.clone())))?;
                    task.call_method1(&words.add_done_callback, (finished,))?;
                    target.keep_task(task.unbind());
                }
            }
            Err(error) => target.finished(py, Some(error.into_value(py).into_bound(py).into_any())),
        }
        Ok(())
    }

    fn begin_http(&mut self, request: &mut Begin<'_>, answer: &mut Option<Response>) -> PyResult<Outcome> {
        let body = match std::mem::take(request.body) {
            Ready::Parts(body) => Some(body),
            _ => None,
        };
        let is_head = request.head.method_span.of(request.window) == b"HEAD";
        let exchange = Exchange::new(self.shared.clone(), is_head, self.is_rsgi, body);
        Python::attach(|py| {
            let scope = if self.is_rsgi {
                Bound::new(py, Scope::new(py, request, &self.shared.scopes, false))?.into_any()
            } else {
                self.shared.scopes.http(py, request)?.into_any()
            };
            self.call(&scope, &Target::Http(exchange.clone()))
        })?;
        let response = exchange.take_response();
        exchange.send_hints(request, response.is_none());
        if let Some(response) = response {
            if matches!(response.content(), Content::Stream(_)) {
                exchange.keep(request.task.waker(), request.hooks.disconnect());
            }
            *answer = Some(response);
            return Ok(Outcome::Ready);
        }
        exchange.keep(request.task.waker(), request.hooks.disconnect());
        Ok(Outcome::Pending(self.insert(Target::Http(exchange))))
    }

    #[cold]
    fn begin_websocket(
        &mut self,
        request: &mut Begin<'_>,
        upgrade: WebSocketUpgrade,
        answer: &mut Option<Response>,
    ) -> PyResult<Outcome> {
        let protocols = upgrade.proposed_protocols().to_vec();
        let upgrade = if self.deflates { upgrade.deflate(Deflate::new()) } else { upgrade };
        let socket = Socket::new(self.shared.clone(), self.is_rsgi, upgrade.max_message_size(self.most_message_bytes));
        Python::attach(|py| {
            let scope = if self.is_rsgi {
                Bound::new(py, Scope::new(py, request, &self.shared.scopes, true))?.into_any()
            } else {
                self.shared.scopes.websocket(py, request, &protocols)?.into_any()
            };
            self.call(&scope, &Target::WebSocket(socket.clone()))
        })?;
        if let Some(response) = socket.take_response() {
            *answer = Some(response);
            return Ok(Outcome::Ready);
        }
        socket.keep(request.task.waker());
        Ok(Outcome::Pending(self.insert(Target::WebSocket(socket))))
    }

    fn insert(&mut self, target: Target) -> u32 {
        if let Some(place) = self.free.pop() {
            self.pending[place as usize] = Some(target);
            return place;
        }
        self.pending.push(Some(target));
        (self.pending.len() - 1) as u32
    }

    fn remove(&mut self, place: u32) -> Option<Target> {
        let target = self.pending.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(target)
    }
}

/// Returns true if a request proposes a WebSocket.
fn is_websocket(head: &Head, window: &[u8]) -> bool {
    let proposes = |value: &[u8]| {
        value.split(|&byte| byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    };
    head.protocol.of(window) == b"websocket" || head.named(window, b"upgrade").any(proposes)
}

impl Service for Asgi {
    fn route(&mut self, _: &Head, _: &[u8], _: Caller<'_>) -> Result<u32, Box<Response>> {
        Ok(0)
    }

    fn body_use(&self, _: u32) -> BodyUse {
        if self.wsgi.is_some() { BodyUse::Whole } else { BodyUse::Parts }
    }

    fn body_limit(&self, _: u32, _: BodyUse) -> Option<u64> {
        self.wsgi.as_ref().map(|_| self.most_body_bytes)
    }

    fn begin(&mut self, mut request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        if self.shared.spawner.borrow().is_none() {
            *self.shared.spawner.borrow_mut() = Spawner::here();
        }
        let head = request.head;
        let begun = if let Some(wsgi) = &self.wsgi {
            *answer = Some(Python::attach(|py| {
                wsgi.call(self.application.bind(py), &mut request, &self.shared).unwrap_or_else(|error| {
                    let error = error.into_value(py).into_bound(py).into_any();
                    self.shared.log(py, Some(error), "a WSGI application raised an exception");
                    Response::error(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
                })
            }));
            return Outcome::Ready;
        } else if head.upgrade && is_websocket(head, request.window) {
            match WebSocketUpgrade::of(head, request.window, request.caller) {
                Ok(upgrade) => self.begin_websocket(&mut request, upgrade, answer),
                Err(response) => {
                    *answer = Some(response);
                    return Outcome::Ready;
                }
            }
        } else {
            self.begin_http(&mut request, answer)
        };
        begun.unwrap_or_else(|error| {
            Python::attach(|py| error.write_unraisable(py, None));
            *answer = Some(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"));
            Outcome::Ready
        })
    }

    fn poll(&mut self, (_, place): (u32, u32), _: &mut Context<'_>) -> Poll<Response> {
        let response = match self.pending.get(place as usize) {
            Some(Some(Target::Http(exchange))) => exchange.take_response(),
            Some(Some(Target::WebSocket(socket))) => socket.take_response(),
            _ => None,
        };
        let Some(response) = response else { return Poll::Pending };
        self.remove(place);
        Poll::Ready(response)
    }

    fn cancel(&mut self, (_, place): (u32, u32)) {
        match self.remove(place) {
            Some(Target::Http(exchange)) => Python::attach(|py| exchange.leave(py)),
            Some(Target::WebSocket(socket)) => Python::attach(|py| socket.end(py, 1006, String::new())),
            None => {}
        }
    }

    fn has_work(&self) -> bool {
        super::shared::has_work()
    }

    fn before_wait(&mut self) {
        self.released.give();
    }

    fn after_wait(&mut self) {
        self.released.take();
    }
}
