//! The server: settings, listeners, workers. Most of it is from the crate `highwire-engine`.

#[doc(inline)]
pub use crate::app::dispatch::{AppFactory, Dispatcher};

/// The settings that [`App::configure`](crate::App::configure) changes.
///
/// ```
/// use highwire::App;
/// use highwire::server::Engine;
/// use std::time::Duration;
///
/// let server = App::new()
///     .get("/", || "hello")
///     .configure(|config| {
///         config.engine = Engine::Readiness;
///         config.workers = 2;
///         config.timeouts.idle = Duration::from_secs(20);
///         config.limits.body_bytes = 64 * 1024;
///         config.memory = Some(256 << 20);
///     })
///     .server()?;
/// # let _ = server;
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Config;

/// The options of a listener, for [`Server::listen_with`]. To redirect plain HTTP to HTTPS, use
/// [`App::https`](crate::App::https).
///
/// ```
/// use highwire::{App, server::Listen, tls::TlsConfig};
///
/// let tls = TlsConfig::new().self_signed(["localhost"]);
/// let server = App::new()
///     .get("/", || "hello")
///     .server()?
///     // Behind a load balancer that forwards TLS and sends the client's address by the PROXY protocol.
///     .listen_with("127.0.0.1:0", Listen::new().tls(tls).proxy_protocol())?;
/// // server.run()
/// # let _ = server;
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Listen;

/// A listening socket, for [`Server::listen_on`]: one that a service manager has passed ([`Listener::inherited`]).
#[doc(inline)]
pub use highwire_io::Listener;

/// The options of sockets, in [`Config::socket`].
#[doc(inline)]
pub use highwire_io::Options as SocketOptions;

/// The number of a connection on its worker ([`Request::connection`](crate::Request::connection)).
#[doc(inline)]
pub use highwire_io::SocketId;

/// The limits of HTTP/2, in [`Config::http2`].
#[doc(inline)]
pub use highwire_proto::h2::Bounds as Http2Bounds;

/// The events for which a [`Worker`] watches a descriptor of the program.
#[doc(inline)]
pub use highwire_io::Interest;

/// The limits on heads, fields and chunks, in [`Config::parser`].
#[doc(inline)]
pub use highwire_proto::Limits as ParserLimits;

/// The driver of an event loop, for a [`Worker`] in a loop of the program.
///
/// ```
/// use highwire::App;
/// use highwire::server::{Engine, Runtime};
///
/// let server = App::new().get("/", || "hello").listen("127.0.0.1:0")?;
/// let mut worker = server.into_worker(Runtime::new(Engine::Auto)?)?;
/// // Wait until this is readable, then call `turn_ready`, and so on.
/// let descriptor = worker.descriptor()?;
/// let has_ended = worker.turn_ready()?;
/// # let _ = descriptor;
/// # assert!(!has_ended);
/// # Ok::<(), highwire::Error>(())
/// ```
#[doc(inline)]
pub use highwire_engine::Runtime;

pub use highwire_engine::{
    Balance, Driver, Engine, Handle, Limits, Serve, Stats, Timeouts, raise_descriptor_limit, share_heap,
};

/// A server: add listeners to it, then run or start it.
///
/// ```
/// use highwire::App;
/// use std::io::{Read, Write};
///
/// let handle = App::new().get("/", || "hello").listen("127.0.0.1:0")?.start()?;
/// let mut stream = std::net::TcpStream::connect(&handle.addresses()[0])?;
/// stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("\r\n\r\nhello"));
/// handle.shutdown();
/// println!("{}", handle.join()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Server = highwire_engine::Server<AppFactory>;

/// A worker with any driver, for programs with an event loop of their own and for the simulator.
pub type Worker<D> = highwire_engine::Worker<D, Dispatcher>;
