//! The two sides of a TLS connection, with the steps of a [`Session`](super::Session) that differ between them.

use super::resolve;
use super::session::HANDSHAKE;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{UnbufferedConnectionCommon, UnbufferedStatus};
use std::ops::DerefMut;

/// The content type of alert records.
const ALERT: u8 = 0x15;

/// A side of a TLS connection: [`Server`] or [`Client`].
pub trait Side: sealed::Sealed + 'static {
    #[doc(hidden)]
    type Data;
    #[doc(hidden)]
    type Connection: DerefMut<Target = UnbufferedConnectionCommon<Self::Data>>;

    /// Lets rustls process the records in `input`.
    #[doc(hidden)]
    fn process<'c, 'i>(
        connection: &'c mut Self::Connection,
        input: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns true if the peer's bytes may begin with the byte `first`.
    #[doc(hidden)]
    fn may_begin_with(first: u8) -> bool;

    /// Takes the server name of the client hello that this thread has just processed, if there is one. Returns `None`
    /// on a client.
    #[doc(hidden)]
    fn take_server_name() -> Option<Box<str>>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Server {}
    impl Sealed for super::Client {}
}

/// The side that waits for a handshake.
#[derive(Clone, Copy, Debug)]
pub enum Server {}

/// The side that begins a handshake.
#[derive(Clone, Copy, Debug)]
pub enum Client {}

impl Side for Server {
    type Data = ServerConnectionData;
    type Connection = UnbufferedServerConnection;

    fn process<'c, 'i>(
        connection: &'c mut UnbufferedServerConnection,
        input: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        connection.process_tls_records(input)
    }

    fn may_begin_with(first: u8) -> bool {
        first == HANDSHAKE
    }

    fn take_server_name() -> Option<Box<str>> {
        resolve::take_asked()
    }
}

impl Side for Client {
    type Data = ClientConnectionData;
    type Connection = UnbufferedClientConnection;

    fn process<'c, 'i>(
        connection: &'c mut UnbufferedClientConnection,
        input: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        connection.process_tls_records(input)
    }

    /// A server may also begin with an alert that refuses the handshake.
    fn may_begin_with(first: u8) -> bool {
        first == HANDSHAKE || first == ALERT
    }

    fn take_server_name() -> Option<Box<str>> {
        None
    }
}
