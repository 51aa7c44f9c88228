//! One thread that generates load: its event loop, its connections, and when they send.

use super::exchange::{Exchange, Shared, Times};
use super::gate::{Arrival, Gate};
use super::links::MOST_WAIT;
use super::live::{DRAW, Snapshots};
use super::plan::Schedule;
use super::record::{Fault, Record, note, note_many};
use super::target::Http;
use super::watch::Cpu;
use highwire_engine::tls::{Client, ClientConfig, ServerName, Session};
use highwire_io::signal::{self, Signal};
use highwire_io::{Completion, Driver, Instant, Op, Queue, Sink, SocketId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a worker looks for late responses and for the end, and tells its counts.
const TICK: Duration = Duration::from_millis(20);

/// How long a worker waits after the end for responses to requests that it has sent.
const DRAIN: Duration = Duration::from_secs(1);

/// A run ends after this time if all connections have failed and none has ever had a response.
const HOPE: Duration = Duration::from_secs(1);

/// The bytes of a turn's requests after which the others wait for the next turn.
const MOST_OUTPUT: usize = 1 << 20;

/// The unsent requests that are recorded one by one at the end.
const MOST_UNSENT: u64 = 5_000_000;

/// A request of at least this size is sent without a copy.
const SHARED_BYTES: usize = 16 * 1024;

/// The most connections that a worker opens at a time, which fits into the backlog of most servers.
const OPENING: usize = 128;

/// What a worker does.
#[derive(Debug)]
pub(super) struct Job {
    /// The number of this worker.
    pub(super) number: usize,
    pub(super) http: Http,
    pub(super) connections: usize,
    /// The most requests of a connection without a response.
    pub(super) depth: usize,
    /// False if each request has a connection of its own.
    pub(super) keeps_alive: bool,
    /// The length of the run; `None` if only the number of requests ends it.
    pub(super) length: Option<Duration>,
    /// The number of requests of this worker.
    pub(super) requests: u64,
    /// The intended times of an open loop; `None` for a closed one.
    pub(super) schedule: Option<Schedule>,
    pub(super) timeout: Duration,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// What the workers share with the thread that waits for them.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) responses: AtomicU64,
    pub(super) errors: AtomicU64,
    /// The connections that were open when the run began.
    pub(super) connected: AtomicUsize,
    /// True from the first request on.
    pub(super) begun: AtomicBool,
    /// Workers begin together, when their connections are open.
    pub(super) gate: Gate,
    /// True if the run shall end early.
    pub(super) stop: AtomicBool,
    /// What the live view shows, if there is one.
    pub(super) snapshots: Option<Snapshots>,
    /// The workers that have ended.
    pub(super) ended: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No connection. In a run without keep-alive, it waits for a request, otherwise for a time to connect.
    Closed,
    Connecting,
    Handshaking,
    Open,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: State,
    pub(super) socket: SocketId,
    pub(super) session: Option<Box<Session<Client>>>,
    pub(super) exchange: Exchange,
    /// True while the server does not take our bytes.
    pub(super) is_blocked: bool,
    /// True if the link is in `Worker::ready`.
    pub(super) is_ready: bool,
    /// When the attempt to connect began.
    pub(super) since: Instant,
    /// When the connection was open, without TLS.
    pub(super) tls_since: Instant,
    /// The request for which a connection of its own is being opened.
    pub(super) pending: Option<Instant>,
    /// The failures since the last response.
    pub(super) failures: u32,
    /// True if the connection has had a whole response.
    pub(super) has_answered: bool,
    /// True from a failure until it is time to connect again.
    pub(super) rests: bool,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) job: Job,
    pub(super) shared: Shared,
    pub(super) live: Arc<Live>,
    pub(super) links: Vec<Link>,
    /// The links by their sockets' slots.
    pub(super) by_slot: Vec<u32>,
    /// Links that can take a request of an open loop.
    pub(super) ready: VecDeque<u32>,
    /// True if a link was ready before the completions of this turn.
    pub(super) had_ready: bool,
    /// Links to connect, with the times.
    pub(super) attempts: VecDeque<(Instant, u32)>,
    pub(super) opening: usize,
    /// The next intended time of an open loop.
    pub(super) due: Option<Instant>,
    pub(super) start: Instant,
    /// The CPU time of this thread at the start.
    pub(super) cpu: Option<Cpu>,
    pub(super) runs: bool,
    pub(super) told: (u64, u64),
    /// The last tick at which there was another response, and the responses then.
    pub(super) answered: (Instant, u64),
    pub(super) plain: Vec<u8>,
    pub(super) scratch: Vec<u8>,
}

pub(super) const NOWHERE: SocketId = SocketId { index: u32::MAX, generation: 0 };

impl Worker {
    pub(super) fn new(job: Job, shared: Shared, live: Arc<Live>) -> Worker {
        let depth = job.depth;
        let link = |_| Link {
            state: State::Closed,
            socket: NOWHERE,
            session: None,
            exchange: Exchange::new(job.http, &shared, depth),
            is_blocked: false,
            is_ready: false,
            since: Instant::default(),
            tls_since: Instant::default(),
            pending: None,
            failures: 0,
            has_answered: false,
            rests: false,
        };
        let links = (0..job.connections).map(link).collect();
        Worker {
            links,
            shared,
            live,
            by_slot: Vec::new(),
            ready: VecDeque::new(),
            had_ready: false,
            attempts: VecDeque::new(),
            opening: 0,
            due: None,
            start: Instant::default(),
            cpu: None,
            runs: false,
            told: (0, 0),
            answered: (Instant::default(), 0),
            plain: Vec::new(),
            scratch: Vec::new(),
            job,
        }
    }

    /// What the worker shares with the thread that waits for it.
    pub(super) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }

    /// Runs to the end. Returns what was measured.
    ///
    /// # Errors
    /// Returns the error of a driver that cannot go on.
    pub(super) fn run(mut self, mut driver: impl Driver, arrival: Arrival<'_>) -> io::Result<Record> {
        let mut queue = Queue::new();
        driver.turn(Some(Instant::default()), &mut queue, &mut self)?;
        if self.job.keeps_alive {
            self.attempts = (0..self.links.len()).map(|link| (self.shared.now, link as u32)).collect();
            let patience = self.shared.now + self.job.timeout;
            while self.shared.now < patience
                && !self.is_stopped()
                && self.links.iter().any(|link| link.state != State::Open && link.failures == 0)
            {
                self.connect_some(&mut queue);
                driver.turn(Some(self.shared.now + TICK), &mut queue, &mut self)?;
            }
            self.look_for_late(&mut queue);
            let open = self.links.iter().filter(|link| link.state == State::Open).count();
            self.live.connected.fetch_add(open, Ordering::Relaxed);
        }
        arrival.wait();
        if self.job.keeps_alive && self.live.connected.load(Ordering::Relaxed) == 0 {
            return Ok(self.shared.record);
        }
        driver.turn(Some(Instant::default()), &mut queue, &mut self)?;
        self.begin_run(&mut queue);
        let (mut tick, mut publication) = (self.start, self.start);
        while self.runs {
            driver.turn(Some(self.wake_time(tick)), &mut queue, &mut self)?;
            self.send_due(&mut queue);
            self.connect_some(&mut queue);
            if self.shared.now >= tick {
                tick = self.shared.now + TICK;
                self.look_for_late(&mut queue);
                self.tell();
                if tick >= publication {
                    publication = tick + DRAW / 2;
                    self.publish();
                }
            }
            self.look_for_end();
        }
        self.drain(&mut driver, &mut queue)?;
        Ok(self.shared.record)
    }

    fn begin_run(&mut self, queue: &mut Queue) {
        self.start = self.shared.now;
        self.cpu = Cpu::of_this_thread();
        self.answered = (self.start, 0);
        self.live.begun.store(true, Ordering::Relaxed);
        self.shared.end = self.job.length.map(|length| self.start + length);
        self.runs = true;
        self.next_due();
        for link in 0..self.links.len() {
            self.has_room(link, queue);
        }
    }

    fn wake_time(&self, tick: Instant) -> Instant {
        let has_ready = !self.ready.is_empty() && self.wants_request();
        if self.job.schedule.is_none() && has_ready {
            return self.shared.now;
        }
        let retry = self.attempts.front().filter(|_| self.opening < self.most_opening()).map(|(at, _)| *at);
        let due = self.due.filter(|_| has_ready);
        [Some(tick), self.shared.end, retry, due].into_iter().flatten().min().unwrap_or(tick)
    }

    fn next_due(&mut self) {
        let next = self.job.schedule.as_mut().and_then(Schedule::next_time);
        self.due = next.map(|seconds| self.start + Duration::from_secs_f64(seconds));
    }

    /// The most connections that are opened at a time. Requests that wait for their connections are copied when these are open, so
    /// large ones wait in small groups.
    pub(super) fn most_opening(&self) -> usize {
        OPENING.min((64 << 20) / self.shared.request.len().max(1)).max(1)
    }

    /// True if another request may be sent, as far as the plan is concerned.
    fn wants_request(&self) -> bool {
        self.runs && self.shared.record.requests < self.job.requests
    }

    /// Lets a link send what it can: in a closed loop at once, in an open one when a request is due.
    pub(super) fn has_room(&mut self, index: usize, queue: &mut Queue) {
        if self.job.schedule.is_none() && queue.output.len() < MOST_OUTPUT {
            return self.fill(index, queue);
        }
        if !self.links[index].is_ready && self.room(index) > 0 {
            self.links[index].is_ready = true;
            self.ready.push_back(index as u32);
        }
    }

    fn room(&self, index: usize) -> usize {
        let link = &self.links[index];
        match link.state {
            State::Open if self.job.keeps_alive && !link.is_blocked => link.exchange.room(self.job.depth),
            State::Closed if !self.job.keeps_alive && !link.rests && link.pending.is_none() => 1,
            _ => 0,
        }
    }

    /// Sends the requests of an open loop that are due, and those of a closed one that were too much for a turn.
    fn send_due(&mut self, queue: &mut Queue) {
        while queue.output.len() < MOST_OUTPUT
            && self.wants_request()
            && (self.job.schedule.is_none() || self.due.is_some_and(|due| due <= self.shared.now))
            && let Some(link) = self.ready.pop_front()
        {
            self.links[link as usize].is_ready = false;
            self.fill(link as usize, queue);
            self.has_room(link as usize, queue);
        }
        self.had_ready = !self.ready.is_empty();
    }

    /// Sends requests on a link, as many as are wanted now and as it takes.
    fn fill(&mut self, index: usize, queue: &mut Queue) {
        let mut room = self.room(index);
        if room == 0 || !self.wants_request() {
            return;
        }
        if !self.job.keeps_alive {
            if let Some(intended) = self.take_request() {
                self.links[index].pending = Some(intended);
                self.attempt(index, self.shared.now);
            }
            return;
        }
        if self.shared.request.len() >= SHARED_BYTES
            && self.links[index].session.is_none()
            && self.job.http != Http::Two
        {
            if let Some(intended) = self.take_request() {
                self.send_shared(index, intended, queue);
            }
            return;
        }
        let mut out = std::mem::take(&mut self.scratch);
        let mut broken = None;
        while room > 0
            && broken.is_none()
            && out.len() < MOST_OUTPUT
            && let Some(intended) = self.take_request()
        {
            let times = Times { intended, sent: self.shared.now };
            broken = self.links[index].exchange.send(&self.shared, times, &mut out).err();
            room -= 1;
        }
        self.transmit(index, &out, queue);
        out.clear();
        self.scratch = out;
        if let Some(broken) = broken {
            self.fail(index, broken, queue);
        }
    }

    /// Sends a large request without a copy.
    fn send_shared(&mut self, index: usize, intended: Instant, queue: &mut Queue) {
        let times = Times { intended, sent: self.shared.now };
        let link = &mut self.links[index];
        link.exchange.note_sent(times);
        link.is_blocked = true;
        self.shared.record.sent_bytes += self.shared.request.len() as u64;
        queue.push(Op::SendBytes { socket: link.socket, bytes: self.shared.request.clone() });
    }

    /// Takes a request out of the plan. Returns its intended time.
    fn take_request(&mut self) -> Option<Instant> {
        if !self.wants_request() {
            return None;
        }
        let now = self.shared.now;
        if self.job.schedule.is_none() {
            self.shared.record.requests += 1;
            return Some(now);
        }
        let due = self.due.filter(|due| *due <= now)?;
        self.shared.record.requests += 1;
        if self.had_ready {
            note(&mut self.shared.record.lag, now.since(due));
        }
        self.next_due();
        Some(due)
    }

    /// Sends bytes on a link, through its TLS session if it has one.
    pub(super) fn transmit(&mut self, index: usize, bytes: &[u8], queue: &mut Queue) {
        if bytes.is_empty() {
            return;
        }
        let link = &mut self.links[index];
        let start = queue.output.len();
        match &mut link.session {
            None => queue.output.extend_from_slice(bytes),
            Some(session) => {
                if let Err(error) = session.send(bytes, &mut queue.output) {
                    return self.fail(index, (Fault::Tls, error.to_string()), queue);
                }
            }
        }
        self.push_output(index, start, queue);
    }

    pub(super) fn push_output(&mut self, index: usize, start: usize, queue: &mut Queue) {
        let end = queue.output.len();
        if end > start {
            self.shared.record.sent_bytes += (end - start) as u64;
            let socket = self.links[index].socket;
            queue.push(Op::Send { socket, start: start as u32, end: end as u32, more: false });
        }
    }

    /// Fails the connections on which a response or the connection itself is late.
    fn look_for_late(&mut self, queue: &mut Queue) {
        let Some(oldest) = self.shared.now.nanoseconds.checked_sub(self.job.timeout.as_nanos() as u64) else { return };
        let oldest = Instant { nanoseconds: oldest };
        for index in 0..self.links.len() {
            let link = &self.links[index];
            let is_late = match link.state {
                State::Closed => false,
                State::Connecting | State::Handshaking => link.since < oldest,
                State::Open => link.exchange.has_older(oldest),
            };
            if is_late {
                let fault = if link.state == State::Open { Fault::Timeout } else { Fault::Connect };
                let text = format!("nothing within {:?}", self.job.timeout);
                self.fail(index, (fault, text), queue);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.live.stop.load(Ordering::Relaxed) || signal::count(Signal::Stop) > 0
    }

    /// The CPU time of this thread since the start of the run, which was so long ago.
    fn cpu_over(&self, length: Duration) -> Option<Cpu> {
        Some(Cpu::of_this_thread()?.since(self.cpu?, length))
    }

    /// Publishes what has been measured, for the live view.
    fn publish(&mut self) {
        if let Some(snapshots) = &self.live.snapshots {
            self.shared.note_equal();
            let length = self.shared.now.since(self.start);
            let mut record = self.shared.record.clone();
            record.elapsed = length;
            record.cpus.extend(self.cpu_over(length));
            snapshots.put(self.job.number, record);
        }
    }

    fn tell(&mut self) {
        let (responses, errors) = (self.shared.record.responses, self.shared.record.errors());
        self.live.responses.fetch_add(responses - self.told.0, Ordering::Relaxed);
        self.live.errors.fetch_add(errors - self.told.1, Ordering::Relaxed);
        self.told = (responses, errors);
    }

    fn look_for_end(&mut self) {
        let now = self.shared.now;
        let is_late = self.shared.end.is_some_and(|end| now >= end);
        let is_sent = self.shared.record.requests >= self.job.requests
            || (self.job.schedule.is_some() && self.due.is_none() && self.shared.end.is_none());
        let waits = |link: &Link| link.pending.is_some() || link.exchange.waiting() > 0;
        // A run of a number of requests must not wait for ever for a server that is gone.
        let answers = self.shared.answers + self.shared.record.lost_requests();
        if answers != self.answered.1 {
            self.answered = (now, answers);
        }
        let is_stuck = self.shared.end.is_none() && now.since(self.answered.0) > self.job.timeout + MOST_WAIT + TICK;
        let is_hopeless =
            now.since(self.start) > HOPE && self.shared.answers == 0 && self.links.iter().all(|link| link.failures > 0);
        let is_done = is_sent && !self.links.iter().any(waits);
        if is_late || is_done || is_stuck || is_hopeless || self.is_stopped() {
            self.runs = false;
            self.live.ended.fetch_add(1, Ordering::Relaxed);
            let length = now.since(self.start);
            self.shared.record.cpus.extend(self.cpu_over(length));
            self.shared.record.elapsed = if is_late { self.job.length.unwrap_or(length) } else { length };
        }
    }

    /// The requests of this worker that were due before a time, from the next one on.
    fn unsent_left(&self, over: Instant) -> u64 {
        let until = over.since(self.start).as_secs_f64();
        let left = self.job.schedule.as_ref().map_or(0, |schedule| schedule.left(until));
        left.min(self.job.requests - self.shared.record.requests - self.shared.record.unsent)
    }

    /// Waits for the responses that are under way. What is unfinished then has at least its age as its latency.
    fn drain(&mut self, driver: &mut impl Driver, queue: &mut Queue) -> io::Result<()> {
        self.shared.is_over = true;
        self.attempts.clear();
        let over = self.shared.now;
        let end = over + DRAIN.min(self.job.timeout);
        while self.shared.now < end && self.links.iter().any(|link| link.exchange.waiting() > 0) {
            driver.turn(Some(end), queue, self)?;
            self.attempts.clear();
        }
        let now = self.shared.now;
        self.shared.note_equal();
        let record = &mut self.shared.record;
        record.settle_statuses();
        for times in self.links.iter().flat_map(|link| link.exchange.unanswered()) {
            record.fault(Fault::Unfinished, 1, || "no whole response before the end of the run".into());
            note(&mut record.intended, now.since(times.intended));
            note(&mut record.sent, now.since(times.sent));
        }
        let pending = self.links.iter().filter_map(|link| link.pending);
        for intended in pending {
            record.fault(Fault::Unfinished, 1, || "no connection before the end of the run".into());
            note(&mut record.intended, over.since(intended));
        }
        while let Some(due) = self.due.filter(|due| *due < over && self.shared.end.is_none_or(|end| *due < end))
            && self.shared.record.requests + self.shared.record.unsent < self.job.requests
        {
            if self.shared.record.unsent == MOST_UNSENT {
                // The others were due later, so they have waited for less time.
                let (left, half) =
                    (self.unsent_left(self.shared.end.map_or(over, |end| end.min(over))) + 1, over.since(due) / 2);
                self.shared.record.unsent += left;
                note_many(&mut self.shared.record.intended, half, left);
                break;
            }
            self.shared.record.unsent += 1;
            note(&mut self.shared.record.intended, over.since(due));
            self.next_due();
        }
        self.tell();
        Ok(())
    }
}

impl Sink for Worker {
    fn begin(&mut self, now: Instant) {
        let gap = now.since(self.shared.now);
        if self.runs && gap > 2 * TICK {
            // A turn waits for a tick at most.
            self.shared.record.stalled += gap - TICK;
        }
        self.shared.now = now;
    }

    fn complete(&mut self, completion: Completion<'_>, queue: &mut Queue) {
        let find = |worker: &Worker, socket: SocketId| {
            let index = *worker.by_slot.get(socket.index as usize)?;
            let link = worker.links.get(index as usize)?;
            (link.socket == socket).then_some(index as usize)
        };
        match completion {
            Completion::Connected { token, socket } => self.connected(token as usize, socket, queue),
            Completion::ConnectFailed { token, error } => {
                let index = token as usize;
                // EMFILE, ENFILE and ENOBUFS: this machine has no descriptor or memory left.
                let is_short = matches!(error.raw_os_error(), Some(24 | 23 | 105));
                let is_local = is_short || error.kind() == io::ErrorKind::AddrNotAvailable;
                let fault = if is_local { Fault::LocalPorts } else { Fault::Connect };
                // With a connection for each request, this request is lost.
                self.links[index].pending = None;
                self.shared.record.fault(fault, 1, || error.to_string());
                self.forget(index);
                self.retry(index);
            }
            Completion::Received { socket, bytes } => {
                if let Some(index) = find(self, socket) {
                    self.received(index, bytes, queue);
                }
            }
            Completion::Ended { socket } => {
                if let Some(index) = find(self, socket) {
                    self.ended(index, queue);
                }
            }
            Completion::Failed { socket, error } => {
                if let Some(index) = find(self, socket) {
                    self.fail(index, (Fault::Reset, error.to_string()), queue);
                }
            }
            Completion::Blocked { socket, .. } => {
                if let Some(index) = find(self, socket) {
                    self.links[index].is_blocked = true;
                }
            }
            Completion::Drained { socket } => {
                if let Some(index) = find(self, socket) {
                    self.links[index].is_blocked = false;
                    if self.links[index].state == State::Open {
                        self.has_room(index, queue);
                    }
                }
            }
            _ => {}
        }
    }
}
