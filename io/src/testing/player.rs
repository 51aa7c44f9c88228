//! Plays a program, then checks that all bytes arrive and that all connections end.

use super::model::{Client, Connection, Fate, Model};
use super::program::{Action, Step};
use super::stream::{Way, check_stream, stream};
use super::{Peers, Traits};
use crate::sim::Arrived;
use crate::{Driver, Queue, limit};
use std::time::Duration;

/// The most clients of a run. They are enough for their connections to compete.
const CLIENTS: usize = 8;

/// The most bytes that a client reads at once when it reads everything.
const READ_BYTES: usize = 64 * 1024;

/// The most unread bytes behind which a client's end has surely arrived.
const LITTLE: u64 = 1024;

/// The number of turns within which the driver must act after a deadline has passed.
const TURNS: usize = 8;

pub(super) struct Player<P: Peers> {
    peers: P,
    traits: Traits,
    queue: Queue,
    model: Model,
    notified: bool,
}

impl<P: Peers> Drop for Player<P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.model.tell();
        }
    }
}

impl<P: Peers> Player<P> {
    pub(super) fn new(peers: P) -> Player<P> {
        let traits = peers.traits();
        let model = Model::new(traits, |content| peers.file(content));
        Player { peers, traits, queue: Queue::new(), model, notified: false }
    }

    pub(super) fn play(mut self, steps: &[Step]) {
        for &step in steps {
            self.step(step);
            if step.turn {
                self.turn();
            }
        }
        while let Some(step) = self.model.later.pop_front() {
            self.model.perform(step, false, &mut self.queue);
        }
        self.turn();
        self.aborted_are_gone();
        self.closed_expire();
        self.ends_arrive();
        self.everything_arrives();
        self.everybody_finishes();
    }

    fn step(&mut self, step: Step) {
        match step.action {
            Action::Connect => self.connect(),
            Action::Dial if self.model.clients.len() >= CLIENTS => {}
            Action::Dial => {
                let client = self.model.clients.len();
                self.model.addresses.push_back((client, self.peers.expect()));
                self.model.clients.push(Client { dialed: true, expects: true, ..Client::default() });
                self.perform(step);
            }
            Action::Notify => {
                self.peers.driver().notifier().notify();
                self.notified = true;
                self.model.woken = false;
            }
            Action::ClientSend
            | Action::ClientRead
            | Action::ClientShutdown
            | Action::ClientReset
            | Action::ClientClose => {
                if let Some(number) = step.who.checked_rem(self.model.clients.len()) {
                    self.client_step(step, number);
                }
            }
            Action::Nothing => {}
            _ => self.perform(step),
        }
    }

    /// Performs a step of the loop, or leaves it to the sink.
    fn perform(&mut self, step: Step) {
        if step.within {
            self.model.later.push_back(step);
        } else {
            self.model.perform(step, false, &mut self.queue);
        }
    }

    fn connect(&mut self) {
        if self.model.clients.len() < CLIENTS {
            let port = self.peers.connect();
            self.model.note("connect", self.model.clients.len(), 0);
            self.model.clients.push(Client { port, ..Client::default() });
        }
    }

    fn client_step(&mut self, step: Step, number: usize) {
        let client = &mut self.model.clients[number];
        if !client.is_here() {
            return;
        }
        let mut count = 0;
        let what = match step.action {
            Action::ClientSend if client.shut => return,
            Action::ClientSend => {
                let most = step.bytes.min(self.traits.most as usize / 4);
                let bytes = stream(number, Way::ToLoop, client.sent, most);
                let open = |number: usize| self.model.connections[number].fate == Fate::Open;
                client.late |= client.connection.is_some_and(|number| !open(number));
                count = self.peers.send(number, &bytes) as u64;
                client.sent += count;
                "client sends"
            }
            Action::ClientShutdown => {
                client.shut = true;
                self.peers.shutdown(number);
                "client shuts down"
            }
            Action::ClientReset => {
                client.reset = true;
                self.peers.reset(number);
                "client resets"
            }
            Action::ClientClose => {
                client.closed = true;
                self.peers.close(number);
                "client closes"
            }
            _ => {
                self.read(number, step.bytes);
                return;
            }
        };
        self.model.note(what, number, count);
    }

    fn turn(&mut self) {
        let until = self.peers.until();
        self.model.turn_begins();
        let turned = self.peers.driver().turn(Some(until), &mut self.queue, &mut self.model);
        turned.expect("a turn");
        self.model.turn_ended();
        self.model.note("turn", 0, 0);
        for (number, client) in self.model.clients.iter_mut().enumerate() {
            client.expects = client.expects && !self.peers.is_accepted(number);
        }
        for connection in &self.model.connections {
            let client = connection.client;
            let explained = !self.model.clients[client].is_here() || self.peers.is_broken(client) || connection.short;
            assert!(!connection.failed || explained, "the connection of client {client} failed without a cause");
        }
    }

    /// Reads once at a client. Returns true if bytes, the end or a reset arrived.
    fn read(&mut self, number: usize, most: usize) -> bool {
        let client = &mut self.model.clients[number];
        if !client.is_here() || client.over {
            return false;
        }
        let Some(arrived) = self.peers.receive(number, most) else { return false };
        let connection = client.connection.map(|connection| &self.model.connections[connection]);
        match &arrived {
            Arrived::Bytes(bytes) => {
                check_stream(number, Way::ToClient, client.read, bytes);
                client.read += bytes.len() as u64;
                let asked = connection.map_or(0, |connection| connection.asked);
                assert!(client.read <= asked, "client {number} read more than the loop has sent");
            }
            Arrived::End => {
                client.over = true;
                let connection = connection.expect("a client sees an end before it is accepted");
                assert!(
                    connection.shut || connection.fate != Fate::Open,
                    "client {number} sees an end that the loop did not cause"
                );
                let is_cut = connection.fate == Fate::Aborted || connection.short;
                assert!(
                    !connection.short || !self.traits.resets_show,
                    "client {number} sees a normal end after a file that is too short"
                );
                let may_be_cut = is_cut && !self.traits.resets_show;
                let (read, asked) = (client.read, connection.asked);
                assert!(may_be_cut || read == asked, "client {number} sees an end after {read} of {asked} bytes");
            }
            Arrived::Reset => {
                client.over = true;
                let broken = self.peers.is_broken(number);
                let allowed = broken || connection.is_some_and(|connection| may_be_reset(client, connection));
                assert!(allowed, "client {number} sees a reset that has no cause");
            }
        }
        let (what, count) = match &arrived {
            Arrived::Bytes(bytes) => ("client reads", bytes.len() as u64),
            Arrived::End => ("client sees the end", 0),
            Arrived::Reset => ("client sees a reset", 0),
        };
        self.model.note(what, number, count);
        true
    }

    /// Repeats turns until `done` returns true, and panics if that takes too long. If `reading` is true, the clients
    /// read all arrived bytes before each turn.
    fn wait(&mut self, what: &str, reading: bool, done: impl Fn(&mut Self) -> bool) {
        self.peers.begin_to_wait();
        loop {
            if reading {
                for number in 0..self.model.clients.len() {
                    while self.read(number, READ_BYTES) {}
                }
            }
            if done(self) {
                return;
            }
            assert!(self.peers.is_patient(), "stuck: {what}");
            if std::mem::take(&mut self.model.accept_failed) {
                self.loop_step(Action::ResumeAccept, 0);
            }
            self.turn();
        }
    }

    fn loop_step(&mut self, action: Action, who: usize) {
        let step = Step { action, who, bytes: 1, within: false, turn: false };
        self.model.perform(step, false, &mut self.queue);
    }

    /// Checks that aborted connections end even if the client does not read.
    fn aborted_are_gone(&mut self) {
        self.wait("an aborted connection still exists", false, |player| {
            let Player { peers, model, .. } = player;
            let mut aborted = model.connections.iter().filter(|connection| connection.fate == Fate::Aborted);
            aborted.all(|connection| !model.clients[connection.client].is_here() || peers.is_gone(connection.client))
        });
    }

    /// If the time is virtual, checks that the driver gives up closed connections that cannot send their last bytes in
    /// time.
    fn closed_expire(&mut self) {
        let closed = self.model.connections.iter_mut().filter(|connection| connection.fate == Fate::Closed);
        let closed: Vec<&mut Connection> = closed.collect();
        if closed.is_empty() || !self.peers.pass(limit::LINGER + Duration::from_secs(1)) {
            return;
        }
        closed.into_iter().for_each(|connection| connection.fate = Fate::Expired);
        for _ in 0..TURNS {
            self.turn();
        }
        let open = self.model.connections.iter().filter(|connection| connection.fate == Fate::Open).count();
        let held = self.peers.sockets().unwrap_or(open);
        assert_eq!(held, open, "the driver still holds closed sockets after their deadline");
    }

    /// Checks that the loop learns of the ends that it watches, although it may not receive.
    fn ends_arrive(&mut self) {
        self.wait("an end that the loop watches is not reported", false, |player| {
            let waits = |connection: &&Connection| {
                let is_open = connection.fate == Fate::Open && !connection.failed && !connection.ended;
                is_open && connection.watches_end
            };
            !player.model.connections.iter().filter(waits).any(|connection| {
                let client = &player.model.clients[connection.client];
                // The end may wait at the client behind bytes that the kernel does not take.
                let arrives = client.sent - connection.received <= LITTLE;
                (client.shut || client.closed || client.reset) && arrives
            })
        });
    }

    /// Lets both sides read, and checks that the bytes sent on open connections arrive.
    fn everything_arrives(&mut self) {
        self.loop_step(Action::ResumeAccept, 0);
        for number in 0..self.model.connections.len() {
            self.loop_step(Action::Resume, number);
        }
        self.wait("sent bytes have not arrived", true, |player| {
            let Player { peers, model, notified, .. } = player;
            let unconnected = |client: &Client| client.is_here() && client.connection.is_none();
            let waiting = model.clients.iter().any(|client| client.expects || unconnected(client));
            let open = |connection: &&Connection| connection.fate == Fate::Open;
            let mut open = model.connections.iter().filter(open);
            let woken = !*notified || model.woken;
            !waiting
                && woken
                && open.all(|connection| {
                    has_arrived(connection, &model.clients[connection.client], peers.is_broken(connection.client))
                })
        });
    }

    /// Ends the connections in different ways, and checks that both sides see the end and that no connection remains.
    fn everybody_finishes(&mut self) {
        for number in 0..self.model.connections.len() {
            let Connection { fate, client, failed, shut, .. } = self.model.connections[number];
            match number % 4 {
                _ if fate != Fate::Open => {}
                _ if failed => self.model.end(number, Fate::Aborted, false, &mut self.queue),
                0 if self.model.clients[client].is_here() => {
                    self.model.clients[client].shut = true;
                    self.peers.shutdown(client);
                }
                1 if !shut => self.model.shutdown(number, &mut self.queue),
                2 => {
                    if !shut {
                        self.model.send_bytes(number, self.traits.most as usize / 8, &mut self.queue);
                    }
                    self.model.end(number, Fate::Closed, false, &mut self.queue);
                }
                _ => {}
            }
        }
        self.wait("a connection does not end", true, |player| {
            let Player { peers, model, .. } = player;
            let mut open = model.connections.iter().filter(|connection| connection.fate == Fate::Open);
            open.all(|connection| {
                let client = &model.clients[connection.client];
                let told = connection.ended || connection.failed || !client.shut;
                let seen = client.over || !client.is_here() || !connection.shut;
                (told && seen) || peers.is_broken(connection.client)
            })
        });
        self.wait("a closed connection still exists", true, |player| {
            player.close_all();
            let over = |client: &Client| client.over || !client.is_here() || client.connection.is_none();
            player.model.clients.iter().all(over) && player.peers.sockets().is_none_or(|held| held == 0)
        });
    }

    fn close_all(&mut self) {
        for number in 0..self.model.connections.len() {
            let Connection { fate, failed, .. } = self.model.connections[number];
            if fate == Fate::Open {
                let fate = if failed { Fate::Aborted } else { Fate::Closed };
                self.model.end(number, fate, false, &mut self.queue);
            }
        }
    }
}

/// Returns true if the client may see a reset, because the loop has aborted the connection, its time for the last bytes
/// has passed, or the loop has closed it without receiving all bytes or after a file that is too short.
fn may_be_reset(client: &Client, connection: &Connection) -> bool {
    match connection.fate {
        Fate::Aborted | Fate::Expired => true,
        Fate::Closed => client.late || client.sent > connection.received || connection.short,
        Fate::Open => false,
    }
}

/// Returns true if the driver has reported all that it must report about an open connection and, unless the client is
/// gone or the connection is broken, all bytes have arrived in both directions.
fn has_arrived(connection: &Connection, client: &Client, broken: bool) -> bool {
    let told = !client.shut && client.is_here() || connection.ended || connection.failed;
    let here = client.is_here() && !broken;
    // A connection with a file that is too short fails, and then receives nothing more.
    let received = connection.received == client.sent || connection.short;
    let failed = connection.failed || !connection.short || !here;
    let arrived = received && failed && client.read == connection.asked;
    !connection.owed && told && (!here || arrived) && (!broken || connection.failed || connection.ended)
}
