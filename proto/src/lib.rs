//! Bytes to events and commands to bytes: the protocols of Highwire without I/O.
//!
//! A caller owns the sockets, the buffers and the clock. For each connection it keeps the bytes that are received
//! but unread (the *window*), and drives one [`h1::Connection`]:
//!
//! 1. append what arrived to the window;
//! 2. call [`h1::Connection::receive`] with the window: it answers with one [`Event`] and how many bytes it took;
//! 3. drop those bytes from the window, act on the event, and repeat from 2 until it answers [`Event::NeedMore`]
//!    or [`Event::Paused`];
//! 4. to answer, call [`h1::Connection::send_response`], [`send_data`](h1::Connection::send_data) and
//!    [`send_end`](h1::Connection::send_end): each appends bytes to a vector that the caller sends.
//!
//! Both roles live in one code base: a server receives requests and sends responses, a client the other way round.
//! Any split of the input gives the same events, an invariant that every test of this crate checks.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod error;
mod event;
mod head;
mod limits;
mod target;

pub mod h1;
pub mod h2;
pub mod hpack;
pub mod scan;
pub mod testing;

pub use error::{Culprit, Error};
pub use event::{Event, Length, Received, Role};
pub use head::{Field, Head, Known, Method, Span, Version};
pub use limits::Limits;
pub use target::{Form, Target, is_host};
