//! Starting, watching and stopping workers.

use crate::runtime::driver::Runtime;
use crate::runtime::remote::Remote;
use crate::server::blocking::{self, Acceptor};
use crate::server::config::{Balance, Config, Engine};
use crate::server::listen::{Listen, ListenerSetup};
use crate::server::serve::Serve;
use crate::server::shared::{RESERVED_DESCRIPTORS, Shared};
use crate::server::stats::Stats;
use crate::server::trimming::Trimming;
use crate::service::MakeService;
use crate::worker::tokio::Tokio;
use crate::worker::{Worker, at_start};
use crate::{Error, Result};
use highwire_io::signal::Signal;
use highwire_io::wake::Notifier;
use highwire_io::{Address, Driver, Listener};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The size in bytes of the stack of a worker thread, on which handlers run. The kernel provides only the pages that
/// are used.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// The longest time between two checks by the thread that watches the workers.
const WATCH: Duration = Duration::from_millis(50);

/// A server that has not been started yet.
pub struct Server<M> {
    make: Arc<M>,
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    /// The setup of each listener, in the order of `listeners`.
    listener_setups: Vec<ListenerSetup>,
}

impl<M: MakeService> std::fmt::Debug for Server<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl<M: MakeService> Server<M> {
    /// Creates a server that does not listen yet. `make` creates the service of each worker.
    ///
    /// # Errors
    /// Returns an error if settings contradict each other or are out of range.
    pub fn new(make: M, config: Config) -> Result<Server<M>> {
        config.check()?;
        let (make, shared) = (Arc::new(make), Arc::new(Shared::new(config)));
        Ok(Server { make, shared, listeners: Vec::new(), listener_setups: Vec::new() })
    }

    fn workers(&self) -> usize {
        self.shared.workers()
    }

    /// Listens on another address, without TLS.
    ///
    /// # Errors
    /// Returns an error if the address is malformed, the system refuses it, or the settings turn off every protocol
    /// without TLS.
    pub fn listen(self, address: &str) -> Result<Server<M>> {
        self.listen_with(address, Listen::new())
    }

    /// Listens on another address, for TLS only; see [`Listen::tls`].
    ///
    /// # Errors
    /// Returns an error if the address is malformed, the system refuses it, the TLS configuration is wrong, or the
    /// settings do not allow TLS.
    #[cfg(feature = "tls")]
    pub fn listen_tls(self, address: &str, config: crate::tls::TlsConfig) -> Result<Server<M>> {
        self.listen_with(address, Listen::new().tls(config))
    }

    /// Listens on another address with options, such as TLS, TLS and plain HTTP on one port, or the PROXY protocol.
    ///
    /// # Errors
    /// Returns an error if the address is malformed, the system refuses it, or the options are wrong.
    pub fn listen_with(mut self, address: &str, listen: Listen) -> Result<Server<M>> {
        let address = Address::parse(address)?;
        self.check(&address, &listen)?;
        let listener_setup = listen.listener_setup(self.shared.config())?;
        // `0.0.0.0` and `[::]` with one port are the two families. Alone, `[::]` takes both.
        let other = |listener: &Listener| match (&address, listener.address()) {
            (Address::Tcp(one), Address::Tcp(other)) => {
                is_all(one) && is_all(other) && one.port() == other.port() && one.port() != 0
            }
            _ => false,
        };
        let place = self.listeners.iter().position(other);
        if let Some(place) = place.filter(|_| !highwire_io::listen::has_v6()) {
            let all = self.listeners[place].address();
            tracing::info!("{address} is left out: the system has no IPv6, and {all} takes all clients of IPv4");
            return Ok(self);
        }
        let takes_both = |&place: &usize| self.listeners[place].takes_both() && !self.listeners[place].is_inherited();
        if let Some(place) = place.filter(takes_both) {
            let both = self.listeners.remove(place).address().clone();
            self.listeners.insert(place, self.bind(&both, true)?);
        }
        let is_taken =
            |error: &Error| matches!(error, Error::System(error) if error.kind() == std::io::ErrorKind::AddrInUse);
        let bound = self.bind(&address, place.is_some());
        let listener = bound.map_err(|error| match self.overlaps(&address).filter(|_| is_taken(&error)) {
            None => error,
            Some(own) if own.to_string() == address.to_string() => {
                Error::Setting(format!("cannot listen on {address}: the address is given twice"))
            }
            Some(own) => Error::Setting(format!(
                "cannot listen on {address}: this server listens on {own} already, and one of them includes the other; \
                 leave out the narrower one"
            )),
        })?;
        self.listener_setups.push(listener_setup);
        self.listeners.push(listener);
        Ok(self)
    }

    /// Returns the address of our own listener that has the port of another address, and the same IP address or one that
    /// includes it.
    fn overlaps(&self, address: &Address) -> Option<&Address> {
        // `[::]` may take both families.
        let includes = |one: &SocketAddr, other: &SocketAddr| is_all(one) && (one.is_ipv6() || other.is_ipv4());
        let overlaps = |other: &&Address| match (address, other) {
            (Address::Tcp(one), Address::Tcp(other)) => {
                one.port() == other.port() && (one == other || includes(one, other) || includes(other, one))
            }
            _ => address == *other,
        };
        self.listeners.iter().map(Listener::address).find(overlaps)
    }

    fn check(&self, address: &Address, listen: &Listen) -> Result<()> {
        if self.shared.config().engine == Engine::Threads && !listen.is_plain() {
            let problem = "the engine `threads` supports neither TLS nor the PROXY protocol; choose another engine";
            return Err(Error::Setting(format!("cannot listen on {address}: {problem}")));
        }
        Ok(())
    }

    /// Binds an address, of IPv6 only if `only_v6` is true.
    fn bind(&self, address: &Address, only_v6: bool) -> Result<Listener> {
        let config = self.shared.config();
        let several = self.workers() > 1 && config.balance == Balance::ReusePort && config.engine != Engine::Threads;
        let mut options = config.socket.clone();
        options.only_v6 |= only_v6;
        // Our workers share the port, but another program must not share it by accident. Therefore the first bind is
        // exclusive, and fails if another program listens. A port that the system chooses is free, and is bound only
        // once, because another program could take it between two binds.
        options.reuse_port |= several && matches!(address, Address::Tcp(socket) if socket.port() == 0);
        let mut listener = Listener::bind(address, &options)?;
        if several && !options.reuse_port && matches!(address, Address::Tcp(_)) {
            let bound = listener.address().clone();
            drop(listener);
            options.reuse_port = true;
            listener = Listener::bind(&bound, &options)?;
        }
        Ok(listener)
    }

    /// Listens on an existing socket, without TLS.
    ///
    /// # Errors
    /// Returns an error if the settings turn off every protocol without TLS.
    pub fn listen_on(self, listener: Listener) -> Result<Server<M>> {
        self.listen_on_with(listener, Listen::new())
    }

    /// Listens on an existing socket with options, such as TLS.
    ///
    /// # Errors
    /// Returns an error if the options are wrong.
    pub fn listen_on_with(mut self, listener: Listener, listen: Listen) -> Result<Server<M>> {
        self.check(listener.address(), &listen)?;
        self.listener_setups.push(listen.listener_setup(self.shared.config())?);
        self.listeners.push(listener);
        Ok(self)
    }

    /// Returns the addresses of the listeners, with the port that the system has chosen for each port 0.
    pub fn addresses(&self) -> Vec<String> {
        self.listeners.iter().map(|listener| listener.address().to_string()).collect()
    }

    /// Runs until SIGTERM, SIGINT or SIGQUIT has stopped the server. The first signal begins a graceful shutdown; the second
    /// cuts all connections. SIGHUP loads changed certificates and keys, which also happens without it; SIGUSR1 and SIGUSR2
    /// only write a line to the log. Installs handlers for SIGTERM and SIGINT, and for each of the others that the program
    /// does not handle itself.
    ///
    /// # Errors
    /// Returns an error if a worker cannot start, or fails.
    pub fn run(self) -> Result<()> {
        self.run_with_stats().map(|report| tracing::info!(%report, "stopped"))
    }

    /// Runs as [`run`](Self::run) does, and returns the final counts.
    ///
    /// # Errors
    /// Returns an error if a worker cannot start, or fails.
    #[doc(alias = "run_and_report")]
    pub fn run_with_stats(self) -> Result<Stats> {
        self.run_with(drop)
    }

    /// Runs as [`run`](Self::run) does, passes the server's handle to `with_handle` when the server has started, and returns
    /// the final counts. The server also stops by [`Handle::shutdown`]. The handlers for signals stay
    /// installed.
    ///
    /// # Errors
    /// Returns an error if a worker cannot start, or fails.
    pub fn run_with(self, with_handle: impl FnOnce(Handle)) -> Result<Stats> {
        let notifier = Notifier::new()?;
        // The count includes signals that stopped earlier servers of this process.
        let signals = || [Signal::Stop, Signal::Reload, Signal::User].map(highwire_io::signal::count);
        let before = signals();
        highwire_io::signal::install(notifier)?;
        let handle = match self.make.on_start() {
            None => self.start()?,
            Some(_) => self.start_unless(move || signals()[Signal::Stop as usize] > before[Signal::Stop as usize])?,
        };
        with_handle(handle.without_threads());
        let mut seen = [0; 3];
        let mut watch = Watch::default();
        loop {
            let all = signals();
            let now: [u32; 3] = std::array::from_fn(|at| all[at] - before[at]);
            let is_new = |signal: Signal| now[signal as usize] > seen[signal as usize];
            if is_new(Signal::Stop) {
                if seen[Signal::Stop as usize] == 0 {
                    let most = handle.shared.config().timeouts.shutdown;
                    tracing::info!(
                        ?most,
                        "a signal asks to stop (SIGINT, SIGTERM or SIGQUIT): the listeners close, and requests in progress end"
                    );
                    handle.shutdown();
                }
                if now[Signal::Stop as usize] > 1 {
                    tracing::info!("another signal asks to stop: all connections are cut");
                    handle.abort();
                }
            }
            if is_new(Signal::Reload) {
                tracing::info!(
                    "SIGHUP: certificates and keys that have changed are loaded for the next TLS connection; nothing else is read again"
                );
                handle.shared.looked.store(0, Ordering::Relaxed);
            }
            if is_new(Signal::User) {
                tracing::info!("SIGUSR1 and SIGUSR2 have no meaning yet");
            }
            seen = now;
            if handle.is_finished() {
                return handle.join();
            }
            watch.look_and_sleep(&handle);
        }
    }

    /// Starts the server, whose function for the start may take long. It is dropped, and the server shuts down, if `is_stopped`
    /// returns true meanwhile.
    fn start_unless(self, is_stopped: impl Fn() -> bool + Send + 'static) -> Result<Handle> {
        let (shared, has_started) = (self.shared.clone(), Arc::new(AtomicBool::new(false)));
        let ends = has_started.clone();
        spawn("highwire-signals".to_string(), move || {
            while !ends.load(Ordering::Acquire) {
                if is_stopped() {
                    shared.draining.store(true, Ordering::Release);
                }
                std::thread::sleep(WATCH);
            }
            Ok(())
        })?;
        let started = self.start();
        has_started.store(true, Ordering::Release);
        started
    }

    /// Starts the server in threads of its own, without signal handlers. It runs until [`Handle::shutdown`].
    ///
    /// # Errors
    /// Returns an error if the server has no listener, or a worker cannot start.
    pub fn start(self) -> Result<Handle> {
        if self.listeners.is_empty() {
            return Err(Error::Setting("the server has no address to listen on".to_string()));
        }
        // The table is enlarged before the server's threads exist, because the kernel does that without a delay in a
        // process with one thread.
        highwire_io::memory::reserve_descriptors(self.shared.most_connections.saturating_add(RESERVED_DESCRIPTORS));
        self.start_all()
    }

    /// Starts the server in threads of its own. It needs no listener, because this process passes requests to it with
    /// [`Handle::call`].
    ///
    /// # Errors
    /// Returns an error if a worker cannot start, or the engine is `threads`.
    #[cfg(feature = "call")]
    pub fn start_inside(self) -> Result<Handle> {
        if self.shared.config().engine == Engine::Threads {
            return Err(Error::Setting(
                "the engine `threads` serves connections only, not requests that the program itself passes to the server; \
                 choose another engine".to_string(),
            ));
        }
        self.start_all()
    }

    fn start_all(self) -> Result<Handle> {
        let addresses = self.addresses();
        let (shared, count) = (self.shared.clone(), self.workers());
        let make = self.make.clone();
        let describe: Arc<Describe> = Arc::new(move |route| {
            let (name, is_async) = make.describe(route);
            (name.to_string(), is_async)
        });
        let mut handle = Handle { describe, shared, addresses, remotes: Vec::new(), threads: Vec::new() };
        let started = match self.shared.config().engine {
            Engine::Threads => self.start_threads(&mut handle),
            engine => Runtime::choose(engine).and_then(|engine| self.start_workers(&mut handle, count, engine)),
        };
        if let Err(error) = started {
            handle.abort();
            let _ = handle.join();
            return Err(error);
        }
        Ok(handle)
    }

    /// Serves on threads of its own, until the future's signal for a shutdown
    /// ([`with_graceful_shutdown`](Serve::with_graceful_shutdown)). The future is for a program on an executor, such as one with
    /// `#[tokio::main]`. Installs no signal handlers.
    pub fn serve(self) -> Serve<M> {
        let shared = self.shared.clone();
        Serve::new(self, shared)
    }

    /// Starts the server, passes its handle to `with_handle`, and waits until the server has stopped, for example by
    /// [`Handle::shutdown`]. Installs no signal handlers.
    ///
    /// # Errors
    /// Returns an error if a worker cannot start, or fails.
    pub fn serve_with(self, with_handle: impl FnOnce(Handle)) -> Result<()> {
        let handle = self.start()?;
        with_handle(handle.without_threads());
        join(handle.threads)
    }

    /// Creates a worker with the caller's driver, for hosts with a loop of their own and for the simulator.
    ///
    /// # Errors
    /// Returns an error if the worker cannot start.
    pub fn into_worker<D: Driver>(self, driver: D) -> Result<Worker<D, M::Service>> {
        let tokio = Tokio::background(&self.shared);
        let mut worker = Worker::new(&*self.make, self.shared, driver, tokio)?;
        worker.listen(self.listeners, self.listener_setups)?;
        Ok(worker)
    }

    /// Creates a worker with a driver that has a listener of its own, as the simulator has. `listen` has the options of
    /// that listener.
    ///
    /// # Errors
    /// Returns an error if the TLS configuration is wrong, the worker cannot start, or the server has other listeners.
    pub fn into_worker_with<D: Driver>(mut self, driver: D, listen: Listen) -> Result<Worker<D, M::Service>> {
        if !self.listeners.is_empty() {
            let problem =
                "the server must not have listeners of its own, because its driver has one; use `into_worker`";
            return Err(Error::Setting(problem.to_string()));
        }
        self.listener_setups.push(listen.listener_setup(self.shared.config())?);
        self.into_worker(driver)
    }

    fn start_workers(self, handle: &mut Handle, count: usize, engine: Engine) -> Result<()> {
        let handoff = self.shared.config().balance == Balance::Handoff;
        let mut shares: Vec<Vec<Listener>> = (0..count).map(|_| Vec::new()).collect();
        let mut for_acceptor = Vec::new();
        for listener in self.listeners {
            if handoff {
                for_acceptor.push(listener);
                continue;
            }
            for share in &mut shares[1..] {
                share.push(another(self.shared.config(), &listener)?);
            }
            // The first worker gets the listener itself, so that only workers keep handles of it. The socket closes
            // with its last handle. If it is a Unix socket, dropping the original listener removes its file.
            shares[0].push(listener);
        }
        let cpus = highwire_io::affinity::cpus();
        let pin = self.shared.config().pin;
        for (number, share) in shares.into_iter().enumerate() {
            let cpu = pin.then(|| cpus[number % cpus.len()]);
            let (service, shared, listener_setups) =
                (self.make.clone(), self.shared.clone(), self.listener_setups.clone());
            let (tell, told) = mpsc::channel();
            let run = move || {
                let _running = Running::new(&shared);
                let mut has_started = true;
                if let Some(cpu) = cpu
                    && let Err(error) = highwire_io::affinity::pin(cpu)
                {
                    tracing::warn!(%error, cpu, "cannot pin a worker to its CPU");
                }
                let worker = Runtime::new(engine).and_then(|runtime| {
                    let tokio = Tokio::own(&shared)?;
                    let mut worker = Worker::new(&*service, shared.clone(), runtime, tokio)?;
                    if number == 0
                        && let Some(hook) = service.on_start()
                    {
                        match worker.block_on(at_start(hook, shared.clone()))? {
                            Some(done) => done.map_err(Error::Service)?,
                            None => has_started = false,
                        }
                    }
                    worker.listen(share, listener_setups)?;
                    Ok(worker)
                });
                match worker {
                    Ok(worker) => {
                        if tell.send(Ok(worker.remote())).is_ok() {
                            let on_stop = (number == 0 && has_started).then(|| service.on_stop()).flatten();
                            return worker.run_to_the_end(on_stop);
                        }
                        Ok(())
                    }
                    Err(error) => {
                        // `start_workers` waits for this message, unless it has failed already.
                        let _ = tell.send(Err(error));
                        Ok(())
                    }
                }
            };
            handle.threads.push(spawn(format!("highwire-{number}"), run)?);
            let remote =
                told.recv().map_err(|_| Error::Setting("a worker panicked while it started".to_string()))??;
            handle.remotes.push(remote);
        }
        if handoff {
            let acceptor = Acceptor::new(self.shared, handle.remotes.clone());
            handle.threads.push(spawn("highwire-accept".to_string(), move || {
                acceptor.hand_out(&for_acceptor);
                Ok(())
            })?);
        }
        Ok(())
    }

    fn start_threads(self, handle: &mut Handle) -> Result<()> {
        if self.make.on_start().is_some() || self.make.on_stop().is_some() {
            let problem =
                "the engine `threads` has no worker for functions at the server's start or stop; choose another engine";
            return Err(Error::Setting(problem.to_string()));
        }
        let (make, shared, listeners) = (self.make, self.shared, self.listeners);
        handle.threads.push(spawn("highwire-accept".to_string(), move || {
            blocking::accept_for_threads(&make, &shared, &listeners)
        })?);
        Ok(())
    }
}

/// Counts a worker's thread while it lives.
struct Running<'s>(&'s Shared);

impl Running<'_> {
    fn new(shared: &Shared) -> Running<'_> {
        shared.running.fetch_add(1, Ordering::AcqRel);
        Running(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns true for an address that stands for all addresses of its family.
fn is_all(address: &SocketAddr) -> bool {
    address.ip().is_unspecified()
}

/// Creates a listener for another worker. It has its own queue on the port if possible; otherwise it shares the first
/// listener's queue.
fn another(config: &Config, listener: &Listener) -> Result<Listener> {
    match listener.address() {
        address @ Address::Tcp(_) if config.balance == Balance::ReusePort => {
            let only_v6 = !listener.takes_both();
            let options = highwire_io::Options { reuse_port: true, only_v6, ..config.socket.clone() };
            // The bind fails, for example, if an inherited socket was bound without SO_REUSEPORT. The workers then
            // share its queue.
            Ok(Listener::bind(address, &options).or_else(|_| listener.duplicate())?)
        }
        _ => Ok(listener.duplicate()?),
    }
}

fn spawn(name: String, run: impl FnOnce() -> Result<()> + Send + 'static) -> Result<JoinHandle<Result<()>>> {
    Ok(std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run)?)
}

fn join(threads: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    let mut first = Ok(());
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(Error::Setting("a server thread panicked".to_string())));
        first = first.and(ended);
    }
    first
}

/// A function that returns the name of a route, and true if its handler is async.
type Describe = dyn Fn(u32) -> (String, bool) + Send + Sync;

/// A running server.
pub struct Handle {
    describe: Arc<Describe>,
    shared: Arc<Shared>,
    addresses: Vec<String>,
    remotes: Vec<Arc<Remote>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Handle {
    /// Returns a handle of the same server that owns no threads.
    pub(crate) fn without_threads(&self) -> Handle {
        let Handle { describe, shared, addresses, remotes, .. } = self;
        Handle {
            describe: describe.clone(),
            shared: shared.clone(),
            addresses: addresses.clone(),
            remotes: remotes.clone(),
            threads: Vec::new(),
        }
    }

    /// Returns the addresses of the listeners.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the counts so far.
    #[doc(alias = "report")]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.shared)
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.connection_count()
    }

    /// Begins a graceful shutdown: stops accepting, lets pending requests finish, and cuts the remaining ones at the
    /// shutdown deadline.
    #[doc(alias = "stop")]
    pub fn shutdown(&self) {
        self.shared.draining.store(true, Ordering::Release);
        self.remotes.iter().for_each(|remote| remote.notifier.notify());
    }

    /// Stops the server without waiting for pending requests. Cuts all connections and requests.
    pub fn abort(&self) {
        self.shared.aborting.store(true, Ordering::Release);
        self.shutdown();
    }

    /// Gives a request of this process to the worker that has the fewest such requests. The answer is 503 if all
    /// workers together have too many of them, or if the workers have ended.
    #[cfg(feature = "call")]
    pub fn call(
        &self,
        request: http::request::Parts,
        body: Option<crate::call::RequestBody>,
    ) -> crate::call::ResponseFuture {
        let (answerer, future) = crate::call::answer();
        let job = crate::call::Job { request, body, answerer };
        let count = |remote: &Arc<Remote>| remote.inbox.count();
        let in_all = self.remotes.iter().map(count).sum::<usize>();
        if in_all < self.shared.most_connections
            && let Some(remote) = self.remotes.iter().min_by_key(|remote| count(remote))
        {
            remote.inbox.leave(job);
            remote.notifier.notify();
        }
        future
    }

    /// Returns true if every thread of the server has ended. The handles that [`Server::serve_with`] and
    /// [`Server::run_with`] pass on own no threads, so it always returns true there.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the server has stopped, and returns the final counts. The handles that [`Server::serve_with`] and
    /// [`Server::run_with`] pass on own no threads, so it does not wait.
    ///
    /// # Errors
    /// Returns an error if a thread of the server has failed or panicked.
    #[doc(alias = "wait")]
    pub fn join(self) -> Result<Stats> {
        join(self.threads)?;
        Ok(Stats::of(&self.shared))
    }
}

/// Watches the workers for handlers that hold a worker, and the process for memory that can be returned to the system.
#[derive(Default)]
pub(crate) struct Watch {
    /// The beat of each worker at the last check, and the number of checks in a row that found the same beat.
    last: Vec<(u64, u32)>,
    trimming: Trimming,
}

impl Watch {
    /// Looks, and waits until it is time for the next look.
    pub(crate) fn look_and_sleep(&mut self, handle: &Handle) {
        self.look(handle);
        // A shorter `stall` needs more frequent checks; zero turns its warning off.
        let stall = handle.shared.config().timeouts.stall;
        std::thread::sleep(if stall.is_zero() { WATCH } else { stall.clamp(Duration::from_millis(10), WATCH) });
    }

    fn look(&mut self, handle: &Handle) {
        self.trimming.check(&handle.shared.budget, handle.shared.connection_count());
        let stall = handle.shared.config().timeouts.stall;
        if stall.is_zero() {
            return;
        }
        let looks = (stall.as_millis() / WATCH.as_millis()).max(1) as u32;
        self.last.resize(handle.remotes.len(), (0, 0));
        for (remote, (last, same)) in handle.remotes.iter().zip(&mut self.last) {
            let beat = remote.beat.load(Ordering::Relaxed);
            let route = beat as u32;
            if beat != *last || route == 0 {
                (*last, *same) = (beat, 0);
                continue;
            }
            *same += 1;
            if *same == looks {
                let (route, is_async) = (handle.describe)(route - 1);
                tracing::warn!(route, "{}", problem(is_async));
            }
        }
    }
}

/// Returns the text of the warning about a handler that holds its worker.
fn problem(is_async: bool) -> &'static str {
    match is_async {
        true => "one poll of an async handler holds its worker; move blocking and computing code to `spawn_blocking`",
        false => "a plain handler holds its worker; make it async or blocking",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_a_worker_is_told_what_to_do() {
        assert!(problem(true).starts_with("one poll of an async handler holds its worker; move"));
        assert!(problem(false).starts_with("a plain handler holds its worker; make it async"));
    }

    #[test]
    fn workers_do_not_wait_for_an_acceptor_that_was_not_started_or_panicked() {
        let shared = Arc::new(Shared::new(Config::default()));
        let acceptors = || shared.acceptors.load(Ordering::Acquire);
        for (stack_bytes, starts) in [(STACK_BYTES, true), (usize::MAX / 2, false)] {
            let acceptor = Acceptor::new(shared.clone(), Vec::new());
            assert_eq!(acceptors(), 1);
            let started = std::thread::Builder::new().stack_size(stack_bytes).spawn(move || {
                let _acceptor = acceptor;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert_eq!(started.map(|thread| thread.join().is_err()).ok(), starts.then_some(true));
            assert_eq!(acceptors(), 0);
        }
    }
}
