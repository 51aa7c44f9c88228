//! The side of a worker that other threads use to wake it and to leave connections and requests for it.

#[cfg(feature = "call")]
use crate::call::inbox::Inbox;
use highwire_io::Socket;
use highwire_io::wake::Notifier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A worker as other threads see it.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) notifier: Notifier,
    /// The number of connections. The acceptor chooses the worker with the fewest.
    pub(crate) connections: AtomicU32,
    /// Identifies the handler call that the worker is running; see [`beat_of`](Self::beat_of). It is 0 while no handler
    /// runs.
    pub(crate) beat: Arc<AtomicU64>,
    /// Connections that wait for the worker, each with the number of its listener.
    handed: Mutex<Vec<(Socket, usize)>>,
    /// Requests of this process that wait for the worker.
    #[cfg(feature = "call")]
    pub(crate) inbox: Arc<Inbox>,
}

impl Remote {
    pub(crate) fn new(notifier: Notifier, beat: Arc<AtomicU64>) -> Remote {
        Remote {
            notifier,
            connections: AtomicU32::new(0),
            beat,
            handed: Mutex::default(),
            #[cfg(feature = "call")]
            inbox: Arc::default(),
        }
    }

    /// Returns the beat of a handler's call or poll: the number `call` in the high half, so that two calls in a row
    /// differ, and the route plus one in the low half.
    pub(crate) fn beat_of(call: u32, route: u32) -> u64 {
        u64::from(call) << 32 | u64::from(route + 1)
    }

    /// Gives the worker a connection.
    pub(crate) fn hand(&self, socket: Socket, listener: usize) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).push((socket, listener));
        self.notifier.notify();
    }

    /// Returns true if connections wait for the worker.
    pub(crate) fn has_handed(&self) -> bool {
        !self.handed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes the waiting connections.
    pub(crate) fn take_handed(&self) -> Vec<(Socket, usize)> {
        std::mem::take(&mut *self.handed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
