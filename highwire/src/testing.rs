//! A test client for an app: requests within the process, without sockets, in virtual time.
//!
//! ```
//! use highwire::testing::Client;
//! use highwire::{App, Path};
//!
//! let app = App::new().get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"));
//! let mut client = Client::new(app)?;
//! let answer = client.get("/users/7").send();
//! assert_eq!((answer.status().as_u16(), answer.text()), (200, "user 7"));
//! assert_eq!(client.get("/users/x").send().status(), 404);
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! [`Client::new`] sends plain HTTP; `Client::https` (feature `self-signed`) sends HTTPS.
//!
//! The whole server runs on a simulated network, from the parser to the timeouts. Each request opens a new connection. Its
//! handlers cannot reach real servers: connections are refused. A [`client::Client::to`] another app can be their client;
//! that app runs in real time.
//! Timers of handlers ([`time::sleep`](crate::time::sleep)) do not wait in real time, because the clock jumps to the
//! next timer when nothing else is left to do. Work on other threads, such as that of [`blocking`](crate::blocking)
//! handlers, takes real time.

mod cookies;
#[doc(hidden)]
pub mod fuzz;
mod multipart;
mod websocket;
mod wire;

use crate::app::dispatch::AppFactory;
use crate::client::{self, blocking};
use crate::server::{Listen, Server, Worker};
use crate::{App, HeaderMap, HeaderName, HeaderValue, Method, Result, StatusCode};
use bytes::Bytes;
use highwire_engine::Hook;
use highwire_io::sim::{Arrived, Faults, Network, Simulated};
use highwire_proto::{Event, Head, Length, Limits, Role, Version, h1};
use std::cell::{Cell, RefCell};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;
pub use websocket::TestWebSocket;
use wire::{Wire, Wires};

/// The real time that a request may take. If the server has not responded then and is idle, the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The real time that other threads get before the clock jumps to the next timer.
const PAUSE: Duration = Duration::from_millis(1);

/// A test client of one app.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, StatusCode, time};
/// use std::time::Duration;
///
/// let app = App::new().post("/nap", async |seconds: String| {
///     time::sleep(Duration::from_secs(seconds.parse().unwrap_or_default())).await;
///     StatusCode::NO_CONTENT
/// });
/// let mut client = Client::new(app)?;
/// // The 30 seconds pass in virtual time only.
/// assert_eq!(client.post("/nap").header("x-bed", "soft").body("30").send().status(), 204);
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// The same test can run against a server elsewhere: [`Client::connect`] in place of [`Client::new`].
pub struct Client {
    way: Way,
    #[cfg(feature = "cookie-jar")]
    jar: Option<client::CookieJar>,
}

/// The way to the server.
enum Way {
    Simulated(Box<Simulation>),
    Real(blocking::Client),
}

/// The app on a simulated network.
struct Simulation {
    network: Network,
    worker: Worker<Simulated>,
    wires: Wires,
    /// True if the clock goes with the real one while a response is awaited.
    is_real_paced: bool,
}

/// The address of the client.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Starts the app on a simulated network, and runs its functions of [`App::on_start`]. Requests use plain HTTP.
    ///
    /// # Errors
    /// Returns an error if the app's routes or settings are wrong, or that of a function of `on_start`.
    pub fn new(app: App) -> Result<Client> {
        Client::start(app, Listen::new(), Wires::clear())
    }

    fn start(app: App, listen: Listen, wires: Wires) -> Result<Client> {
        let network = Network::new(1, Faults::default());
        network.set_peers(PEER);
        let (app, config) = app.build()?;
        let hook = app.hooks.start();
        let server = Server::new(AppFactory::new(app), config)?;
        let worker = server.into_worker_with(Simulated::new(network.clone())?, listen)?;
        let mut simulation = Simulation { network, worker, wires, is_real_paced: false };
        if let Some(hook) = hook {
            simulation.run(hook)?;
        }
        Ok(Client::of(Way::Simulated(Box::new(simulation))))
    }

    fn of(way: Way) -> Client {
        Client {
            way,
            #[cfg(feature = "cookie-jar")]
            jar: None,
        }
    }

    /// Lets the virtual clock go with the real one while a response is awaited. Otherwise it jumps to the next timer as soon as
    /// nothing else happens, unless `blocking` handlers or `spawn_blocking` work. Use it for handlers that wait for what the
    /// server does not know: a database, another server, a thread of the program. Without it their time limits pass at once.
    ///
    /// # Panics
    /// Panics if the server is elsewhere.
    pub fn at_real_pace(mut self) -> Client {
        self.simulation().is_real_paced = true;
        self
    }

    /// Sends the requests to a real server at this URL, such as `http://127.0.0.1:8080`, to use tests of an app as a smoke
    /// test: time is real, connections are used again, HTTPS needs a certificate that the system trusts, and requests are
    /// sent again as by [`client::Client`] if their connection is lost. The path of a request replaces that of the URL.
    /// Redirects are not followed and bodies not decoded, as by the other constructors. [`advance`](Self::advance) and
    /// [`RequestBuilder::open`] need an app in this process.
    ///
    /// ```no_run
    /// # fn app() -> highwire::App {
    /// #     highwire::App::new()
    /// # }
    /// use highwire::testing::Client;
    ///
    /// let mut client = match std::env::var("SERVER") {
    ///     Ok(url) => Client::connect(&url)?,
    ///     Err(_) => Client::new(app())?,
    /// };
    /// # let _ = client.get("/");
    /// # Ok::<(), highwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the URL is invalid, or if an event loop cannot start.
    pub fn connect(url: &str) -> Result<Client> {
        let builder = client::Client::builder().base_url(url).redirects(client::Redirects::none());
        #[cfg(feature = "compress")]
        let builder = builder.without_decompression();
        let real = builder.build().and_then(blocking::Client::of);
        Ok(Client::of(Way::Real(real.map_err(|error| crate::Error::Setting(error.to_string()))?)))
    }

    fn simulation(&mut self) -> &mut Simulation {
        match &mut self.way {
            Way::Simulated(simulation) => simulation,
            Way::Real(_) => panic!("this needs an app in this process, because another server's time is real"),
        }
    }

    /// Begins a GET request. `path` may include a query.
    pub fn get(&mut self, path: &str) -> RequestBuilder<'_> {
        self.request(Method::GET, path)
    }

    /// Begins a POST request. `path` may include a query.
    pub fn post(&mut self, path: &str) -> RequestBuilder<'_> {
        self.request(Method::POST, path)
    }

    /// Begins a PUT request. `path` may include a query.
    pub fn put(&mut self, path: &str) -> RequestBuilder<'_> {
        self.request(Method::PUT, path)
    }

    /// Begins a DELETE request. `path` may include a query.
    pub fn delete(&mut self, path: &str) -> RequestBuilder<'_> {
        self.request(Method::DELETE, path)
    }

    /// Begins a request with any method. `target` is the target of the request line, such as `/path?query`; with
    /// [`connect`](Self::connect), a path or a URL.
    pub fn request(&mut self, method: Method, target: &str) -> RequestBuilder<'_> {
        let target = target.to_string();
        RequestBuilder { client: self, method, target, fields: Vec::new(), body: Bytes::new() }
    }

    /// Advances the virtual clock, and runs the timers and timeouts that become due.
    ///
    /// # Panics
    /// Panics if the server is elsewhere.
    pub fn advance(&mut self, by: Duration) {
        let simulation = self.simulation();
        let end = simulation.network.now() + by;
        loop {
            simulation.settle();
            match simulation.worker.next_timer().filter(|timer| *timer < end) {
                Some(timer) => simulation.network.advance_to(timer),
                None => break,
            }
        }
        simulation.network.advance_to(end);
        simulation.settle();
    }
}

impl Simulation {
    /// Runs the server until it has nothing left to do at this moment.
    fn settle(&mut self) {
        loop {
            self.turn();
            if self.worker.driver().is_idle() {
                return;
            }
        }
    }

    /// Runs a hook of the app to its end, as a task of the worker. Time goes with the real one, because hooks wait for what the simulation
    /// does not know, such as a database.
    fn run(&mut self, hook: Hook) -> Result<()> {
        self.is_real_paced = true;
        let done = Rc::new(Cell::new(None));
        let told = done.clone();
        self.worker.block_on(async {
            highwire_engine::context::spawn(async move { told.set(Some(hook.await)) });
        })?;
        let ended = self.run_until("the end of `on_start`", |simulation| {
            simulation.turn();
            (false, done.take())
        });
        self.is_real_paced = false;
        ended.map_err(crate::Error::Service)
    }

    /// Runs the server until `step` has a result. `step` also says if there was anything to send or to receive. If nothing is left to do,
    /// other threads get a little real time, and then the clock jumps to the next timer.
    fn run_until<T>(&mut self, awaited: &str, mut step: impl FnMut(&mut Simulation) -> (bool, Option<T>)) -> T {
        let begun = std::time::Instant::now();
        loop {
            let (any, result) = step(self);
            if let Some(result) = result {
                self.settle();
                return result;
            }
            if any || !self.worker.driver().is_idle() {
                continue;
            }
            assert!(begun.elapsed() < PATIENCE, "the server did not come to {awaited} in time");
            let paused = std::time::Instant::now();
            std::thread::sleep(PAUSE);
            // What has ended before this turn has woken its task.
            let is_paced = self.is_real_paced || self.worker.is_blocking();
            self.turn();
            if !self.worker.driver().is_idle() {
                continue;
            }
            if is_paced {
                // A real wait must not make time limits pass.
                self.network.advance(paused.elapsed());
            } else if let Some(timer) = self.worker.next_timer() {
                self.network.advance_to(timer);
            }
        }
    }

    fn turn(&mut self) {
        let now = self.network.now();
        self.worker.turn(Some(now)).expect("the simulated driver does not fail");
    }
}

/// A builder of a request. [`send`](Self::send) sends the request.
#[derive(Debug)]
#[must_use = "it is sent by `send`"]
#[doc(alias = "Call")]
pub struct RequestBuilder<'c> {
    client: &'c mut Client,
    method: Method,
    target: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl<'c> RequestBuilder<'c> {
    /// Adds a header field.
    ///
    /// # Panics
    /// Panics if the name or the value is not valid in a header field.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a valid field name");
        self.fields.push((name, HeaderValue::from_bytes(value.as_ref()).expect("a valid field value")));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to a value as JSON, and `Content-Type` to `application/json`.
    ///
    /// # Panics
    /// Panics if the value cannot be serialized as JSON.
    #[cfg(feature = "json")]
    pub fn json(self, value: &impl serde::Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("a value that can be serialized as JSON");
        self.header("content-type", "application/json").body(body)
    }

    /// Sets the body to a form, and `Content-Type` to `application/x-www-form-urlencoded`.
    ///
    /// # Panics
    /// Panics if the value cannot be serialized as a form.
    #[cfg(feature = "json")]
    pub fn form(self, value: &impl serde::Serialize) -> Self {
        let body = serde_urlencoded::to_string(value).expect("a value that can be serialized as a form");
        self.header("content-type", "application/x-www-form-urlencoded").body(body)
    }

    /// Sends the request and waits for the response.
    ///
    /// # Panics
    /// Panics if the request cannot be written as HTTP, if the server cuts the connection or cannot be reached, or if it
    /// does not answer within 20 seconds of real time.
    pub fn send(self) -> TestResponse {
        let request = self.with_cookies();
        let cookies = request.cookies();
        let answer = if let Way::Real(real) = &request.client.way {
            send(real, request.method, &request.target, request.fields, request.body)
        } else {
            let (client, mut open) = request.begin();
            open.complete(client);
            open.answer
        };
        cookies.keep(&answer);
        answer
    }

    /// Sends the request and returns its response while it is received, to test endless streams.
    ///
    /// ```
    /// use highwire::sse::LastEventId;
    /// use highwire::testing::Client;
    /// use highwire::topics::{Start, Topics};
    /// use highwire::{App, State};
    ///
    /// let topics = Topics::new();
    /// let app = App::new().state(topics.clone()).get("/news", |State(topics): State<Topics>, last: LastEventId| {
    ///     topics.events("news", Start::Next, last).ok()
    /// });
    /// let mut client = Client::new(app)?;
    /// let mut events = client.get("/news").open();
    /// assert_eq!(events.received(&mut client).status(), 200);
    /// topics.publish("news", "hello").expect("a valid name");
    /// assert!(events.received(&mut client).text().starts_with("data: hello\nid: "));
    /// # Ok::<(), highwire::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the request cannot be written as HTTP, or if the server is elsewhere.
    pub fn open(self) -> OpenResponse {
        self.with_cookies().begin().1
    }

    /// Writes the request and connects.
    fn begin(self) -> (&'c mut Simulation, OpenResponse) {
        let RequestBuilder { client, method, target, fields, body } = self;
        let client = client.simulation();
        let mut http = h1::Connection::new(Role::Client);
        let mut said = Vec::new();
        let upgrade = method == Method::CONNECT || fields.iter().any(|(name, _)| name == http::header::UPGRADE);
        let host = fields.iter().find(|(name, _)| name == http::header::HOST).map(|(_, value)| value);
        let length = if body.is_empty() { Length::Empty } else { Length::Exact(body.len() as u64) };
        let (method, version) = (method.as_str(), Version::Http11);
        let request = h1::Request { method, target: &target, version, length, keep_alive: upgrade, upgrade };
        let sent = http.send_request(request, &mut said, |writer| {
            if host.is_none() {
                writer.field(b"Host", b"test");
            }
            fields.iter().for_each(|(name, value)| writer.field(name.as_str().as_bytes(), value.as_bytes()));
        });
        sent.expect("a request that can be written");
        let sent = if body.is_empty() { Ok(()) } else { http.send_data(&body, &mut said) };
        sent.and_then(|()| http.send_end(&mut said, |_| {})).expect("a valid body");
        let mut wire = client.wires.wire(host.map_or(b"test", HeaderValue::as_bytes));
        let mut out = Vec::new();
        wire.send(&said, &mut out);
        let link = Link { connection: client.network.connect(), wire, out, window: Vec::new() };
        let (head, answer) = (Head::default(), TestResponse::default());
        (client, OpenResponse { link, http, head, answer, is_complete: false })
    }
}

/// The client's end of a connection to the app. When it is dropped, the client disconnects.
struct Link {
    connection: highwire_io::sim::Client,
    wire: Wire,
    /// The bytes that wait to be sent.
    out: Vec<u8>,
    /// The bytes that were received and not parsed yet.
    window: Vec<u8>,
}

impl Link {
    /// Sends and receives what is possible in one turn. Returns true if there was anything, and how the server has ended the connection,
    /// if it has.
    fn step(&mut self, client: &mut Simulation) -> (bool, Option<Arrived>) {
        let sent = self.connection.send(&self.out);
        self.out.drain(..sent);
        client.turn();
        let mut any = sent > 0;
        while let Some(arrived) = self.connection.receive(usize::MAX) {
            any = true;
            match arrived {
                Arrived::Bytes(bytes) => self.wire.receive(&bytes, &mut self.window, &mut self.out),
                end => return (true, Some(end)),
            }
        }
        (any, None)
    }
}

/// A response that is being received, from [`RequestBuilder::open`]. When it is dropped, the client disconnects.
pub struct OpenResponse {
    link: Link,
    http: h1::Connection,
    head: Head,
    answer: TestResponse,
    is_complete: bool,
}

impl std::fmt::Debug for OpenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenResponse").field("answer", &self.answer).finish_non_exhaustive()
    }
}

impl OpenResponse {
    /// Runs the server until it has nothing left to do at this moment, and returns what has been received so far. Use
    /// [`Client::advance`] to let time pass.
    ///
    /// # Panics
    /// Panics if the server cuts the connection or sends invalid HTTP.
    pub fn received(&mut self, client: &mut Client) -> &TestResponse {
        let client = client.simulation();
        while !self.is_complete && (self.step(client) || !client.worker.driver().is_idle()) {}
        &self.answer
    }

    /// Runs the server until the response is complete.
    fn complete(&mut self, client: &mut Simulation) {
        client.run_until("a response", |client| {
            let any = self.step(client);
            (any, self.is_complete.then_some(()))
        });
    }

    /// Returns true if the response is complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Sends and receives what is possible in one turn. Returns true if there was anything.
    fn step(&mut self, client: &mut Simulation) -> bool {
        let (any, end) = self.link.step(client);
        match end {
            Some(Arrived::Reset) => panic!("the server cut the connection: {:?}", self.answer),
            Some(_) => {
                let may_end = self.link.wire.may_end();
                let ended = self.read() || may_end && self.http.receive_end(&self.link.window).is_ok();
                assert!(ended, "the answer was cut short: {:?}", self.answer);
                self.is_complete = true;
            }
            None => self.is_complete = any && self.read(),
        }
        any
    }

    /// Parses the received bytes. Returns true if the response is complete.
    fn read(&mut self) -> bool {
        let mut at = 0;
        let whole = loop {
            let window = &self.link.window[at..];
            let received =
                self.http.receive(window, &mut self.head, &Limits::default()).expect("the server sends valid HTTP");
            at += received.consumed;
            match received.event {
                Event::Head(length) => {
                    self.answer.status = status(self.head.status);
                    self.answer.fields = map(&self.head, window);
                    if length == Length::Empty {
                        break true;
                    }
                }
                Event::Interim => self.answer.interim.push((status(self.head.status), map(&self.head, window))),
                Event::Data(data) => self.answer.body.extend_from_slice(data),
                Event::End { trailers } => {
                    if trailers {
                        self.answer.trailers = map(&self.head, window);
                    }
                    break true;
                }
                Event::Folded => unreachable!("the server sends no folded lines"),
                Event::NeedMore | Event::Paused | Event::Closed => break false,
            }
        };
        self.link.window.drain(..at);
        whole
    }
}

/// Sends a request to a real server.
fn send(
    real: &blocking::Client,
    method: Method,
    target: &str,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> TestResponse {
    let interim = Rc::new(RefCell::new(Vec::new()));
    let noted = interim.clone();
    let mut request = real.request(method, target).timeout(PATIENCE).body(body).on_interim(move |status, fields| {
        noted.borrow_mut().push((status, fields.iter().cloned().collect()));
    });
    for (name, value) in fields {
        request = request.header(name, value);
    }
    let mut response = request.send().unwrap_or_else(|error| panic!("the server did not answer: {error}"));
    let mut body = Vec::new();
    response.read_to_end(&mut body).unwrap_or_else(|error| panic!("the answer was cut short: {error}"));
    TestResponse {
        status: response.status(),
        fields: response.headers().clone(),
        body,
        trailers: response.trailers().into_iter().collect(),
        interim: interim.take(),
    }
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or_default()
}

fn map(head: &Head, window: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for field in &head.fields {
        let (name, value) = (field.name.of(window), field.value.of(window));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}

/// The response to a request of a [`Client`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "Answer")]
pub struct TestResponse {
    status: StatusCode,
    fields: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
    interim: Vec<(StatusCode, HeaderMap)>,
}

impl TestResponse {
    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns all header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.fields
    }

    /// Returns the value of the first header field of that name, or `""` if there is no such field or its value is not
    /// printable ASCII.
    pub fn header(&self, name: &str) -> &str {
        self.fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the body.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as text.
    ///
    /// # Panics
    /// Panics if the body is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    /// Panics if the body is not JSON or does not fit the type.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).expect("JSON that fits the type")
    }

    /// Returns the trailers.
    pub fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }

    /// Returns the interim (1xx) responses that preceded this one, each with its header fields.
    pub fn interim(&self) -> &[(StatusCode, HeaderMap)] {
        &self.interim
    }
}
