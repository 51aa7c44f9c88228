//! Connects a test's client ([`Talk`]) to the server: on the simulator or through sockets, in cleartext or under TLS,
//! with the client's bytes split as the test chooses.

pub(crate) mod http1;
pub(crate) mod http2;
mod tally;

use highwire::App;
use highwire::server::{Engine, Handle, Runtime, Worker};
use highwire_io::sim::{Arrived, Faults, Network, Simulated};
use sim::tls::{self, Clients, Http, Resumption, Session, Version};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

pub(crate) use tally::Tally;

/// The limit of a play in virtual time. It is less than any timeout that closes an idle connection, and more than any
/// handler needs.
const LONGEST: Duration = Duration::from_secs(9);

/// The limit of a play in real time if it needs the blocking pool, whose threads are real on the simulator, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// The client of one connection: the bytes it sends and the answers it expects.
pub(crate) trait Talk {
    /// Returns the first bytes to send.
    fn begin(&mut self) -> Vec<u8>;

    /// Returns true if the client ends its direction after its first bytes.
    fn ends(&self) -> bool {
        false
    }

    /// Returns the last bytes to send. The simulator sends them once nothing else happens.
    fn last_word(&mut self) -> Vec<u8>;

    /// Handles received bytes and returns the reply to send.
    ///
    /// # Errors
    /// Returns an error if a server must not send these bytes.
    fn hear(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String>;

    /// Returns true if the client has received all that it expects, except the connection's end.
    fn is_done(&self) -> bool {
        self.judge().is_ok()
    }

    /// Returns true if only a timeout can show that the server sends nothing more.
    fn waits_for_silence(&self) -> bool {
        false
    }

    /// Returns true if the server must close the connection.
    fn expects_end(&self) -> bool;

    /// Checks the received bytes.
    ///
    /// # Errors
    /// Returns a description of the first difference.
    fn judge(&self) -> Result<(), String>;
}

/// The layer between HTTP and the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Plain,
    Tls(Version),
}

/// The client's side of a connection, independent of its transport.
struct End<'t, T: ?Sized> {
    talk: &'t mut T,
    session: Option<Session>,
    out: Vec<u8>,
    /// True if the client has ended its direction, in TLS by close_notify.
    closed: bool,
}

impl<'t, T: Talk + ?Sized> End<'t, T> {
    fn new(talk: &'t mut T, session: Option<Session>) -> End<'t, T> {
        let mut end = End { talk, session, out: Vec::new(), closed: false };
        let bytes = end.talk.begin();
        end.say(&bytes);
        if end.talk.ends() && end.session.is_none() {
            end.closed = true;
        }
        end
    }

    fn say(&mut self, bytes: &[u8]) {
        match &mut self.session {
            Some(session) => session.seal(bytes, &mut self.out),
            None => self.out.extend_from_slice(bytes),
        }
        self.close_if_said();
    }

    /// Sends close_notify once the handshake is complete, if the client ends its direction.
    fn close_if_said(&mut self) {
        let ends = self.talk.ends() && !self.closed;
        if let Some(session) = self.session.as_mut().filter(|session| ends && !session.is_handshaking()) {
            session.close(&mut self.out);
            self.closed = true;
        }
    }

    fn last_word(&mut self) {
        let bytes = self.talk.last_word();
        self.say(&bytes);
    }

    fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_handshaking)
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), String> {
        let reply = match &mut self.session {
            None => self.talk.hear(bytes)?,
            Some(session) => {
                let mut plain = Vec::new();
                session.open(bytes, &mut plain, &mut self.out)?;
                self.talk.hear(&plain)?
            }
        };
        self.say(&reply);
        Ok(())
    }

    /// Handles the end of the server's direction. Under TLS, close_notify must have arrived before this end.
    fn heard_the_end(&self) -> Result<(), String> {
        match &self.session {
            Some(session) if !session.is_closed() => Err("the connection ended without close_notify".to_string()),
            _ => Ok(()),
        }
    }

    fn judge(&self, ended: bool) -> Result<(), String> {
        self.talk.judge()?;
        match ended == self.talk.expects_end() {
            true => Ok(()),
            false => Err(format!("wrong end; the connection has ended: {ended}")),
        }
    }
}

/// A server on the simulator. Listener 0 is cleartext, listener 1 TLS.
pub(crate) struct Stage {
    network: Network,
    worker: Worker<Simulated>,
    clients: Clients,
    account: usize,
    patience: Duration,
}

impl Stage {
    pub(crate) fn new(app: App) -> Stage {
        let network = Network::new(1, Faults::default());
        let driver = Simulated::new(network.clone()).expect("a driver");
        let server = app.listen("127.0.0.1:0").expect("a free port");
        let server = server.listen_tls("127.0.0.1:0", tls::server_config()).expect("a free port");
        let worker = server.into_worker(driver).expect("a worker");
        let account = worker.account();
        let clients = Clients::new(Resumption::default());
        Stage { network, worker, clients, account, patience: Duration::ZERO }
    }

    /// Makes [`play`](Stage::play) wait for the blocking pool, which apps with files use.
    pub(crate) fn patient(self) -> Stage {
        Stage { patience: PATIENCE, ..self }
    }

    /// Plays one connection, with the client's bytes split at these offsets.
    pub(crate) fn play<T: Talk + ?Sized>(
        &mut self,
        talk: &mut T,
        layer: Layer,
        http: Http,
        cut: &[usize],
    ) -> Result<(), String> {
        let (listener, session) = match layer {
            Layer::Plain => (0, None),
            Layer::Tls(version) => (1, Some(self.clients.session(version, http))),
        };
        let client = self.network.connect_to(highwire_io::ListenerId(listener));
        let mut end = End::new(talk, session);
        let (mut said, mut cuts) = (0, cut.iter().peekable());
        let (mut last, mut shut, mut ended) = (false, false, false);
        let mut idle_turns = 0;
        let until = self.network.now() + LONGEST;
        let begun = Instant::now();
        while !ended && (self.network.now() < until || begun.elapsed() < self.patience) {
            if last && idle_turns > 3 && !end.talk.expects_end() && end.talk.is_done() {
                break;
            }
            while cuts.next_if(|&&at| at <= said).is_some() {}
            let most = cuts.peek().map_or(usize::MAX, |&&at| at - said);
            let sent = client.send(&end.out[..most.min(end.out.len())]);
            end.out.drain(..sent);
            said += sent;
            if end.out.is_empty() && end.closed && !shut {
                client.shutdown();
                shut = true;
            }
            self.worker.turn(Some(self.network.now())).map_err(|error| error.to_string())?;
            let mut any = sent > 0;
            while let Some(arrived) = client.receive(usize::MAX) {
                any = true;
                match arrived {
                    Arrived::Bytes(bytes) => end.hear(&bytes)?,
                    Arrived::End => {
                        end.heard_the_end()?;
                        ended = true;
                        break;
                    }
                    Arrived::Reset => return Err("the server reset the connection".to_string()),
                }
            }
            if any || !self.worker.driver().is_idle() {
                idle_turns = 0;
                continue;
            }
            idle_turns += 1;
            if idle_turns > 3 && end.out.is_empty() && !last {
                last = true;
                idle_turns = 0;
                end.last_word();
            } else if idle_turns > 3 {
                if self.network.now() < until {
                    self.network.advance(Duration::from_millis(100));
                } else {
                    std::thread::yield_now();
                }
            }
        }
        let judged = end.judge(ended);
        drop(client);
        judged
    }

    /// Checks that the server keeps nothing of its former clients.
    pub(crate) fn end(mut self) -> Result<(), String> {
        for _ in 0..200 {
            self.worker.turn(Some(self.network.now())).map_err(|error| error.to_string())?;
            self.network.advance(Duration::from_millis(500));
        }
        let left = (self.worker.connections(), self.worker.tasks(), self.worker.account());
        match left == (0, 0, self.account) {
            true => Ok(()),
            false => Err(format!("connections, tasks and bytes left: {left:?}; {} bytes at the start", self.account)),
        }
    }
}

/// A server with real sockets and its own threads.
pub(crate) struct Real {
    handle: Handle,
    clients: Clients,
}

impl Real {
    /// Starts a server. Returns `None` if the system does not support the engine.
    pub(crate) fn start(engine: Engine, app: App) -> Option<Real> {
        if let (true, Err(error)) = (engine == Engine::Uring, Runtime::choose(engine)) {
            let _ = writeln!(std::io::stderr(), "not run: {error}");
            return None;
        }
        let app = app.configure(|config| config.engine = engine);
        let mut server = app.listen("127.0.0.1:0").expect("a free port");
        if engine != Engine::Threads {
            server = server.listen_tls("127.0.0.1:0", tls::server_config()).expect("a free port");
        }
        let handle = server.start().expect("a server that starts");
        Some(Real { handle, clients: Clients::new(Resumption::default()) })
    }

    /// Plays one connection, with the client's bytes sent in pieces of at most `piece` bytes.
    pub(crate) fn play<T: Talk + ?Sized>(
        &self,
        talk: &mut T,
        layer: Layer,
        http: Http,
        piece: usize,
    ) -> Result<(), String> {
        let (listener, session) = match layer {
            Layer::Plain => (0, None),
            Layer::Tls(version) => (1, Some(self.clients.session(version, http))),
        };
        let problem = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(&self.handle.addresses()[listener]).map_err(problem)?;
        stream.set_nodelay(true).map_err(problem)?;
        let mut end = End::new(talk, session);
        let silence = end.talk.waits_for_silence();
        let patience = if silence { Duration::from_millis(300) } else { Duration::from_secs(20) };
        stream.set_read_timeout(Some(patience)).map_err(problem)?;
        let (mut last, mut shut, mut gone) = (false, false, false);
        let mut buffer = vec![0; 65536];
        loop {
            // The server may close before it has read everything. The rest of the bytes is then not needed.
            for part in std::mem::take(&mut end.out).chunks(piece) {
                gone |= stream.write_all(part).is_err();
                if gone {
                    break;
                }
            }
            if !last && !end.is_handshaking() {
                last = true;
                end.last_word();
                continue;
            }
            if end.closed && !shut {
                let _ = stream.shutdown(Shutdown::Write);
                shut = true;
            }
            if end.talk.is_done() && !end.talk.expects_end() && !silence {
                return end.judge(false);
            }
            match stream.read(&mut buffer) {
                Ok(0) => {
                    end.heard_the_end()?;
                    return end.judge(true);
                }
                Ok(count) => end.hear(&buffer[..count])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return end.judge(false);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Returns the addresses of the listeners: cleartext, and TLS if the engine has it.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.handle.addresses().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn stop(self) {
        self.handle.abort();
        self.handle.join().expect("a server that ends");
    }
}
