//! A driver without a kernel. It has one connection, whose input the test provides and whose output the test reads.

use highwire::server::{Driver, Worker};
use highwire_io::wake::Notifier;
use highwire_io::{Completion, Instant, Listener, ListenerId, Op, Peer, Queue, Sink, Socket, SocketId, Waitable};

const SOCKET: SocketId = SocketId { index: 0, generation: 0 };

/// The time that passes in each turn, so that tests include the work that becomes due, such as dates and timeouts.
const TURN_NANOSECONDS: u64 = 10_000_000;

/// The driver. It reuses its buffers, so it allocates nothing after they have grown.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The bytes that the connection receives in the next turn, all at once, unless reception is paused.
    pub(crate) incoming: Vec<u8>,
    /// The bytes that the connection has sent.
    pub(crate) outgoing: Vec<u8>,
    /// True if the server has paused reception.
    pub(crate) paused: bool,
    /// The server's buffer for the next bytes, and how many it takes.
    lent_buffer: Option<(Vec<u8>, usize)>,
    now: Instant,
    accepted: bool,
    /// True if the driver has sent an [`Op::SendBytes`] and has not reported it as drained yet.
    drained: bool,
    notifier: Notifier,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            incoming: Vec::new(),
            outgoing: Vec::new(),
            paused: false,
            lent_buffer: None,
            now: Instant { nanoseconds: 1_000_000_000 },
            accepted: false,
            drained: false,
            notifier: Notifier::new().expect("a notifier"),
        }
    }
}

/// Returns an app's worker that has accepted the connection.
pub(crate) fn worker(app: highwire::App) -> Worker<Memory> {
    let mut worker = app.server().and_then(|server| server.into_worker(Memory::new())).expect("a worker");
    turn(&mut worker);
    worker
}

pub(crate) fn turn(worker: &mut Worker<Memory>) {
    worker.turn(None).expect("this driver does not fail");
}

impl Driver for Memory {
    fn listen(&mut self, _: Listener) -> std::io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn adopt(&mut self, _: Socket) -> std::io::Result<SocketId> {
        Ok(SOCKET)
    }
    fn descriptor(&mut self) -> std::io::Result<Waitable> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn arm(&mut self, _: Option<Instant>) -> std::io::Result<()> {
        Ok(())
    }
    fn release(&mut self, _: SocketId) -> Option<Socket> {
        None
    }
    fn turn<S: Sink>(&mut self, _: Option<Instant>, queue: &mut Queue, sink: &mut S) -> std::io::Result<()> {
        self.start(queue);
        self.now.nanoseconds += TURN_NANOSECONDS;
        sink.begin(self.now);
        if !std::mem::replace(&mut self.accepted, true) {
            sink.complete(Completion::Accepted { listener: ListenerId(0), socket: SOCKET, peer: Peer::Local }, queue);
        } else if std::mem::take(&mut self.drained) {
            sink.complete(Completion::Drained { socket: SOCKET }, queue);
        } else if !self.incoming.is_empty()
            && let Some((mut buffer, room)) = self.lent_buffer.take()
        {
            let count = room.min(self.incoming.len());
            buffer.extend(self.incoming.drain(..count));
            self.paused = true;
            sink.complete(Completion::ReceivedInto { socket: SOCKET, buffer, count }, queue);
        } else if !self.incoming.is_empty() && !self.paused {
            sink.complete(Completion::Received { socket: SOCKET, bytes: &self.incoming }, queue);
            self.incoming.clear();
        }
        self.start(queue);
        Ok(())
    }
    fn now(&self) -> Instant {
        self.now
    }
    fn unix_nanoseconds(&self) -> u64 {
        1_800_000_000_000_000_000 + self.now.nanoseconds
    }
    fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }
    fn random(&mut self) -> u64 {
        0
    }
    fn stopwatch(&self) -> fn() -> u64 {
        // Counts no time as work, because test builds are slow.
        || 0
    }
    fn name(&self) -> &'static str {
        "memory"
    }
}

impl Memory {
    fn start(&mut self, queue: &mut Queue) {
        for op in queue.ops.drain(..) {
            match op {
                Op::Send { start, end, .. } => {
                    self.outgoing.extend_from_slice(&queue.output[start as usize..end as usize]);
                }
                Op::SendBytes { bytes, .. } => {
                    self.outgoing.extend_from_slice(&bytes);
                    self.drained = true;
                }
                Op::PauseRecv { .. } => self.paused = self.lent_buffer.is_none(),
                Op::ResumeRecv { .. } => (self.paused, self.lent_buffer) = (false, None),
                Op::ReceiveInto { buffer, room, .. } => (self.paused, self.lent_buffer) = (false, Some((buffer, room))),
                _ => {}
            }
        }
        queue.output.clear();
    }
}
