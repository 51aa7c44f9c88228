//! Session tickets that no server has to remember (RFC 5077, RFC 8446 section 4.6.1).
//!
//! A ticket is the session's state, encrypted under a key that only servers know. The keys are made here and rotate, or
//! stand in a file that several machines share. The newest key encrypts, all of them decrypt, and a ticket dies with its
//! key: forgetting keys is what limits what a stolen one opens.
//!
//! A ticket is: 16 bytes of key name, 12 of nonce, the ciphertext, 16 of tag. The cipher is AES-256-GCM-SIV (RFC 8452)
//! and not AES-256-GCM, whose random nonces would have to be counted over all machines that share a key: after 2^32
//! tickets a nonce repeats, and a repeated one gives GCM's authentication away. With SIV it tells only whether two
//! tickets are the same.
//!
//! What is authenticated with each ticket is the *binding*, a hash of how clients have to authenticate. A session that
//! was made where no client certificate is asked for cannot be resumed where one is (nginx's CVE-2025-23419), whoever
//! shares the keys.

use super::error::{LoadError, LoadFault, place};
use super::pem::read_file;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::server::ProducesTickets;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// How old the newest key in memory gets: with [`TICKET_KEYS_KEPT`] a stolen one opens at most 18 hours of sessions
/// whose key exchange was not fresh.
pub const TICKET_ROTATION: Duration = Duration::from_secs(6 * 60 * 60);

/// Keys in memory, the newest one with them: a ticket works for twelve to eighteen hours.
pub const TICKET_KEYS_KEPT: usize = 3;

/// How long clients are told to keep a ticket: as long as every ticket from memory works.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Keys in a file: a day of hourly ones. Finding a key is a walk over all of them.
pub const TICKET_FILE_KEYS: usize = 24;

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// Bytes of a key in a file, before hex: `openssl rand -hex 48` makes one.
const LINE_BYTES: usize = NAME_BYTES + KEY_BYTES;

/// A hash of what a session may be resumed under.
pub(super) type Binding = [u8; 32];

/// Where a server's ticket keys come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tickets {
    /// No tickets: every handshake is a full one.
    Off,
    /// Keys of this process, made at random and rotated every [`TICKET_ROTATION`].
    #[default]
    InMemory,
    /// Keys in a file, which machines behind one name share; read again when it changes. Its format is in docs/tls.md:
    /// lines of 96 hex digits, at most [`TICKET_FILE_KEYS`], the newest first.
    File(PathBuf),
}

struct Key {
    name: [u8; NAME_BYTES],
    cipher: LessSafeKey,
}

impl Key {
    fn new(bytes: &[u8; LINE_BYTES]) -> Option<Arc<Key>> {
        let (name, key) = bytes.split_first_chunk::<NAME_BYTES>()?;
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key).ok()?);
        Some(Arc::new(Key { name: *name, cipher }))
    }

    fn random() -> Option<Arc<Key>> {
        let mut bytes = [0; LINE_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Key::new(&bytes)
    }
}

/// The keys, newest first, for all configurations of a server: they outlive a change of its certificates.
pub(super) struct TicketKeys {
    state: RwLock<State>,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys must not reach a log.
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

struct State {
    keys: Vec<Arc<Key>>,
    /// When the newest key was made, for keys in memory.
    made: Option<SystemTime>,
}

impl TicketKeys {
    /// Keys of this process.
    pub(super) fn random(now: SystemTime) -> Result<TicketKeys, LoadError> {
        let key =
            Key::random().ok_or_else(|| LoadError::setting("the system gives no random bytes for a ticket key"))?;
        Ok(TicketKeys { state: RwLock::new(State { keys: vec![key], made: Some(now) }) })
    }

    /// Keys from a file.
    pub(super) fn from_file(path: &Path) -> Result<TicketKeys, LoadError> {
        Ok(TicketKeys { state: RwLock::new(State { keys: read_keys(path)?, made: None }) })
    }

    /// Reads the file again; the old keys stay where it is wrong.
    pub(super) fn reread(&self, path: &Path) -> Result<(), LoadError> {
        let keys = read_keys(path)?;
        self.state.write().unwrap_or_else(PoisonError::into_inner).keys = keys;
        Ok(())
    }

    /// Makes a new key in memory where the newest is old enough; whether it did.
    pub(super) fn rotate(&self, now: SystemTime) -> bool {
        let made = self.state.read().unwrap_or_else(PoisonError::into_inner).made;
        // A clock that was set back must not keep a key for longer: `duration_since` is an error then.
        let due = made.is_some_and(|made| now.duration_since(made).map_or(true, |age| age >= TICKET_ROTATION));
        // Without random bytes the old key serves on, and the next look tries again.
        let Some(key) = due.then(Key::random).flatten() else { return false };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.keys.insert(0, key);
        state.keys.truncate(TICKET_KEYS_KEPT);
        state.made = Some(now);
        true
    }

    fn newest(&self) -> Option<Arc<Key>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).keys.first().cloned()
    }

    fn named(&self, name: &[u8]) -> Option<Arc<Key>> {
        // Names are public: they stand in the ticket. Comparing them gives nothing away.
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.keys.iter().find(|key| key.name == name).cloned()
    }
}

/// What rustls asks for tickets: one for each configuration, over shared keys.
#[derive(Debug)]
pub(super) struct Ticketer {
    keys: Arc<TicketKeys>,
    binding: Binding,
}

impl Ticketer {
    pub(super) fn new(keys: Arc<TicketKeys>, binding: Binding) -> Ticketer {
        Ticketer { keys, binding }
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.newest()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + plain.len() + TAG_BYTES);
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let body = &mut ticket[NAME_BYTES + NONCE_LEN..];
        let tag = key.cipher.seal_in_place_separate_tag(nonce, Aad::from(self.binding), body).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.keys.named(name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.cipher.open_in_place(nonce, Aad::from(self.binding), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

fn read_keys(path: &Path) -> Result<Vec<Arc<Key>>, LoadError> {
    const WHAT: &str = "ticket keys";
    let fail = |fault| LoadError::new(place(WHAT, path), fault);
    parse_keys(&read_file(WHAT, path)?).map_err(fail)
}

/// Reads the file's text. Errors never repeat what stands in a line: it may be a key.
fn parse_keys(text: &[u8]) -> Result<Vec<Arc<Key>>, LoadFault> {
    let mut keys: Vec<Arc<Key>> = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |why: &str| LoadFault::TicketLine(index + 1, why.to_owned());
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.len() != 2 * LINE_BYTES {
            return Err(wrong(&format!("a key has {} hex digits, this line has {}", 2 * LINE_BYTES, line.len())));
        }
        let bytes = unhex(line).ok_or_else(|| wrong("a key has hex digits only"))?;
        let key = Key::new(&bytes).ok_or_else(|| wrong("the key cannot be used"))?;
        if keys.iter().any(|other| other.name == key.name) {
            return Err(wrong("another key has the same name (the first 32 digits)"));
        }
        if keys.len() == TICKET_FILE_KEYS {
            return Err(wrong(&format!("there are more than {TICKET_FILE_KEYS} keys")));
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(LoadFault::NoTicketKey) } else { Ok(keys) }
}

fn unhex(line: &[u8]) -> Option<[u8; LINE_BYTES]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; LINE_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(line.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticketer(keys: &Arc<TicketKeys>, binding: u8) -> Ticketer {
        Ticketer::new(keys.clone(), [binding; 32])
    }

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn a_ticket_opens_with_its_key_and_its_binding_only() {
        let keys = Arc::new(TicketKeys::random(start()).expect("keys"));
        let ticket = ticketer(&keys, 1).encrypt(b"state").expect("a ticket");
        assert_eq!(ticketer(&keys, 1).decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(ticketer(&keys, 2).decrypt(&ticket), None);
        let others = Arc::new(TicketKeys::random(start()).expect("keys"));
        assert_eq!(ticketer(&others, 1).decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(ticketer(&keys, 1).decrypt(&changed), None, "byte {at}");
            assert_eq!(ticketer(&keys, 1).decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_ticket_dies_with_the_third_rotation() {
        let keys = Arc::new(TicketKeys::random(start()).expect("keys"));
        let ticketer = ticketer(&keys, 0);
        let ticket = ticketer.encrypt(b"x").expect("a ticket");
        assert!(!keys.rotate(start() + TICKET_ROTATION - Duration::from_secs(1)));
        for round in 1..=3 {
            assert!(keys.rotate(start() + TICKET_ROTATION * round));
            assert!(!keys.rotate(start() + TICKET_ROTATION * round));
            assert_eq!(ticketer.decrypt(&ticket).is_some(), round < 3, "rotation {round}");
        }
        assert!(keys.rotate(start()), "a clock that was set back");
    }

    #[test]
    fn lines_are_96_hex_digits() {
        let key = |byte: &str| byte.repeat(LINE_BYTES);
        let line = |line, why: &str| Err(LoadFault::TicketLine(line, why.to_owned()));
        for (text, expected) in [
            (key("0a"), Ok(1)),
            (format!("# newest\n{}\r\n\n  {}\n", key("Ff"), key("00")), Ok(2)),
            (String::new(), Err(LoadFault::NoTicketKey)),
            ("# none\n".to_owned(), Err(LoadFault::NoTicketKey)),
            (format!("\n{}0", key("00")), line(2, "a key has 96 hex digits, this line has 97")),
            (key("0g"), line(1, "a key has hex digits only")),
            (format!("{0}\n{0}", key("00")), line(2, "another key has the same name (the first 32 digits)")),
            ((0..25).map(|at| key(&format!("{at:02x}")) + "\n").collect(), line(25, "there are more than 24 keys")),
        ] {
            assert_eq!(parse_keys(text.as_bytes()).map(|keys| keys.len()), expected, "{text}");
        }
    }
}
