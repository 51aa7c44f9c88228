//! Our side of the tests against another implementation, in either role.

use crate::oracle::{CLIENTS_CODE, Pipe, Plan, Reset, SERVERS_CODE};
use crate::oracle::{body, plan_of, told_end, told_head, told_reset};
use highwire_proto::h2::{Bounds, Code, Connection, Event, Failure, Lent, Request, StreamRef};
use highwire_proto::{Head, Length, Limits, Role};
use std::collections::BTreeMap;

/// A stream, as our side sees it.
#[derive(Debug)]
struct Exchange {
    stream: StreamRef,
    plan: Plan,
    received: usize,
    /// The number of bytes of our body that have been sent; `None` if the body has not begun or is over.
    sent: Option<usize>,
    is_over: bool,
}

pub(crate) struct Ours {
    role: Role,
    pub(crate) connection: Connection,
    head: Head,
    fields: Vec<u8>,
    limits: Limits,
    out: Vec<u8>,
    window: Vec<u8>,
    pipe: Pipe,
    plans: Vec<Plan>,
    exchanges: BTreeMap<u32, Exchange>,
    /// The events that our side saw, by plan.
    pub(crate) seen: BTreeMap<usize, Vec<String>>,
    pub(crate) failure: Option<Failure>,
    /// Requests that are not sent yet, the next one last.
    pub(crate) waiting: Vec<Plan>,
    pub(crate) going_away: usize,
    /// True if the peer's settings have arrived. Requests wait for them, because the crate `h2` ends the connection if
    /// trailers arrive on a stream that it has refused.
    knows_settings: bool,
}

impl Ours {
    pub(crate) fn new(role: Role, bounds: Bounds, plans: &[Plan], pipe: &Pipe) -> Ours {
        let (limits, mut out) = (Limits::default(), Vec::new());
        let mut waiting = plans.to_vec();
        waiting.reverse();
        Ours {
            role,
            connection: Connection::new(role, bounds, &limits, &mut out),
            head: Head::default(),
            fields: Vec::new(),
            limits,
            out,
            window: Vec::new(),
            pipe: pipe.clone(),
            plans: plans.to_vec(),
            exchanges: BTreeMap::new(),
            seen: BTreeMap::new(),
            failure: None,
            waiting: if role == Role::Client { waiting } else { Vec::new() },
            going_away: 0,
            knows_settings: false,
        }
    }

    /// Reads a piece of the received bytes, and sends as much as the peer allows. Returns true if bytes were read or
    /// sent.
    pub(crate) fn turn(&mut self) -> bool {
        let came = self.pipe.take();
        self.receive(&came);
        while self.knows_settings
            && let Some(plan) = self.waiting.pop()
        {
            if !self.ask(&plan) {
                self.waiting.push(plan);
                break;
            }
        }
        let streams: Vec<u32> = self.exchanges.keys().copied().collect();
        streams.into_iter().for_each(|number| self.send(number));
        let said = !self.out.is_empty();
        self.pipe.0.borrow_mut().to_theirs.extend(self.out.drain(..));
        said || !came.is_empty()
    }

    /// Returns true if no stream is in progress.
    pub(crate) fn is_done(&self) -> bool {
        self.connection.open_streams() == 0
    }

    pub(crate) fn go_away(&mut self) {
        self.connection.go_away(&mut self.out);
    }

    /// Describes the unfinished requests, for failure messages.
    pub(crate) fn told(&self) -> String {
        let open: Vec<_> = self.connection.streams().filter_map(|stream| self.exchanges.get(&stream.number)).collect();
        format!("{} requests wait; open streams: {open:#?}; events: {:#?}", self.waiting.len(), self.seen)
    }

    fn ask(&mut self, plan: &Plan) -> bool {
        let (authority, path) = (plan.authority(), plan.path());
        let request = Request {
            method: plan.method,
            scheme: "https",
            authority: &authority,
            path: &path,
            protocol: plan.protocol,
            ends: plan.asks_with_a_head(),
        };
        let sent = self.connection.send_request(request, &mut self.out, |writer| {
            plan.fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
            if plan.announced && plan.body > 0 {
                writer.number(b"content-length", plan.body as u64);
            }
        });
        let Ok(stream) = sent else { return false };
        let sent = (!plan.asks_with_a_head() && !plan.is_tunnel()).then_some(0);
        let exchange = Exchange { stream, plan: plan.clone(), received: 0, sent, is_over: false };
        self.exchanges.insert(stream.number, exchange);
        true
    }

    fn answer(&mut self, stream: StreamRef) {
        let Ours { connection, out, exchanges, .. } = self;
        let Some(exchange) = exchanges.get_mut(&stream.number) else { return };
        let plan = &exchange.plan;
        for _ in 0..plan.interims {
            connection.send_interim(stream, 103, out, |_| {}).expect("not yet answered");
        }
        let length = match (plan.answers_with_a_head(), plan.announced && plan.answer > 0) {
            (true, _) => Length::Empty,
            (false, true) => Length::Exact(plan.answer as u64),
            (false, false) => Length::Unknown,
        };
        let answer = connection.send_response(stream, plan.status, length, out, |writer| {
            plan.answer_fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
            if let Length::Exact(length) = length {
                writer.number(b"content-length", length);
            }
        });
        answer.expect("an answer is due");
        exchange.sent = (length != Length::Empty).then_some(0);
    }

    /// Sends as much of a body as the windows allow.
    fn send(&mut self, number: u32) {
        let Ours { connection, out, exchanges, role, .. } = self;
        let Some(exchange) = exchanges.get_mut(&number) else { return };
        let (stream, plan) = (exchange.stream, &exchange.plan);
        let Some(sent) = exchange.sent.filter(|_| connection.is_open(stream)) else { return };
        let (bytes, trailers, resetting) = match role {
            Role::Client => (plan.body, plan.trailers, Reset::Client),
            Role::Server => (plan.answer, plan.answer_trailers, Reset::Server),
        };
        // A body that the planned reset cuts off is not ended.
        let ends = plan.reset == Reset::Nobody || (plan.reset == Reset::Server && *role == Role::Client);
        let bytes = if ends { bytes } else { bytes / 2 };
        let part = body(plan, sent, bytes - sent);
        let now = connection.send_data(stream, &part, ends && !trailers, out).expect("a body may be sent");
        exchange.sent = Some(sent + now);
        if sent + now < bytes {
            return;
        }
        if ends {
            if trailers {
                connection.send_trailers(stream, out, |fields| fields.field(b"x-t", b"v")).expect("the body is over");
            }
            exchange.sent = None;
        } else if plan.reset == resetting && *role == Role::Server {
            connection.reset(stream, Code::Internal, out);
            exchange.sent = None;
        }
    }

    fn receive(&mut self, came: &[u8]) {
        self.window.extend_from_slice(came);
        let window = std::mem::take(&mut self.window);
        let mut at = 0;
        while self.failure.is_none() {
            let Ours { head, fields, out, limits, .. } = self;
            let mut lent = Lent { head, fields, out, limits };
            match self.connection.receive(&window[at..], &mut lent) {
                Err(failure) => self.failure = Some(failure),
                Ok(received) => {
                    at += received.consumed;
                    if received.event == Event::NeedMore {
                        break;
                    }
                    self.act(received.event);
                }
            }
        }
        self.window = window[at..].to_vec();
    }

    fn saw(&mut self, stream: StreamRef, words: String) {
        let plan = self.exchanges[&stream.number].plan.at;
        self.seen.entry(plan).or_default().push(words);
    }

    fn act(&mut self, event: Event<'_>) {
        match event {
            Event::Head(stream, length) => self.head_came(stream, length),
            Event::Interim(stream) => self.saw(stream, "interim".into()),
            Event::Refused(stream, error) => panic!("{error:?} on {stream:?}"),
            Event::Data(stream, data) => {
                let exchange = self.exchanges.get_mut(&stream.number).expect("a stream that began");
                assert_eq!(data, body(&exchange.plan, exchange.received, data.len()), "a body");
                exchange.received += data.len();
                self.connection.used(stream, data.len(), &mut self.out);
            }
            Event::End(stream, trailers) => {
                if trailers {
                    assert_eq!(self.head.field(&self.fields, b"x-t"), Some(&b"v"[..]));
                }
                self.ended(stream, trailers);
            }
            Event::Reset(stream, code) => self.saw(stream, told_reset(code as u32)),
            Event::GoingAway => self.going_away += 1,
            Event::AllOpened => self.knows_settings = true,
            Event::NeedMore | Event::Opened(_) => {}
        }
    }

    fn head_came(&mut self, stream: StreamRef, length: Length) {
        let text = |span: highwire_proto::Span| String::from_utf8_lossy(span.of(&self.fields)).into_owned();
        let lines = self.head.fields.iter().map(|field| (text(field.name), text(field.value)));
        let lines: Vec<(String, String)> = lines.collect();
        let start = match self.role {
            Role::Client => self.head.status.to_string(),
            Role::Server => {
                let (method, path) = (text(self.head.method_span), text(self.head.target.path));
                let (authority, protocol) = (text(self.head.target.authority), text(self.head.protocol));
                let plan = plan_of(&self.plans, &authority).clone();
                let exchange = Exchange { stream, plan, received: 0, sent: None, is_over: false };
                assert!(self.exchanges.insert(stream.number, exchange).is_none(), "a stream begins once");
                format!("{method} {path} {authority} {protocol}")
            }
        };
        self.saw(stream, told_head(&start, &lines));
        let plan = &self.exchanges[&stream.number].plan;
        match self.role {
            Role::Client if plan.reset == Reset::Client => {
                assert_eq!(Code::Cancel as u32, CLIENTS_CODE);
                return self.connection.reset(stream, Code::Cancel, &mut self.out);
            }
            Role::Client if plan.is_tunnel() => {
                assert!(self.connection.is_tunnel(stream));
                self.exchanges.get_mut(&stream.number).expect("the stream began").sent = Some(0);
            }
            Role::Client => {}
            Role::Server if plan.is_tunnel() || plan.reset == Reset::Client => self.answer(stream),
            Role::Server => {}
        }
        if length == Length::Empty {
            self.ended(stream, false);
        }
    }

    /// Handles the end of the other side's direction.
    fn ended(&mut self, stream: StreamRef, trailers: bool) {
        let exchange = self.exchanges.get_mut(&stream.number).expect("a stream that began");
        assert!(!std::mem::replace(&mut exchange.is_over, true), "a stream ends once");
        let (received, tunnel) = (exchange.received, exchange.plan.is_tunnel());
        self.saw(stream, told_end(received, trailers));
        if self.role == Role::Server && !tunnel {
            assert_eq!(Code::Internal as u32, SERVERS_CODE);
            self.answer(stream);
        }
    }
}
