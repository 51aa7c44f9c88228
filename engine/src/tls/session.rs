//! One side of one TLS connection. A [`Session`] decrypts received bytes and encrypts sent ones; it has no socket and
//! no clock of its own.
//!
//! A session uses rustls's `UnbufferedServerConnection` or `UnbufferedClientConnection`. Compared with the buffered
//! connections of rustls 0.23, the following holds:
//!
//! - Idle connections need less memory. The buffered connection keeps a receive buffer of 4 KiB all the time, and takes
//!   its input 4 KiB at a time. The unbuffered one works on a buffer of ours. Each thread has such a buffer and lends
//!   it to a session for the length of a call. A session owns memory for input only while a record or message is
//!   incomplete.
//! - The number of copies is the same. Received bytes are copied into the buffer (where records are decrypted in
//!   place), then into a `Vec` that rustls makes for each record, then to the caller. Sent bytes are copied into a
//!   `Vec` for each record, then into the caller's buffer. `highwire/examples/tls_cost.rs` times both interfaces, and
//!   showed no difference on a busy machine. rustls 0.24 removes both `Vec`s and this interface; users of `Session` do
//!   not see which interface it uses.
//!
//! The code below follows rules of that interface that are not in its documentation:
//!
//! - rustls finds the first part of a split handshake message by its position in the buffer. Therefore every call
//!   before an error must pass the pending bytes, even one that only sends.
//! - After an error, the alert is still queued. Queued records must be taken only while there are any, because one more
//!   call would process the broken record again and queue a second alert, which fails an assertion in rustls.
//! - After our own `close_notify`, a broken record would fail the same assertion. Therefore nothing is processed from
//!   then on.

use super::der;
use super::error::TlsError;
use super::side::{Client, Server, Side};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// The most bytes that a peer may send before its handshake is complete, and the most bytes of an incomplete record or
/// message that are kept later. A client hello usually has 0.5 to 2 KiB, and a chain of client certificates up to 10
/// KiB; rustls accepts messages of at most 64 KiB.
pub const HANDSHAKE_BYTES: usize = 64 * 1024;

/// The most bytes of plaintext in a record (RFC 8446 section 5.1).
pub const RECORD_BYTES: usize = 16 * 1024;

/// The number of bytes that a record may add to its plaintext: header, explicit nonce, content type, tag. The output
/// grows by this number per record before encryption and shrinks afterwards. If the room is too small, a second attempt
/// makes more.
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;

/// The largest capacity in bytes of the buffer that a thread keeps for its sessions. Such a buffer has room for the
/// longest pending bytes and as many received ones.
const SPARE_BYTES: usize = 2 * HANDSHAKE_BYTES;

/// The number of bytes before a record's content: kind, version, length (RFC 8446 section 5.1).
const RECORD_HEAD: usize = 5;

/// The content type of handshake records. The first record of a client has it.
pub(super) const HANDSHAKE: u8 = 0x16;

/// A fatal `handshake_failure` without encryption (RFC 8446 section 6). It is sent if a handshake fails before this
/// side has sent anything and rustls has no alert for the error. That is so for [`TlsError::TooMuchHandshake`] and some
/// errors of rustls.
const HANDSHAKE_FAILURE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

thread_local! {
    /// The buffer that this thread lends to a session while the session receives bytes.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// The handshake is in progress. [`Session::send`] returns an error.
    Handshaking,
    /// The handshake is complete. Both sides can send.
    Open,
    /// The peer has sent `close_notify` and sends nothing more. We can still send.
    PeerClosed,
    /// This side has closed the session, or the session has failed. Received bytes are not processed.
    Closed,
}

/// The version of TLS that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Version {
    /// Returns the version as logs and CGI write it, such as `TLSv1.3`.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }
}

/// The certificate that a client has proved to own.
#[derive(Clone, Copy, Debug)]
pub struct ClientCertificate<'a> {
    chain: &'a [CertificateDer<'static>],
}

impl<'a> ClientCertificate<'a> {
    /// Returns the certificate in DER.
    pub fn der(&self) -> &'a [u8] {
        self.chain.first().map_or(&[], |leaf| leaf.as_ref())
    }

    /// Returns the chain that the client has presented, in DER, beginning with its own certificate.
    pub fn chain(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.chain.iter().map(|certificate| certificate.as_ref())
    }

    /// Returns the subject in the format of RFC 4514 (`CN=alice,O=Example`), with control characters escaped; `None` if
    /// the certificate cannot be parsed. Each call parses the certificate.
    pub fn subject(&self) -> Option<String> {
        der::facts(self.der()).map(|facts| facts.subject)
    }

    /// Returns the DNS names in the certificate, in lower case. Each call parses the certificate.
    pub fn names(&self) -> Vec<String> {
        der::facts(self.der()).map(|facts| facts.names).unwrap_or_default()
    }
}

/// One side of one TLS connection: the server's side, or the client's side in a `Session<Client>`.
pub struct Session<S: Side = Server> {
    connection: S::Connection,
    /// Received bytes of a record or handshake message that is incomplete.
    pending: Vec<u8>,
    /// The number of bytes that were processed before the handshake was complete.
    handshake_bytes: usize,
    server_name: Option<Box<str>>,
    /// True if there have been records to send to the peer. An unencrypted alert may be wrong after that.
    answered: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// No byte has been received.
    Fresh,
    Running,
    PeerClosed,
    Closed,
    Failed(Box<TlsError>),
}

impl<S: Side> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stage", &self.stage)
            .field("handshaking", &self.is_handshaking())
            .field("server_name", &self.server_name)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

impl<S: Side> Session<S> {
    fn new(connection: S::Connection, server_name: Option<Box<str>>) -> Session<S> {
        Session {
            connection,
            pending: Vec::new(),
            handshake_bytes: 0,
            server_name,
            answered: false,
            stage: Stage::Fresh,
        }
    }
}

impl Session<Server> {
    /// Creates a session that waits for a client's first bytes. [`Reload::current`](super::Reload::current) returns the
    /// configuration for it.
    ///
    /// # Errors
    /// Returns an error, usually [`TlsError::Local`], if the configuration cannot be used.
    pub fn accept(config: Arc<ServerConfig>) -> Result<Session, TlsError> {
        Ok(Session::new(UnbufferedServerConnection::new(config)?, None))
    }

    /// Returns the verified certificate of the client; `None` during the handshake, and if the client has presented
    /// none.
    pub fn client_certificate(&self) -> Option<ClientCertificate<'_>> {
        self.peer_certificates().map(|chain| ClientCertificate { chain })
    }
}

impl Session<Client> {
    /// Creates a session with the server that has `name`, and appends the client's first message to `out`. The server's
    /// certificate must be valid for that name, as far as the configuration verifies certificates.
    ///
    /// # Errors
    /// Returns an error, usually [`TlsError::Local`], if the configuration cannot be used.
    pub fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        out: &mut Vec<u8>,
    ) -> Result<Session<Client>, TlsError> {
        let shown = name.to_str().into_owned().into_boxed_str();
        let mut session = Session::new(UnbufferedClientConnection::new(config, name)?, Some(shown));
        session.process(&mut [], &mut 0, &mut Vec::new(), out)?;
        session.answered = true;
        Ok(session)
    }

    /// Returns the certificates that the server has presented, in DER, beginning with the server's own. Returns `None`
    /// during the handshake.
    pub fn server_certificates(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.peer_certificates().map(|chain| chain.iter().map(|certificate| certificate.as_ref()))
    }
}

impl<S: Side> Session<S> {
    /// Processes received bytes, which may be split anywhere. Appends the decrypted bytes to `plain`, at most as many
    /// as were pending or are received now. Appends to `out` the records that must be sent now, also after an error:
    /// handshake records, tickets, an alert.
    ///
    /// Bytes that the peer sends after its `close_notify`, or after [`close`](Session::close), are dropped.
    ///
    /// # Errors
    /// Returns an error if the session fails; every later call returns the same error. The bytes decrypted before it
    /// are in `plain`. The alert for the peer is in `out`, except for [`TlsError::NotTls`] and [`TlsError::Refused`],
    /// which need none, and for a few errors after the first answer, for which rustls makes none.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Progress, TlsError> {
        match (&self.stage, bytes.first()) {
            (Stage::Failed(error), _) => return Err(TlsError::clone(error)),
            (Stage::PeerClosed | Stage::Closed, _) | (_, None) => return Ok(self.progress()),
            (Stage::Fresh, Some(&first)) if S::may_begin_with(first) => self.stage = Stage::Running,
            (Stage::Fresh, Some(&first)) => return Err(self.fail(TlsError::NotTls { first })),
            (Stage::Running, _) => {}
        }
        let mut input = if self.pending.capacity() == 0 { SPARE.take() } else { std::mem::take(&mut self.pending) };
        input.extend_from_slice(bytes);
        let (mut used, start) = (0, out.len());
        // Drops the server name that a failed session may have left on this thread.
        let _ = S::take_server_name();
        let mut result = self.process(&mut input, &mut used, plain, out);
        if result.is_ok() && matches!(self.stage, Stage::Running) {
            self.keep(&mut input, used);
            let unfinished = if self.is_handshaking() { self.handshake_bytes } else { 0 } + self.pending.len();
            if unfinished > HANDSHAKE_BYTES {
                result = Err(TlsError::TooMuchHandshake);
            }
        }
        lend_again(input);
        if let Err(error) = result {
            self.take_queued(out);
            // An alert is not answered with another.
            if !self.answered && out.len() == start && !matches!(error, TlsError::Refused(_)) {
                out.extend_from_slice(&HANDSHAKE_FAILURE);
            }
            return Err(self.fail(error));
        }
        self.answered |= out.len() > start;
        Ok(self.progress())
    }

    /// Encrypts `plain` and appends the records to `out`. All records but the last hold [`RECORD_BYTES`] of plaintext,
    /// so one call with a whole answer makes the fewest records. Appends nothing for an empty `plain`.
    ///
    /// # Errors
    /// Returns [`TlsError::NotOpen`] during the handshake and after [`close`](Session::close). Returns
    /// [`TlsError::Local`] if the keys of a TLS 1.2 session are used up (after 2^24 records or more); a `close_notify`
    /// is in `out` then. After a failure, returns the same error again.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.check_open()?;
        if plain.is_empty() {
            return Ok(());
        }
        let room = plain.len() + plain.len().div_ceil(RECORD_BYTES) * RECORD_OVERHEAD;
        match self.write(room, out, |traffic, room| traffic.encrypt(plain, room)) {
            Err(Refused::Exhausted) => {
                self.take_queued(out);
                Err(self.fail(TlsError::Local("the session's keys are used up".to_owned())))
            }
            Err(Refused::Engine(error)) => Err(self.fail(error)),
            Ok(()) => Ok(()),
        }
    }

    /// Appends a `close_notify` to `out`, which tells the peer that nothing more follows. Without it the peer cannot
    /// tell a whole answer from a part of one (RFC 8446 section 6.1). Does nothing during the handshake, after an
    /// error, or if the session is closed.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.check_open().is_err() {
            return;
        }
        // An alert has two bytes. If it cannot be written, the socket closes anyway.
        let _ = self.write(2 + RECORD_OVERHEAD, out, |traffic, room| traffic.queue_close_notify(room));
        self.stage = Stage::Closed;
        self.pending = Vec::new();
    }

    /// Returns the progress of the session; a failed one counts as [`Progress::Closed`].
    pub fn progress(&self) -> Progress {
        match self.stage {
            Stage::Closed | Stage::Failed(_) => Progress::Closed,
            Stage::PeerClosed => Progress::PeerClosed,
            Stage::Fresh | Stage::Running if self.is_handshaking() => Progress::Handshaking,
            Stage::Fresh | Stage::Running => Progress::Open,
        }
    }

    /// Returns true if the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns the protocol that both sides agreed on by ALPN; `None` if they agreed on none.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Returns the server name that the client asked for, in lower case on the server's side; `None` if it sent none.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the version, once both sides have agreed on it.
    pub fn version(&self) -> Option<Version> {
        match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => Some(Version::Tls12),
        }
    }

    /// Returns the cipher suite by its IANA name, once both sides have agreed on it.
    pub fn cipher(&self) -> Option<&'static str> {
        self.connection.negotiated_cipher_suite()?.suite().as_str()
    }

    /// Returns the peer's certificates, once they are verified.
    fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        let chain = self.connection.peer_certificates().filter(|chain| !chain.is_empty())?;
        (!self.is_handshaking()).then_some(chain)
    }

    /// Returns true if the session was resumed from an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the number of bytes of memory that the session holds for incomplete records.
    pub fn held_bytes(&self) -> usize {
        self.pending.capacity()
    }

    /// Returns true if the pending bytes and `bytes` begin with a complete record. If they are too few to contain its
    /// length, returns true only if they do not begin a handshake record.
    pub(crate) fn completes_record(&self, bytes: &[u8]) -> bool {
        let held = &self.pending;
        let at = |place: usize| held.get(place).or_else(|| bytes.get(place.checked_sub(held.len())?)).copied();
        let (Some(high), Some(low)) = (at(3), at(4)) else { return at(0).is_some_and(|kind| kind != HANDSHAKE) };
        held.len() + bytes.len() >= RECORD_HEAD + usize::from(u16::from_be_bytes([high, low]))
    }

    /// Processes records until rustls needs more input, the peer has closed the session, or an error occurs.
    fn process(
        &mut self,
        input: &mut [u8],
        used: &mut usize,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        loop {
            let was_handshaking = self.connection.is_handshaking();
            let UnbufferedStatus { mut discard, state } = S::process(&mut self.connection, &mut input[*used..]);
            let mut wait = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, out)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    self.stage = Stage::PeerClosed;
                    wait = true;
                }
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => wait = true,
                // Early data is not offered, and rustls 0.23 has no other states.
                other => return Err(TlsError::Local(format!("rustls is in the unexpected state {other:?}"))),
            }
            *used += discard;
            if was_handshaking {
                self.handshake_bytes += discard;
                if let Some(name) = S::take_server_name() {
                    self.server_name = Some(name);
                }
            }
            if wait {
                return Ok(());
            }
        }
    }

    /// Keeps the unused input. If the unused input fills at least half of its buffer, the session keeps that buffer, so
    /// that a record in many small pieces is not copied for each piece. Otherwise the input moves to a buffer of its
    /// own size.
    fn keep(&mut self, input: &mut Vec<u8>, used: usize) {
        let rest = input.len() - used;
        if rest > 0 && rest >= input.capacity() / 2 {
            input.drain(..used);
            self.pending = std::mem::take(input);
        } else if rest > 0 {
            self.pending = input[used..].to_vec();
        }
    }

    /// Appends the records that rustls has queued, and then calls `write` with `room` bytes of free space at the end of
    /// `out`, or with more if `write` needs more.
    fn write(
        &mut self,
        room: usize,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut WriteTraffic<'_, S::Data>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), Refused> {
        let start = out.len();
        out.resize(start + room, 0);
        let mut end = start;
        let result = loop {
            let UnbufferedStatus { discard, state } = S::process(&mut self.connection, &mut self.pending);
            let done = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => match write(&mut traffic, &mut out[end..]) {
                    Ok(written) => {
                        end += written;
                        Some(Ok(()))
                    }
                    Err(EncryptError::InsufficientSize(needed)) if out.len() < end + needed.required_size => {
                        out.resize(end + needed.required_size, 0);
                        None
                    }
                    Err(_) => Some(Err(Refused::Exhausted)),
                },
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    out.truncate(end);
                    let encoded = encode(data, out);
                    end = out.len();
                    out.resize(end + room, 0);
                    encoded.err().map(|error| Err(Refused::Engine(error)))
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed) => None,
                Ok(other) => {
                    Some(Err(Refused::Engine(TlsError::Local(format!("rustls cannot send in the state {other:?}")))))
                }
                Err(error) => Some(Err(Refused::Engine(error.into()))),
            };
            self.pending.drain(..discard);
            if let Some(result) = done {
                break result;
            }
        };
        out.truncate(end);
        result
    }

    /// Appends the records that are queued for the peer, such as an alert. Passes no input to rustls; see the rules at
    /// the head of this file.
    fn take_queued(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            match S::process(&mut self.connection, &mut []).state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    if encode(data, out).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => while traffic.next_record().is_some() {},
                _ => return,
            }
        }
    }

    fn check_open(&self) -> Result<(), TlsError> {
        match &self.stage {
            Stage::Failed(error) => Err(TlsError::clone(error)),
            Stage::Running | Stage::PeerClosed if !self.is_handshaking() => Ok(()),
            _ => Err(TlsError::NotOpen),
        }
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.stage = Stage::Failed(Box::new(error.clone()));
        self.pending = Vec::new();
        error
    }
}

/// The reason why `write` has failed.
enum Refused {
    Exhausted,
    Engine(TlsError),
}

/// Empties a buffer and gives it back to the thread. Frees one that is too large.
fn lend_again(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// Appends a record that rustls has ready.
fn encode<Side>(mut data: EncodeTlsData<'_, Side>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    let start = out.len();
    let mut room = 0;
    // The first attempt finds the size that is needed, and the second one writes.
    for _ in 0..2 {
        out.resize(start + room, 0);
        match data.encode(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needed)) => room = needed.required_size,
            Err(error) => return Err(TlsError::Local(error.to_string())),
        }
    }
    Err(TlsError::Local("rustls needs more room than it announced".to_owned()))
}
