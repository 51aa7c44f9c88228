//! The other implementation: the crate `h2` in either role. The tests poll its futures themselves.

use crate::oracle::{CLIENTS_CODE, Pipe, Plan, Random, Reset, SERVERS_CODE};
use crate::oracle::{body, plan_of, told_end, told_head, told_reset};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, Uri};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The events that their side saw, by plan.
pub(crate) type Seen = Rc<RefCell<BTreeMap<usize, Vec<String>>>>;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The settings of their side, and a later change of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) window: u32,
    connection_window: u32,
    table_bytes: u32,
    streams: u32,
    /// The turn from which on their side tries to announce another initial window, and that window.
    later: Option<(usize, u32)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { window: 65_535, connection_window: 65_535, table_bytes: 4096, streams: 100, later: None }
    }
}

impl Settings {
    pub(crate) fn random(random: &mut Random) -> Settings {
        let window = random.of(&[1, 70, 3_000, 65_535, 1 << 20]);
        let later = (random.below(2) == 0).then(|| (random.below(200), window * random.of(&[1, 2, 5]) + 1));
        Settings {
            window,
            connection_window: random.of(&[65_535, 1 << 20]),
            table_bytes: random.of(&[0, 64, 4096, 65_536]),
            streams: random.of(&[1, 7, 100]),
            later,
        }
    }
}

fn header_map(fields: &[(String, String)]) -> HeaderMap {
    let field = |(name, value): &(String, String)| {
        (name.parse::<http::HeaderName>().expect("a name"), value.parse::<http::HeaderValue>().expect("a value"))
    };
    let mut map = HeaderMap::new();
    fields.iter().map(field).for_each(|(name, value)| _ = map.append(name, value));
    map
}

/// Returns the fields of a map, grouped by name.
fn lines(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter().map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect()
}

fn trailers() -> HeaderMap {
    header_map(&[("x-t".to_owned(), "v".to_owned())])
}

/// Sends a body as the windows allow, and ends it if `ends` is true.
async fn send(
    stream: &mut SendStream<Bytes>,
    plan: &Plan,
    bytes: usize,
    ends: bool,
    with_trailers: bool,
) -> Result<(), h2::Error> {
    let mut sent = 0;
    while sent < bytes {
        stream.reserve_capacity((bytes - sent).min(10_000));
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await;
        let Some(capacity) = capacity else { return Ok(()) };
        let now = capacity?.min(bytes - sent);
        let is_last = ends && !with_trailers && sent + now == bytes;
        stream.send_data(body(plan, sent, now).into(), is_last)?;
        sent += now;
    }
    match (ends, with_trailers) {
        (true, true) => stream.send_trailers(trailers()),
        (true, false) if bytes == 0 => stream.send_data(Bytes::new(), true),
        _ => Ok(()),
    }
}

/// Reads a body until it ends or is reset, and returns its end in words.
async fn hear(stream: &mut RecvStream, plan: &Plan) -> String {
    let mut received = 0;
    while let Some(data) = stream.data().await {
        match data {
            Ok(data) => {
                assert_eq!(data, body(plan, received, data.len()), "a body");
                received += data.len();
                let _ = stream.flow_control().release_capacity(data.len());
            }
            Err(error) => return told(&error),
        }
    }
    match stream.trailers().await {
        Ok(None) => told_end(received, false),
        Ok(Some(map)) => {
            assert_eq!(map, trailers());
            told_end(received, true)
        }
        Err(error) => told(&error),
    }
}

fn told(error: &h2::Error) -> String {
    match error.reason() {
        Some(reason) if error.is_reset() => told_reset(reason.into()),
        Some(reason) if error.is_go_away() => format!("failed: went away {reason:?}"),
        _ => format!("failed: {error}"),
    }
}

fn poll_all(tasks: &mut Vec<Task>) {
    let mut context = Context::from_waker(Waker::noop());
    tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
}

/// Polls a future until it is ready. It must wait for nothing but the pipe, which always takes bytes.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

pub(crate) struct TheirClient {
    connection: h2::client::Connection<Pipe, Bytes>,
    requests: SendRequest<Bytes>,
    tasks: Vec<Task>,
    settings: Settings,
    turns: usize,
    is_over: bool,
    pub(crate) seen: Seen,
}

impl TheirClient {
    pub(crate) fn new(plans: &[Plan], settings: Settings, pipe: &Pipe) -> TheirClient {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(settings.window)
            .initial_connection_window_size(settings.connection_window)
            .header_table_size(settings.table_bytes)
            // The client begins no stream until our SETTINGS have announced how many we allow, because we refuse more.
            .initial_max_send_streams(0)
            .enable_push(false);
        let (requests, connection) = at_once(builder.handshake(pipe.clone())).expect("the handshake succeeds");
        let (tasks, seen) = (Vec::new(), Seen::default());
        let mut client = TheirClient { connection, requests, tasks, settings, turns: 0, is_over: false, seen };
        plans.iter().for_each(|plan| client.ask(plan));
        client
    }

    pub(crate) fn ask(&mut self, plan: &Plan) {
        self.tasks.push(Box::pin(ask(self.requests.clone(), plan.clone(), self.seen.clone())));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        if let Some((at, window)) = self.settings.later
            && self.turns >= at
            // Returns an error until the first settings are acknowledged.
            && self.connection.set_initial_window_size(window).is_ok()
        {
            self.settings.later = None;
        }
        poll_all(&mut self.tasks);
        if !self.is_over {
            let polled = Pin::new(&mut self.connection).poll(&mut Context::from_waker(Waker::noop()));
            self.is_over = polled.is_ready();
        }
    }
}

async fn ask(requests: SendRequest<Bytes>, plan: Plan, seen: Seen) {
    let seen = |words: String| seen.borrow_mut().entry(plan.at).or_default().push(words);
    let mut requests = match requests.ready().await {
        Ok(requests) => requests,
        Err(error) => return seen(told(&error)),
    };
    poll_fn(|_| match plan.protocol.is_none() || requests.is_extended_connect_protocol_enabled() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
    let uri = Uri::builder().authority(plan.authority());
    let uri = match plan.path().as_str() {
        "" => uri,
        path => uri.scheme("https").path_and_query(path),
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(plan.method.as_bytes()).expect("a method");
    *request.uri_mut() = uri.build().expect("a target");
    *request.headers_mut() = header_map(&plan.fields);
    if plan.announced && plan.body > 0 {
        request.headers_mut().insert("content-length", plan.body.into());
    }
    if let Some(protocol) = plan.protocol {
        request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
    }
    let (mut answer, mut stream) = match requests.send_request(request, plan.asks_with_a_head()) {
        Ok(sent) => sent,
        Err(error) => return seen(told(&error)),
    };
    let cancels = plan.reset == Reset::Client;
    if !plan.asks_with_a_head() && !plan.is_tunnel() {
        let bytes = if cancels { plan.body / 2 } else { plan.body };
        let sent = send(&mut stream, &plan, bytes, !cancels, plan.trailers).await;
        sent.expect("a body may be sent");
    }
    let answer = match head_of(&mut answer, &seen).await {
        Ok(answer) => answer,
        Err(error) => return seen(told(&error)),
    };
    seen(told_head(answer.status().as_str(), &lines(answer.headers())));
    if cancels {
        return stream.send_reset(CLIENTS_CODE.into());
    }
    if plan.is_tunnel() {
        send(&mut stream, &plan, plan.body, true, false).await.expect("a tunnel is open");
    }
    let end = hear(&mut answer.into_body(), &plan).await;
    seen(end);
}

/// Returns the final response, and records the interim ones before it.
async fn head_of(answer: &mut ResponseFuture, seen: &impl Fn(String)) -> Result<Response<RecvStream>, h2::Error> {
    poll_fn(|context| {
        while let Poll::Ready(Some(interim)) = answer.poll_informational(context) {
            assert_eq!(interim?.status(), 103);
            seen("interim".into());
        }
        Pin::new(&mut *answer).poll(context)
    })
    .await
}

pub(crate) struct TheirServer {
    handshake: Option<h2::server::Handshake<Pipe, Bytes>>,
    connection: Option<h2::server::Connection<Pipe, Bytes>>,
    plans: Rc<Vec<Plan>>,
    tasks: Vec<Task>,
    settings: Settings,
    turns: usize,
    is_over: bool,
    pub(crate) seen: Seen,
}

impl TheirServer {
    pub(crate) fn new(plans: &[Plan], settings: Settings, pipe: &Pipe) -> TheirServer {
        let mut builder = h2::server::Builder::new();
        builder
            .initial_window_size(settings.window)
            .initial_connection_window_size(settings.connection_window)
            .header_table_size(settings.table_bytes)
            .max_concurrent_streams(settings.streams)
            .enable_connect_protocol();
        TheirServer {
            handshake: Some(builder.handshake(pipe.clone())),
            connection: None,
            plans: Rc::new(plans.to_vec()),
            tasks: Vec::new(),
            settings,
            turns: 0,
            is_over: false,
            seen: Seen::default(),
        }
    }

    pub(crate) fn connection(&mut self) -> &mut h2::server::Connection<Pipe, Bytes> {
        self.connection.as_mut().expect("the handshake is complete")
    }

    pub(crate) fn is_done(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(crate) fn turn(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(handshake) = &mut self.handshake
            && let Poll::Ready(connection) = Pin::new(handshake).poll(&mut context)
        {
            (self.handshake, self.connection) = (None, Some(connection.expect("the handshake succeeds")));
        }
        poll_all(&mut self.tasks);
        let Some(connection) = self.connection.as_mut().filter(|_| !self.is_over) else { return };
        self.turns += 1;
        if let Some((at, window)) = self.settings.later
            && self.turns >= at
            && connection.set_initial_window_size(window).is_ok()
        {
            self.settings.later = None;
        }
        while let Poll::Ready(accepted) = connection.poll_accept(&mut context) {
            let Some(Ok((request, respond))) = accepted else {
                self.is_over = true;
                break;
            };
            self.tasks.push(Box::pin(serve(request, respond, self.plans.clone(), self.seen.clone())));
        }
    }
}

async fn serve(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, plans: Rc<Vec<Plan>>, seen: Seen) {
    let (parts, mut received) = request.into_parts();
    let authority = parts.uri.authority().expect("an authority").as_str();
    let plan = plan_of(&plans, authority);
    let seen = |words: String| seen.borrow_mut().entry(plan.at).or_default().push(words);
    let path = if parts.uri.scheme().is_some() { parts.uri.path() } else { "" };
    let protocol = parts.extensions.get::<h2::ext::Protocol>().map_or("", |protocol| protocol.as_str());
    seen(told_head(&format!("{} {path} {authority} {protocol}", parts.method), &lines(&parts.headers)));
    if plan.is_tunnel() || plan.reset == Reset::Client {
        answer(&mut respond, &mut received, plan, &seen).await;
    } else {
        let end = hear(&mut received, plan).await;
        seen(end);
        answer(&mut respond, &mut received, plan, &seen).await;
    }
}

async fn answer(respond: &mut SendResponse<Bytes>, received: &mut RecvStream, plan: &Plan, seen: &impl Fn(String)) {
    for _ in 0..plan.interims {
        let interim = Response::builder().status(103).body(()).expect("a response");
        respond.send_informational(interim).expect("not yet answered");
    }
    let mut response = Response::new(());
    *response.status_mut() = plan.status.try_into().expect("a status");
    *response.headers_mut() = header_map(&plan.answer_fields);
    if plan.announced && plan.answer > 0 {
        response.headers_mut().insert("content-length", plan.answer.into());
    }
    let mut stream = respond.send_response(response, plan.answers_with_a_head()).expect("an answer is due");
    if plan.answers_with_a_head() {
        return;
    }
    let (ends, bytes) = match plan.reset {
        Reset::Nobody => (true, plan.answer),
        _ => (false, plan.answer / 2),
    };
    let sent = send(&mut stream, plan, bytes, ends, plan.answer_trailers).await;
    match plan.reset {
        Reset::Nobody => sent.expect("a body may be sent"),
        Reset::Server => return stream.send_reset(SERVERS_CODE.into()),
        // The reset may arrive before the whole body is sent.
        Reset::Client => {}
    }
    if plan.is_tunnel() || plan.reset == Reset::Client {
        let end = hear(received, plan).await;
        seen(end);
    }
}
