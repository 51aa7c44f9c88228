//! Ports for programs that cannot choose one themselves.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a port that is free now. It lies outside of the system's ephemeral ports, so no socket of another test gets it by
/// chance in the meantime, and this process gets no port twice.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// Returns the first of several ports in a row; see [`free_port`].
pub fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = u32::from(NEXT.fetch_add(count, Ordering::Relaxed)) + std::process::id() * 64;
        let first = 10_000 + (number % 20_000) as u16;
        if (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
}
