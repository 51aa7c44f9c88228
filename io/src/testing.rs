//! For tests and fuzzing: programs of operations, played on a driver by both sides, that check the contract of
//! [`crate::driver`].
//!
//! A program is bytes: what clients and loop do, step by step, some of it from within the sink. [`run`] plays it over
//! any [`Peers`], which are a driver and the clients at the other ends of its connections, and panics where the driver
//! breaks the contract. Afterwards everybody reads on and finishes, and everything has to come to its end.
//! [`driver`] plays over the simulator; `io/tests/contract.rs` over the real drivers.

mod model;
mod player;
mod program;
mod simulated;

use crate::file::File;
use crate::sim::Arrived;
use crate::{Address, Driver, Instant};
use std::sync::Arc;
use std::time::Duration;

pub use simulated::driver;

/// A driver, and the clients at the other ends of its connections, numbered from 0 in the order in which they come.
pub trait Peers {
    /// The driver.
    type Driver: Driver;

    /// The driver.
    fn driver(&mut self) -> &mut Self::Driver;

    /// What these peers and their kernel can do.
    fn traits(&self) -> Traits;

    /// Connects a client to the driver's listener: the port that the driver sees it at, where it sees one.
    fn connect(&mut self) -> Option<u16>;

    /// Adds a client that waits for the driver to connect to it. Returns where.
    fn expect(&mut self) -> Address;

    /// Returns true once the driver has connected to a client of [`expect`](Self::expect), which the client accepts now.
    fn is_accepted(&mut self, client: usize) -> bool;

    /// Sends from a client: how many bytes were taken, at once.
    fn send(&mut self, client: usize, bytes: &[u8]) -> usize;

    /// What a client finds, at most so many bytes; `None` where nothing has come.
    fn receive(&mut self, client: usize, most: usize) -> Option<Arrived>;

    /// Ends a client's direction.
    fn shutdown(&mut self, client: usize);

    /// Breaks a client's connection.
    fn reset(&mut self, client: usize);

    /// Closes a client's socket.
    fn close(&mut self, client: usize);

    /// Whether the connection is over for a client, seen without receiving.
    fn is_gone(&mut self, client: usize) -> bool;

    /// Whether a fault has broken the connection.
    fn is_broken(&self, client: usize) -> bool;

    /// A file with this content, for the driver to send of.
    fn file(&self, content: &[u8]) -> Arc<dyn File>;

    /// Begins a turn: until when it may wait. Virtual time moves on here.
    fn until(&mut self) -> Instant;

    /// Lets time pass, where it is virtual: whether it is.
    fn pass(&mut self, time: Duration) -> bool;

    /// Sockets that the driver holds, where it tells.
    fn sockets(&self) -> Option<usize>;

    /// Begins to wait for something; [`is_patient`](Self::is_patient) counts from here.
    fn begin_to_wait(&mut self);

    /// Whether to go on waiting for what has to happen.
    fn is_patient(&mut self) -> bool;
}

/// What a kind of peers and their kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Breaking a connection shows as such at its other end. A unix socket that closes looks like a plain end there,
    /// unless it left something unread.
    pub resets_show: bool,
    /// Bytes of one direction that the kernel may hold for an accepted connection.
    pub capacity: u64,
    /// Connection attempts of the driver may fail.
    pub connects_fail: bool,
    /// Bytes that a loop asks to be sent on one connection: enough to fill every buffer on the way.
    pub most: u64,
}

/// Plays a program.
///
/// # Panics
/// Where the driver breaks its contract.
pub fn run<P: Peers>(program: &[u8], peers: P) {
    player::Player::new(peers).play(&program::steps(program));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seeded;

    /// Programs named for what a driver did wrong: faults and seed, then three bytes a step.
    const CASES: &[(&str, &[u8])] = &[
        // Sends of more than the link holds, Close, and a client that never reads.
        (
            "a closed socket waits for ever",
            &[0, 0, 1, 32, 0, 0, 63, 0, 0, 14, 0, 255, 14, 0, 255, 14, 0, 255, 58, 0, 0],
        ),
        // The client ends its direction and resets, then SendBytes.
        (
            "what is sent after an end neither drains nor fails",
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
        // SendBytes of one byte and Sends of more than the link holds in one turn.
        (
            "drained is told of what still waits",
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
