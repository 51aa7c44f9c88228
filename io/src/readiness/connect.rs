//! Attempts to connect.

use super::{BOTH, Readiness, attempt_token};
use crate::{Address, Completion, Queue, Sink, SocketId, socket};
use std::io;

impl Readiness {
    pub(super) fn connect(&mut self, token: u64, address: &Address) {
        if let Err(error) = self.begin_to_connect(token, address) {
            self.refused.push_back((token, error));
        }
    }

    fn begin_to_connect(&mut self, token: u64, address: &Address) -> io::Result<()> {
        self.connecting.check(token)?;
        let attempt = self.connecting.insert(token, socket::connect(address)?)?;
        let Some((stream, _)) = self.connecting.get(attempt) else { return Ok(()) };
        socket::register(self.poll.registry(), stream, attempt_token(attempt), BOTH).inspect_err(|_| {
            self.connecting.remove(attempt);
        })
    }

    pub(super) fn cancel_connect(&mut self, token: u64) {
        // Dropping the socket also removes it from the poll.
        self.connecting.cancel(token);
        self.refused.retain(|(refused, _)| *refused != token);
    }

    /// Checks a connection attempt for which the kernel has reported an event, and reports its result unless the
    /// attempt is still in progress.
    pub(super) fn attempted<S: Sink>(&mut self, attempt: SocketId, queue: &mut Queue, sink: &mut S) {
        let Some((stream, peer)) = self.connecting.get(attempt) else { return };
        let connected = match socket::finish_connect(stream, *peer) {
            Ok(false) => {
                if !socket::KEEPS_EVENTS {
                    let _ = socket::reregister(self.poll.registry(), stream, attempt_token(attempt), BOTH);
                }
                return;
            }
            connected => connected,
        };
        let Some((token, (mut stream, peer))) = self.connecting.remove(attempt) else { return };
        // The new registration also reports bytes that have already arrived.
        let inserted = connected
            .and_then(|_| socket::deregister(self.poll.registry(), &mut stream))
            .and_then(|()| self.insert(stream, peer));
        let completion = match inserted {
            Ok(socket) => Completion::Connected { token, socket },
            Err(error) => Completion::ConnectFailed { token, error },
        };
        sink.complete(completion, queue);
        self.start(queue);
    }
}
