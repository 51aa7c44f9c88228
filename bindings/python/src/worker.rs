//! A worker of the engine as a Python object, which an event loop's selector waits with.

use crate::asgi::convert::option;
use crate::asgi::service::Asgi;
use crate::asgi::shared::set_work;
use crate::mounts::{Mounted, Mounts};
use crate::thread_bound::drop_orphans;
use highwire_engine::io::{Driver as _, Instant, Interest};
use highwire_engine::tls::{ClientAuth, TlsConfig};
use highwire_engine::{Config, Engine, Listen, MakeService, Runtime, Server, Shared};
use pyo3::exceptions::{PyKeyError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The events of the module `selectors`.
const EVENT_READ: u32 = 1;
const EVENT_WRITE: u32 = 2;

/// The number of connections from which it is worth to return memory when half of them have gone, and the time after which
/// that is done.
const LEAST_TO_TRIM: usize = 256;
const TRIM_AFTER: Duration = Duration::from_secs(1);

/// The time after that for a graceful shutdown at which the engine cuts what is left, if the event loop has not.
const LATE: Duration = Duration::from_secs(5);

/// The time for which clients may keep the files of mounted folders by default, in seconds.
const STATIC_EXPIRES: u32 = 86_400;

/// Returns freed memory to the system when most connections have gone. (A server with threads of its own does so, too.)
#[derive(Default)]
struct Trimming {
    /// The most connections since memory was returned last.
    most: usize,
    due: Option<Instant>,
}

impl Trimming {
    /// Returns the moment at which [`check`](Self::check) must be called again, if there is one.
    fn check(&mut self, connections: usize, now: Instant) -> Option<Instant> {
        self.most = self.most.max(connections);
        if self.most < LEAST_TO_TRIM || connections > self.most / 2 {
            self.due = None;
        } else if *self.due.get_or_insert(now + TRIM_AFTER) <= now {
            highwire_engine::io::memory::trim();
            (self.most, self.due) = (connections, None);
        }
        self.due
    }
}

/// A change of the watched descriptors.
enum Change {
    Watch(i32, Interest),
    Unwatch(i32),
}

/// A worker of the server, whose turns are the waits of an event loop. It belongs to the thread that made it.
#[pyclass(unsendable, frozen)]
pub(crate) struct Worker {
    worker: RefCell<highwire_engine::Worker<Runtime, Mounted>>,
    /// The changes that were made during a turn.
    changes: RefCell<VecDeque<Change>>,
    has_stopped: Cell<bool>,
    addresses: Vec<String>,
    trimming: RefCell<Trimming>,
    /// The number of tasks of the application that have not ended.
    tasks: Arc<AtomicUsize>,
    /// Logs an event of the engine.
    log_event: Py<PyAny>,
}

/// Sets up the process as one that only serves: its limit of descriptors, and how its heap returns memory. Must be called before other threads begin.
#[pyfunction]
pub(crate) fn own_process() {
    highwire_engine::raise_descriptor_limit();
    highwire_engine::share_heap();
}

/// Makes the service of the only worker.
struct Make {
    options: Mutex<Option<Py<PyDict>>>,
    tasks: Arc<AtomicUsize>,
    mounts: Option<Mounts>,
}

impl MakeService for Make {
    type Service = Mounted;

    fn make(&self, shared: &Arc<Shared>) -> Mounted {
        let application = Python::attach(|py| {
            let options = self.options.lock().expect("no panic").take().expect("there is one worker");
            Asgi::new(py, options.bind(py), self.tasks.clone()).expect("the options were checked")
        });
        Mounted { application, folders: self.mounts.as_ref().map(|mounts| mounts.make(shared)) }
    }
}

/// Sets the settings that are given.
fn set(options: &Bound<'_, PyDict>, config: &mut Config) -> PyResult<()> {
    let seconds = |name: &str| -> PyResult<Option<Duration>> {
        let Some(seconds) = option::<f64>(options, name)? else { return Ok(None) };
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Some).map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
    };
    if let Some(idle) = seconds("keep_alive")? {
        config.timeouts.idle = idle;
    }
    if let Some(shutdown) = seconds("graceful_timeout")? {
        // The server cuts what is left itself, and tells how much that is.
        config.timeouts.shutdown = shutdown + LATE;
    }
    if let Some(handler) = seconds("request_timeout")? {
        config.timeouts.handler = handler;
    }
    if let Some(connections) = option(options, "limit_connections")? {
        config.limits.connections = connections;
    }
    if let Some(bytes) = option(options, "limit_body")? {
        config.limits.streamed_body_bytes = bytes;
    }
    if let Some(backlog) = option::<u32>(options, "backlog")? {
        config.socket.backlog = backlog;
    }
    if let Some(http) = option::<String>(options, "http")? {
        match &*http {
            "auto" => {}
            "1" => (config.http2_cleartext, config.http2_tls) = (false, false),
            "2" => config.http1 = false,
            other => return Err(PyValueError::new_err(format!("http must be 'auto', '1' or '2', not {other:?}"))),
        }
    }
    config.access_log = option(options, "access_log")?.unwrap_or(false);
    if let Some(name) = options.get_item("server_name")? {
        config.server_name = name.extract()?;
    }
    Ok(())
}

/// Returns the settings of TLS, if there are any.
fn tls(options: &Bound<'_, PyDict>) -> PyResult<Option<TlsConfig>> {
    let certificate = option::<PathBuf>(options, "ssl_certfile")?;
    let key = option::<PathBuf>(options, "ssl_keyfile")?;
    let clients =
        match (option::<PathBuf>(options, "ssl_ca_certs")?, option::<String>(options, "ssl_cert_reqs")?.as_deref()) {
            (_, Some("none" | "0")) | (None, None) => ClientAuth::None,
            (Some(roots), Some("optional" | "1")) => ClientAuth::Optional(roots),
            (Some(roots), None | Some("required" | "2")) => ClientAuth::Required(roots),
            (None, Some("optional" | "required" | "1" | "2")) => {
                return Err(PyValueError::new_err("ssl_cert_reqs needs ssl_ca_certs"));
            }
            (_, Some(other)) => {
                let text = format!("ssl_cert_reqs must be 'none', 'optional' or 'required', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
    match (certificate, key) {
        (None, None) if clients == ClientAuth::None => Ok(None),
        (None, None) => Err(PyValueError::new_err("ssl_ca_certs needs ssl_certfile")),
        // One file may hold both.
        (Some(chain), key) => {
            let key = key.unwrap_or_else(|| chain.clone());
            Ok(Some(TlsConfig::new().certificate_files(chain, key).client_auth(clients)))
        }
        (None, Some(_)) => Err(PyValueError::new_err("ssl_keyfile needs ssl_certfile")),
    }
}

fn failed(error: highwire_engine::Error) -> PyErr {
    match error {
        highwire_engine::Error::Setting(text) => PyValueError::new_err(text),
        error => PyOSError::new_err(error.to_string()),
    }
}

impl Worker {
    fn borrow_mut(&self) -> PyResult<RefMut<'_, highwire_engine::Worker<Runtime, Mounted>>> {
        self.worker.try_borrow_mut().map_err(|_| PyRuntimeError::new_err("a turn of the worker runs"))
    }
}

#[pymethods]
impl Worker {
    /// Makes a worker that listens on addresses, such as `"127.0.0.1:8000"`, `"unix:/run/app.sock"` or `"fd:3"`.
    ///
    /// `options` has `application`, `loop`, `log` and `log_event`, and may have `engine`, `root_path`, `server` and `state`.
    #[new]
    fn new(py: Python<'_>, addresses: Vec<String>, options: &Bound<'_, PyDict>) -> PyResult<Worker> {
        // Its errors are those of the options, and are raised here and not in the middle of the engine.
        let tasks = Arc::new(AtomicUsize::new(0));
        drop(Asgi::new(py, options, tasks.clone())?);
        let engine = match options.get_item("engine")? {
            Some(name) if !name.is_none() => match &*name.extract::<String>()? {
                "auto" => Engine::Auto,
                "uring" => Engine::Uring,
                "readiness" => Engine::Readiness,
                other => return Err(PyValueError::new_err(format!("there is no engine {other:?}"))),
            },
            _ => Engine::Auto,
        };
        let mut config = Config::default();
        (config.workers, config.engine) = (1, engine);
        // An application may take as long as it wants, and an event stream may be silent, unless `request_timeout` is given.
        config.timeouts.handler = Duration::ZERO;
        set(options, &mut config)?;
        let folders = option(options, "static_mounts")?.unwrap_or_default();
        let mounts =
            Mounts::new(&folders, option(options, "static_expires")?.unwrap_or(STATIC_EXPIRES)).map_err(failed)?;
        let make = Make { options: Mutex::new(Some(options.clone().unbind())), tasks: tasks.clone(), mounts };
        let mut server = Server::new(make, config).map_err(failed)?;
        let tls = tls(options)?;
        for address in &addresses {
            let listen = tls.clone().map_or_else(Listen::new, |tls| Listen::new().tls(tls));
            server = server.listen_with(address, listen).map_err(failed)?;
        }
        let addresses = server.addresses();
        let log_event = options.get_item("log_event")?.ok_or_else(|| PyKeyError::new_err("log_event"))?.unbind();
        crate::log::collect();
        let runtime = Runtime::new(engine).map_err(failed)?;
        let worker = server.into_worker(runtime).map_err(failed)?;
        let worker = RefCell::new(worker);
        Ok(Worker {
            worker,
            changes: RefCell::default(),
            has_stopped: Cell::new(false),
            addresses,
            trimming: RefCell::default(),
            tasks,
            log_event,
        })
    }

    /// The addresses on which the worker listens.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// True when the worker has stopped, so that it has no connection any more.
    #[getter]
    fn has_stopped(&self) -> bool {
        self.has_stopped.get()
    }

    /// Runs a turn, which waits for at most `timeout` seconds, or without a limit. Returns the descriptors that are ready, each
    /// with its events. They are no longer watched.
    fn turn<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let mut worker = self.borrow_mut()?;
        for change in self.changes.borrow_mut().drain(..) {
            match change {
                Change::Watch(descriptor, interest) => worker.watch(descriptor as u64, descriptor, interest),
                Change::Unwatch(descriptor) => worker.unwatch(descriptor as u64),
            }
        }
        let limit = match timeout {
            _ if drop_orphans() => Some(Instant::default()),
            None => None,
            Some(timeout) if timeout <= 0.0 => Some(Instant::default()),
            Some(timeout) => {
                // A time that the type cannot hold is as good as none.
                let wait = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(86_400));
                Some(worker.driver().now() + wait)
            }
        };
        let trim_at = {
            let (connections, now) = (worker.connections(), worker.driver().now());
            self.trimming.borrow_mut().check(connections, now)
        };
        let limit = limit.into_iter().chain(trim_at).min();
        set_work(false);
        let stopped = worker.turn(limit).map_err(failed)?;
        self.has_stopped.set(stopped);
        let ready = worker.take_watched();
        drop(worker);
        crate::log::pass_on(self.log_event.bind(py));
        let ready = ready.into_iter().map(|(token, ready)| {
            let events = if ready.readable { EVENT_READ } else { 0 } | if ready.writable { EVENT_WRITE } else { 0 };
            (token as i32, events)
        });
        PyList::new(py, ready.collect::<Vec<_>>())
    }

    /// A descriptor that becomes readable when [`turn_ready`](Self::turn_ready) has something to do, for an event loop that waits
    /// itself.
    fn descriptor(&self) -> PyResult<i32> {
        let mut worker = self.borrow_mut()?;
        worker.descriptor().map_err(failed)
    }

    /// Does what there is to do, without waiting. Must be called once before the first wait for the descriptor.
    fn turn_ready(&self, py: Python<'_>) -> PyResult<()> {
        let mut worker = self.borrow_mut()?;
        drop_orphans();
        let (connections, now) = (worker.connections(), worker.driver().now());
        // The moment is not waited for: the next turn comes with other work.
        let _ = self.trimming.borrow_mut().check(connections, now);
        let stopped = worker.turn_ready().map_err(failed)?;
        self.has_stopped.set(stopped);
        drop(worker);
        crate::log::pass_on(self.log_event.bind(py));
        Ok(())
    }

    /// Watches a descriptor until it is ready once.
    fn watch(&self, descriptor: i32, events: u32) {
        let interest = Interest { readable: events & EVENT_READ != 0, writable: events & EVENT_WRITE != 0 };
        self.changes.borrow_mut().push_back(Change::Watch(descriptor, interest));
    }

    /// Ends the watch of a descriptor.
    fn unwatch(&self, descriptor: i32) {
        self.changes.borrow_mut().push_back(Change::Unwatch(descriptor));
    }

    /// Stops accepting, and lets requests finish. The loop must go on until `has_stopped` is true.
    fn shutdown(&self) {
        if let Ok(worker) = self.worker.try_borrow() {
            worker.shutdown();
        }
    }

    /// Cuts what is left of the requests.
    fn abort(&self) {
        if let Ok(worker) = self.worker.try_borrow() {
            worker.abort();
        }
    }

    /// The number of open connections.
    fn connections(&self) -> usize {
        self.worker.try_borrow().map_or(0, |worker| worker.connections())
    }

    /// The number of tasks of the application that have not ended. One may go on after its response, to do work in the background.
    fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    /// The number of requests so far.
    fn requests(&self) -> u64 {
        self.worker.try_borrow().map_or(0, |worker| worker.stats().requests)
    }

    /// The name of the interface to the kernel.
    fn engine(&self) -> PyResult<&'static str> {
        Ok(self.borrow_mut()?.driver().name())
    }
}
