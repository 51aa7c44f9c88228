//! Checks the contract of [`crate::driver`], for tests and fuzzing: plays programs of operations on a driver and its
//! clients.
//!
//! A program is a byte string. It encodes the steps of the clients and of the event loop, which performs some of its
//! steps from within the sink. [`run`] plays a program on any [`Peers`], which are a driver and the clients at the
//! other ends of its connections, and panics if the driver breaks the contract. After the last step, all sides read the
//! remaining bytes and close, and every connection must end. [`driver`] plays a program on the simulator, and
//! `io/tests/all/contract.rs` on the real drivers.

mod model;
mod player;
mod program;
mod receive_into;
mod simulated;
mod stream;

use crate::file::File;
use crate::sim::Arrived;
use crate::{Address, Driver, Instant};
use std::sync::Arc;
use std::time::Duration;

pub use simulated::driver;

/// A driver, and the clients at the other ends of its connections. Clients are numbered from 0, in the order in which
/// [`connect`](Self::connect) and [`expect`](Self::expect) add them.
pub trait Peers {
    /// The type of the driver.
    type Driver: Driver;

    /// Returns the driver.
    fn driver(&mut self) -> &mut Self::Driver;

    /// Returns the properties of these peers and of the kernel or simulator behind them.
    fn traits(&self) -> Traits;

    /// Connects a client to the driver's listener. Returns the client's port, or `None` if the transport has no ports.
    fn connect(&mut self) -> Option<u16>;

    /// Adds a client that waits for the driver to connect to it. Returns the client's address.
    fn expect(&mut self) -> Address;

    /// Returns true if a client of [`expect`](Self::expect) has a connection. First accepts the driver's connection to
    /// the client if it has arrived.
    fn is_accepted(&mut self, client: usize) -> bool;

    /// Sends bytes from a client without waiting. Returns how many bytes were taken.
    fn send(&mut self, client: usize, bytes: &[u8]) -> usize;

    /// Receives at most `most` bytes at a client. Returns `None` if nothing has arrived.
    fn receive(&mut self, client: usize, most: usize) -> Option<Arrived>;

    /// Closes a client's sending direction.
    fn shutdown(&mut self, client: usize);

    /// Resets a client's connection.
    fn reset(&mut self, client: usize);

    /// Closes a client's socket.
    fn close(&mut self, client: usize);

    /// Returns true if the client's connection is over. Leaves received bytes in place.
    fn is_gone(&mut self, client: usize) -> bool;

    /// Returns true if a fault has broken the connection, or the client has no socket.
    fn is_broken(&self, client: usize) -> bool;

    /// Creates a file with this content, from which the driver can send.
    fn file(&self, content: &[u8]) -> Arc<dyn File>;

    /// Returns the moment until which the next turn may wait. Advances the time if it is virtual.
    fn until(&mut self) -> Instant;

    /// If the time is virtual, advances it and returns true. Otherwise returns false.
    fn pass(&mut self, time: Duration) -> bool;

    /// Returns the number of sockets that the driver holds, or `None` if it is unknown.
    fn sockets(&self) -> Option<usize>;

    /// Begins a wait. [`is_patient`](Self::is_patient) limits the length of the wait.
    fn begin_to_wait(&mut self);

    /// Returns true if the player should keep waiting. The player calls this once per turn of the wait.
    fn is_patient(&mut self) -> bool;
}

/// The properties of a kind of peers and of the kernel or simulator behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// True if the other end sees a reset when a connection is broken. On a unix socket, the other end sees a normal
    /// end, unless the socket was closed with unread bytes.
    pub resets_show: bool,
    /// The most bytes of one direction that the kernel holds for an accepted connection.
    pub capacity: u64,
    /// True if connection attempts of the driver may fail.
    pub connects_fail: bool,
    /// The most bytes that a loop sends on one connection: enough to fill every buffer on the way.
    pub most: u64,
}

/// Plays a program and checks the driver's reports.
///
/// # Panics
/// Panics if the driver breaks its contract.
pub fn run<P: Peers>(program: &[u8], peers: P) {
    player::Player::new(peers).play(&program::steps(program));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seeded;

    /// Programs that have found mistakes, and are named for them. Their first three bytes choose the faults and the
    /// seed. Then each step has three bytes.
    const CASES: &[(&str, &[u8])] = &[
        // Sends of more than the link holds, Close, and a client that never reads.
        ("a closed socket waits forever", &[0, 0, 1, 32, 0, 0, 63, 0, 0, 14, 0, 255, 14, 0, 255, 14, 0, 255, 58, 0, 0]),
        // The client ends its direction and resets, then SendBytes.
        (
            "bytes sent after the end neither drain nor fail",
            &[0, 0, 1, 32, 0, 0, 63, 0, 0, 43, 0, 0, 12, 0, 0, 51, 0, 0],
        ),
        // Sends of more than the link holds, Close, Send; the client reads.
        (
            "a closed socket sends more",
            &[
                0, 0, 1, 32, 0, 0, 63, 0, 0, 14, 0, 255, 14, 0, 255, 14, 0, 255, 26, 0, 0, 46, 0, 255, 40, 0, 255, 40,
                0, 255, 40, 0, 255, 40, 0, 255,
            ],
        ),
        // SendBytes of one byte and, in the same turn, Sends of more than the link holds.
        (
            "Drained is reported while bytes wait",
            &[0, 0, 1, 32, 0, 0, 63, 0, 0, 19, 0, 0, 14, 0, 255, 14, 0, 255, 46, 0, 255, 63, 0, 0],
        ),
    ];

    #[test]
    fn what_the_simulator_did_wrong() {
        for (name, program) in CASES {
            println!("{name}");
            driver(program);
        }
    }

    #[test]
    fn the_simulator_keeps_the_contract() {
        for seed in 0..300 {
            let mut random = Seeded::new(seed);
            let length = 6 + random.below(240);
            let program: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            driver(&program);
        }
    }
}
