//! One connection's TLS: ciphertext in, plaintext out, and the other way round. No sockets, no clock of its own.
//!
//! The engine under it is rustls's `UnbufferedServerConnection`. Compared with the buffered `ServerConnection`, on 0.23:
//!
//! - Idle memory. The buffered one keeps 4 KiB of receive buffer for as long as a connection lives, and takes its input
//!   4 KiB at a time. This one works on a buffer of ours. It is a spare one of the thread, lent for the length of a
//!   call, and a session owns memory for input only while a record is incomplete.
//! - Copies are the same. To receive: into the buffer (records are decrypted in place), out of it into a `Vec` that
//!   rustls makes for each record, and from there to the caller. To send: a `Vec` for each record, then the caller's
//!   buffer. `examples/tls_cost.rs` times both interfaces: the same, as far as a busy machine could tell. rustls 0.24
//!   drops both `Vec`s and this whole interface; the session hides which one it is.
//!
//! Rules of that interface that are not in its documentation, and that the code below follows:
//!
//! - What is held back of a handshake message in parts is found by its place in the buffer, so every call gets the bytes
//!   that are still pending, also one that only wants to send.
//! - After an error the alert is still queued. It is taken out while something is queued and no longer: one more call
//!   would look at the broken record again and queue a second alert, which asserts.
//! - After our own `close_notify` a broken record would do the same: from then on nothing is processed.

use super::error::TlsError;
use super::{der, resolve};
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// What a peer may send before its handshake is done, and what of a message in parts is kept after it, in bytes. A
/// client hello has 0.5 to 2 KiB, a chain of client certificates up to 10; rustls takes messages of 64 KiB at most.
pub const HANDSHAKE_BYTES: usize = 64 * 1024;

/// The most plaintext of a record (RFC 8446 section 5.1).
pub const RECORD_BYTES: usize = 16 * 1024;

/// What a record adds to its plaintext at most: header, explicit nonce, content type, tag. Room for it is made before
/// encrypting and given back after; too little costs a second try only.
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;

/// What the buffer that a thread lends its sessions keeps of its size: the largest receive behind the longest rest.
const SPARE_BYTES: usize = 2 * HANDSHAKE_BYTES;

/// Bytes before a record's content: kind, version, length (RFC 8446 section 5.1).
const RECORD_HEAD: usize = 5;

/// The content type of handshake records, which every TLS connection begins with.
pub(super) const HANDSHAKE: u8 = 0x16;

/// A fatal `handshake_failure` in the clear (RFC 8446 section 6), for a handshake that ends before anything was answered
/// and for which rustls has no alert: some errors of its, and our own bound.
const HANDSHAKE_FAILURE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

thread_local! {
    /// The buffer that is lent to whichever session receives.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// The handshake goes on; nothing can be sent yet.
    Handshaking,
    /// Data flows.
    Open,
    /// The peer has said that it sends no more (`close_notify`). Sending goes on.
    PeerClosed,
    /// We have closed: what the peer still sends is dropped unread.
    Closed,
}

/// The version of TLS that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    /// As logs and environments of CGI write it: `TLSv1.3`.
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
    /// The certificate itself, in DER.
    pub fn der(&self) -> &'a [u8] {
        self.chain.first().map_or(&[], |leaf| leaf.as_ref())
    }

    /// What was presented with it, in DER, itself first.
    pub fn chain(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.chain.iter().map(|certificate| certificate.as_ref())
    }

    /// Its subject, as RFC 4514 writes it (`CN=alice,O=Example`), with controls escaped. Made anew by each call.
    pub fn subject(&self) -> Option<String> {
        der::facts(self.der()).map(|facts| facts.subject)
    }

    /// The DNS names in it, in lower case. Made anew by each call.
    pub fn names(&self) -> Vec<String> {
        der::facts(self.der()).map(|facts| facts.names).unwrap_or_default()
    }
}

/// A server's side of one TLS connection.
pub struct Session {
    connection: UnbufferedServerConnection,
    /// What has come and cannot be used yet: a record, or a handshake message, that is not whole. Without capacity
    /// where there is nothing.
    pending: Vec<u8>,
    /// Bytes used up before the handshake was done.
    handshake_bytes: usize,
    server_name: Option<Box<str>>,
    /// Something has been sent to the peer, from which on an alert in the clear may be wrong.
    answered: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Not a byte has come.
    Fresh,
    Running,
    PeerClosed,
    Closed,
    Failed(Box<TlsError>),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stage", &self.stage)
            .field("handshaking", &self.is_handshaking())
            .field("server_name", &self.server_name)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session that waits for a client's first bytes, under the configuration of this moment
    /// ([`Reload::current`](super::Reload::current)).
    ///
    /// # Errors
    /// [`TlsError::Local`] where the configuration cannot be used.
    pub fn accept(config: Arc<ServerConfig>) -> Result<Session, TlsError> {
        Ok(Session {
            connection: UnbufferedServerConnection::new(config)?,
            pending: Vec::new(),
            handshake_bytes: 0,
            server_name: None,
            answered: false,
            stage: Stage::Fresh,
        })
    }

    /// Takes what the peer has sent, in any portions. Appends plaintext to `plain`, which never gets more than has come
    /// in, and to `out` what has to be sent now, whatever is returned: handshake records, tickets, an alert.
    ///
    /// What the peer sends behind its `close_notify`, or after [`close`](Session::close), is dropped.
    ///
    /// # Errors
    /// What ends the session. Plaintext that came before it is in `plain`, and the alert in `out`, but for
    /// [`TlsError::NotTls`] and [`TlsError::Refused`], where none is due, and a few errors for which rustls has none once
    /// it has answered. Every later call returns the same error.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Progress, TlsError> {
        match (&self.stage, bytes.first()) {
            (Stage::Failed(error), _) => return Err(TlsError::clone(error)),
            (Stage::PeerClosed | Stage::Closed, _) | (_, None) => return Ok(self.progress()),
            (Stage::Fresh, Some(&HANDSHAKE)) => self.stage = Stage::Running,
            (Stage::Fresh, Some(&first)) => return Err(self.fail(TlsError::NotTls { first })),
            (Stage::Running, _) => {}
        }
        let mut input = if self.pending.capacity() == 0 { SPARE.take() } else { std::mem::take(&mut self.pending) };
        input.extend_from_slice(bytes);
        let (mut used, start) = (0, out.len());
        // What another session of this thread asked for, if that failed before it took its name.
        let _ = resolve::take_asked();
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

    /// Encrypts, and appends what has to be sent to `out`, in records of [`RECORD_BYTES`] but for the last one: a call
    /// with a whole answer makes the fewest. Nothing in, nothing out.
    ///
    /// # Errors
    /// [`TlsError::NotOpen`] during the handshake and after [`close`](Session::close). [`TlsError::Local`] where the
    /// keys of a TLS 1.2 session are used up (after 2^24 records or more); `close_notify` is in `out`.
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

    /// Says that nothing more is sent (`close_notify`): without it the peer cannot tell an answer from a part of one
    /// (RFC 8446 section 6.1). Does nothing during the handshake, after an error, or the second time.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.check_open().is_err() {
            return;
        }
        // An alert has two bytes. That it cannot be written is known by nobody and helps nobody: the socket closes.
        let _ = self.write(2 + RECORD_OVERHEAD, out, |traffic, room| traffic.queue_close_notify(room));
        self.stage = Stage::Closed;
        self.pending = Vec::new();
    }

    /// How far the session is; an ended one counts as [`Progress::Closed`].
    pub fn progress(&self) -> Progress {
        match self.stage {
            Stage::Closed | Stage::Failed(_) => Progress::Closed,
            Stage::PeerClosed => Progress::PeerClosed,
            Stage::Fresh | Stage::Running if self.is_handshaking() => Progress::Handshaking,
            Stage::Fresh | Stage::Running => Progress::Open,
        }
    }

    /// Whether the handshake is not done yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The protocol that both sides agreed on by ALPN; none where the client offered nothing.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The name that the client asked for, in lower case; none where it did not say one.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The version, once it is agreed on.
    pub fn version(&self) -> Option<Version> {
        match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => Some(Version::Tls12),
        }
    }

    /// The cipher suite by its IANA name, once it is agreed on.
    pub fn cipher(&self) -> Option<&'static str> {
        self.connection.negotiated_cipher_suite()?.suite().as_str()
    }

    /// The client's certificate, which has been verified; none where the client was not asked or declined.
    pub fn client_certificate(&self) -> Option<ClientCertificate<'_>> {
        let chain = self.connection.peer_certificates().filter(|chain| !chain.is_empty())?;
        (!self.is_handshaking()).then_some(ClientCertificate { chain })
    }

    /// Whether the session goes on from an earlier connection's.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Bytes that the session holds of what its peer has sent.
    pub fn held_bytes(&self) -> usize {
        self.pending.capacity()
    }

    /// Whether the first record is whole with these bytes behind what is held; also where there is no record to see.
    pub(crate) fn completes_record(&self, bytes: &[u8]) -> bool {
        let held = &self.pending;
        let at = |place: usize| held.get(place).or_else(|| bytes.get(place.checked_sub(held.len())?)).copied();
        let (Some(high), Some(low)) = (at(3), at(4)) else { return at(0).is_some_and(|kind| kind != HANDSHAKE) };
        held.len() + bytes.len() >= RECORD_HEAD + usize::from(u16::from_be_bytes([high, low]))
    }

    /// Goes on until the engine needs more input.
    fn process(
        &mut self,
        input: &mut [u8],
        used: &mut usize,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        loop {
            let was_handshaking = self.connection.is_handshaking();
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut input[*used..]);
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
                // Early data is not offered, and there are no other states today.
                other => return Err(TlsError::Local(format!("rustls is in the state {other:?}"))),
            }
            *used += discard;
            if was_handshaking {
                self.handshake_bytes += discard;
                if let Some(name) = resolve::take_asked() {
                    self.server_name = Some(name);
                }
            }
            if wait {
                return Ok(());
            }
        }
    }

    /// Keeps what has not been used: in place where it fills its buffer well, so that a record that comes in small
    /// pieces is not copied with each, otherwise in a buffer of its size.
    fn keep(&mut self, input: &mut Vec<u8>, used: usize) {
        let rest = input.len() - used;
        if rest > 0 && rest >= input.capacity() / 2 {
            input.drain(..used);
            self.pending = std::mem::take(input);
        } else if rest > 0 {
            self.pending = input[used..].to_vec();
        }
    }

    /// Writes through the engine, into room at the end of `out`.
    fn write(
        &mut self,
        room: usize,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), Refused> {
        let start = out.len();
        out.resize(start + room, 0);
        let mut end = start;
        let result = loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut self.pending);
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

    /// Takes out what is queued for the peer, such as an alert. Nothing is processed meanwhile: see the file's head.
    fn take_queued(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            match self.connection.process_tls_records(&mut []).state {
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

type Traffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;

/// Why nothing was written.
enum Refused {
    Exhausted,
    Engine(TlsError),
}

/// Gives a buffer back to the thread, empty.
fn lend_again(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// Appends a record that the engine has ready.
fn encode<Side>(mut data: EncodeTlsData<'_, Side>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    let start = out.len();
    let mut room = 0;
    // The size is known by trying: once to ask, once to write.
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
    Err(TlsError::Local("rustls needs more room than it said".to_owned()))
}
