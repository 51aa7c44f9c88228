//! The HTTP/1, HTTP/2 and WebSocket protocols without I/O: turns received bytes into events, and turns method calls into bytes to
//! send.
//!
//! A caller owns the sockets, the buffers and the clock. For each HTTP/1 connection it keeps the bytes that are
//! received but unread (the *window*), and drives one [`h1::Connection`]:
//!
//! 1. append the received bytes to the window;
//! 2. call [`h1::Connection::receive`] with the window: it returns one [`Event`] and the number of bytes that it took;
//! 3. act on the event, drop those bytes from the window, and repeat from 2 until the event is [`Event::NeedMore`] or
//!    [`Event::Paused`];
//! 4. to send a response, call [`h1::Connection::send_response`], [`send_data`](h1::Connection::send_data) and
//!    [`send_end`](h1::Connection::send_end): each appends bytes to a vector that the caller sends.
//!
//! The modules [`h2`] and [`ws`] describe the same loop for HTTP/2 and WebSocket. Each connection has a [`Role`]. A server receives requests and
//! sends responses; a client sends requests and receives responses.
//!
//! Apart from [`Event::NeedMore`], and from the division of a body into [`Event::Data`], the events do not depend on
//! how the input was split.
// docs.rs builds with nightly: each item that needs a feature shows it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod error;
mod event;
mod head;
mod limits;
mod states;
mod target;

pub mod h1;
pub mod h2;
pub mod hpack;
pub mod scan;
pub mod testing;
pub mod ws;

pub use error::{Culprit, Error};
pub use event::{Event, Length, Received, Role};
pub use head::{Field, Head, Known, Method, Span, Version};
pub use limits::Limits;
pub use target::{Form, Target, is_host};
