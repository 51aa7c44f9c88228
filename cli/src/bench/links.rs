//! A worker's connections: how they are opened, with TLS if there is any, what arrives on them, and how they end.

use super::exchange::{Broken, Exchange, Times};
use super::record::{Fault, note};
use super::target::Http;
use super::worker::{NOWHERE, State, Worker};
use highwire_engine::tls::{Progress, Session};
use highwire_io::{Instant, Op, Queue, SocketId};
use std::time::Duration;

/// The wait before another attempt to connect, after the first failure and at most.
const FIRST_WAIT: Duration = Duration::from_millis(10);
pub(super) const MOST_WAIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Begins the attempts to connect whose time has come.
    pub(super) fn connect_some(&mut self, queue: &mut Queue) {
        let most = self.most_opening();
        while self.opening < most
            && let Some((at, index)) = self.attempts.front().copied()
            && at <= self.shared.now
        {
            self.attempts.pop_front();
            let link = &mut self.links[index as usize];
            link.rests = false;
            if !self.job.keeps_alive && link.pending.is_none() {
                self.has_room(index as usize, queue);
                continue;
            }
            link.state = State::Connecting;
            link.since = self.shared.now;
            self.opening += 1;
            let addresses = &self.shared.target.addresses;
            let address = addresses[index as usize % addresses.len()].clone();
            queue.push(Op::Connect { token: u64::from(index), address });
        }
    }

    pub(super) fn connected(&mut self, index: usize, socket: SocketId, queue: &mut Queue) {
        let slot = socket.index as usize;
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, u32::MAX);
        }
        self.by_slot[slot] = index as u32;
        let exchange = Exchange::new(self.job.http, &self.shared, self.job.depth);
        let link = &mut self.links[index];
        (link.socket, link.exchange) = (socket, exchange);
        (link.is_blocked, link.has_answered) = (false, false);
        link.tls_since = self.shared.now;
        note(&mut self.shared.record.connects, self.shared.now.since(link.since));
        let Some((config, name)) = &self.job.tls else { return self.opened(index, queue) };
        link.state = State::Handshaking;
        let start = queue.output.len();
        match Session::connect(config.clone(), name.clone(), &mut queue.output) {
            Ok(session) => {
                link.session = Some(Box::new(session));
                self.push_output(index, start, queue);
            }
            Err(error) => self.fail(index, (Fault::Tls, error.to_string()), queue),
        }
    }

    /// The connection is open, with TLS if it has any.
    pub(super) fn opened(&mut self, index: usize, queue: &mut Queue) {
        self.opening -= 1;
        let link = &mut self.links[index];
        link.state = State::Open;
        if link.session.is_some() {
            note(&mut self.shared.record.handshakes, self.shared.now.since(link.tls_since));
        }
        let mut first = Vec::new();
        link.exchange.flush(&mut first);
        let pending = link.pending.take().map(|intended| Times { intended, sent: link.since });
        let sent = pending.map(|times| link.exchange.send(&self.shared, times, &mut first));
        self.transmit(index, &first, queue);
        if let Some(Err(broken)) = sent {
            return self.fail(index, broken, queue);
        }
        if self.runs {
            self.has_room(index, queue);
        }
    }

    /// Ends a connection that needs no error, and opens the next one.
    pub(super) fn close(&mut self, index: usize, queue: &mut Queue) {
        let link = &mut self.links[index];
        let start = queue.output.len();
        if let Some(session) = &mut link.session {
            session.close(&mut queue.output);
        }
        let socket = link.socket;
        self.push_output(index, start, queue);
        queue.push(Op::Close { socket });
        self.forget(index);
        if self.job.keeps_alive && !self.links[index].has_answered {
            // A server that only opens and closes connections is not asked faster and faster.
            self.retry(index);
        } else if self.job.keeps_alive {
            self.attempt(index, self.shared.now);
        } else if self.runs {
            self.has_room(index, queue);
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        let link = &mut self.links[index];
        if let Some(slot) = self.by_slot.get_mut(link.socket.index as usize) {
            *slot = u32::MAX;
        }
        if matches!(link.state, State::Connecting | State::Handshaking) {
            self.opening -= 1;
        }
        (link.state, link.socket, link.session) = (State::Closed, NOWHERE, None);
    }

    /// Ends a connection with an error, which counts for each of its requests.
    pub(super) fn fail(&mut self, index: usize, (fault, text): Broken, queue: &mut Queue) {
        let (now, timeout) = (self.shared.now, self.job.timeout);
        let link = &mut self.links[index];
        if link.state == State::Closed {
            return;
        }
        let pending = link.pending.take();
        let waiting = link.exchange.waiting() as u64 + u64::from(pending.is_some());
        let mut late = waiting;
        if fault == Fault::Timeout || (fault == Fault::Connect && pending.is_some() && now.since(link.since) >= timeout)
        {
            // Without them, the slowest requests would be missing in the latencies.
            let oldest = now.nanoseconds.saturating_sub(timeout.as_nanos() as u64);
            late = link.exchange.unanswered().filter(|times| times.sent.nanoseconds < oldest).count() as u64;
            let pending = pending.map(|intended| Times { intended, sent: link.since });
            for times in link.exchange.unanswered().chain(pending) {
                note(&mut self.shared.record.intended, now.since(times.intended));
                note(&mut self.shared.record.sent, now.since(times.sent));
            }
        }
        if link.state == State::Connecting {
            queue.push(Op::CancelConnect { token: index as u64 });
        } else {
            queue.push(Op::Abort { socket: link.socket });
        }
        let is_new = link.state != State::Open;
        // A connection that is closed or reset without a request in progress is no error: servers end idle ones.
        let counts = is_new || matches!(fault, Fault::Protocol | Fault::Tls | Fault::Stream);
        if fault == Fault::Timeout {
            let siblings = "another response on the connection was late".to_owned();
            self.shared.record.fault(Fault::Sibling, waiting - late, || siblings);
            self.shared.record.fault(fault, late, || text);
        } else {
            self.shared.record.fault(fault, if counts { waiting.max(1) } else { waiting }, || text);
        }
        self.forget(index);
        self.retry(index);
    }

    /// Connects again after a wait, which grows with the failures since the last response.
    pub(super) fn retry(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.exchange = Exchange::new(self.job.http, &self.shared, self.job.depth);
        link.failures += 1;
        let wait = FIRST_WAIT.saturating_mul(1 << (link.failures - 1).min(7)).min(MOST_WAIT);
        link.rests = true;
        self.attempt(index, self.shared.now + wait);
    }

    /// Lets a link connect at a time.
    pub(super) fn attempt(&mut self, index: usize, at: Instant) {
        let place = self.attempts.partition_point(|(other, _)| *other <= at);
        self.attempts.insert(place, (at, index as u32));
    }

    pub(super) fn received(&mut self, index: usize, bytes: &[u8], queue: &mut Queue) {
        self.shared.record.received_bytes += bytes.len() as u64;
        let link = &mut self.links[index];
        let Some(session) = &mut link.session else { return self.plain_received(index, bytes, queue) };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let start = queue.output.len();
        let progress = session.receive(bytes, &mut plain, &mut queue.output);
        let socket = link.socket;
        self.push_output(index, start, queue);
        match progress {
            Err(error) => self.fail(index, (Fault::Tls, error.to_string()), queue),
            Ok(progress) => {
                if self.links[index].state == State::Handshaking && progress == Progress::Open {
                    self.agreed(index, queue);
                }
                if !plain.is_empty() && self.links[index].socket == socket {
                    self.plain_received(index, &plain, queue);
                }
                if progress == Progress::PeerClosed && self.links[index].socket == socket {
                    self.ended(index, queue);
                }
            }
        }
        self.plain = plain;
    }

    /// The handshake is complete: the server must have agreed on the protocol.
    pub(super) fn agreed(&mut self, index: usize, queue: &mut Queue) {
        let alpn = self.links[index].session.as_ref().and_then(|session| session.alpn());
        let fits = match self.job.http {
            Http::Two => alpn == Some(b"h2"),
            Http::One0 | Http::One1 => alpn != Some(b"h2"),
        };
        if fits {
            self.opened(index, queue);
        } else {
            self.fail(index, (Fault::Tls, "the server does not speak this version of HTTP (ALPN)".into()), queue);
        }
    }

    pub(super) fn plain_received(&mut self, index: usize, bytes: &[u8], queue: &mut Queue) {
        let before = self.shared.answers;
        let result = self.links[index].exchange.receive(bytes, &mut self.shared);
        if self.shared.answers > before {
            (self.links[index].failures, self.links[index].has_answered) = (0, true);
        }
        let socket = self.links[index].socket;
        if matches!(result, Ok(true)) && self.job.keeps_alive {
            // New requests go first, because the bytes of the protocol itself then leave with them.
            self.has_room(index, queue);
        }
        if self.links[index].socket != socket {
            return;
        }
        let mut own = std::mem::take(&mut self.scratch);
        self.links[index].exchange.flush(&mut own);
        self.transmit(index, &own, queue);
        own.clear();
        self.scratch = own;
        match result {
            Ok(true) if self.links[index].exchange.waiting() == 0 && !self.job.keeps_alive => self.close(index, queue),
            Ok(true) => {}
            Ok(false) if self.links[index].exchange.waiting() == 0 => self.close(index, queue),
            Ok(false) => {
                let text = "the server closes a connection that has more requests".to_owned();
                self.fail(index, (Fault::Closed, text), queue);
            }
            Err(broken) => self.fail(index, broken, queue),
        }
    }

    pub(super) fn ended(&mut self, index: usize, queue: &mut Queue) {
        if self.links[index].state != State::Open {
            return self.fail(index, (Fault::Connect, "the server closed the connection at once".into()), queue);
        }
        match self.links[index].exchange.end(&mut self.shared) {
            None => self.close(index, queue),
            Some(broken) => self.fail(index, broken, queue),
        }
    }
}
