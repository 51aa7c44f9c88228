//! Encrypts session tickets, so that the server need not store sessions (RFC 5077, RFC 8446 section 4.6.1).
//!
//! A ticket is the session's state, encrypted with a key that only servers have. The keys are created and rotated here,
//! or read from a file that several machines may share. The newest key encrypts new tickets, and each key decrypts its
//! own. A ticket is useless once its key is deleted; deleting keys limits the number of sessions that a thief of keys
//! can read. The age of a key in memory is checked at each use, because an idle worker does not wake to rotate keys.
//!
//! A ticket has 16 bytes of key name, 12 of nonce, the ciphertext, and 16 of tag. The cipher is AES-256-GCM-SIV (RFC
//! 8452). With AES-256-GCM, a repeated nonce would break the authentication of all tickets, so a key with random nonces
//! could encrypt at most 2^32 tickets, counted over all machines that share it. With SIV, a repeated nonce only reveals
//! whether two tickets are the same.
//!
//! The *binding*, a hash of the server's rules for client certificates, is authenticated with each ticket. A session
//! from a server that asks for no certificate therefore cannot be resumed on one that does, even if both share the keys
//! (compare CVE-2025-23419 of nginx).

use super::error::{LoadError, LoadFault, place};
use super::pem::read_file;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::server::ProducesTickets;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

/// The age at which the newest key in memory is replaced. With [`TICKET_KEYS_KEPT`], a thief of these keys can decrypt
/// the tickets of at most 18 hours.
pub const TICKET_ROTATION: Duration = Duration::from_secs(6 * 60 * 60);

/// The most keys in memory, including the newest. A ticket with such a key can be decrypted for 12 to 18 hours.
pub const TICKET_KEYS_KEPT: usize = 3;

/// The lifetime of a ticket that the server announces to clients. A ticket with a key in memory can be decrypted for at
/// least this long, if the server keeps running.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The most keys in a file: one per hour for a day. Each ticket that a client presents causes a walk over the keys.
pub const TICKET_FILE_KEYS: usize = 24;

/// The age up to which a key in memory is used.
const KEY_LIFE: Duration = Duration::from_secs(TICKET_ROTATION.as_secs() * TICKET_KEYS_KEPT as u64);

/// The most by which a key's creation may lie in the future. Threads read the clock at different moments, and time
/// daemons correct it by fractions of a second. A larger difference means that the clock was set back.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// The number of bytes of a key in a file, before hex encoding. `openssl rand -hex 48` creates a key.
const LINE_BYTES: usize = NAME_BYTES + KEY_BYTES;

/// A hash of the rules for client certificates under which a session may be resumed.
pub(super) type Binding = [u8; 32];

/// The source of a server's ticket keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tickets {
    /// No tickets. Every handshake is a full one.
    Off,
    /// Random keys of this process, with a new one every [`TICKET_ROTATION`].
    #[default]
    InMemory,
    /// Keys in a file that several machines can share. [`Reload::look`](super::Reload::look) reads it again when it
    /// changes. The file holds at most [`TICKET_FILE_KEYS`] keys, the newest first, each as a line of 96 hex digits.
    /// See docs/tls.md.
    File(PathBuf),
}

struct Key {
    name: [u8; NAME_BYTES],
    cipher: LessSafeKey,
    /// The time when the key was created; `None` for a key from a file, whose age is unknown.
    made: Option<SystemTime>,
}

impl Key {
    fn new(bytes: &[u8; LINE_BYTES], made: Option<SystemTime>) -> Option<Arc<Key>> {
        let (name, key) = bytes.split_first_chunk::<NAME_BYTES>()?;
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key).ok()?);
        Some(Arc::new(Key { name: *name, cipher, made }))
    }

    fn random(now: SystemTime) -> Option<Arc<Key>> {
        let mut bytes = [0; LINE_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Key::new(&bytes, Some(now))
    }

    /// Returns true if a new key must replace this one as the newest.
    fn is_due(&self, now: SystemTime) -> bool {
        self.made.is_some_and(|made| age(made, now).is_none_or(|age| age >= TICKET_ROTATION))
    }

    /// Returns true if the key may still encrypt and decrypt.
    fn is_alive(&self, now: SystemTime) -> bool {
        self.made.is_none_or(|made| age(made, now).is_some_and(|age| age < KEY_LIFE))
    }
}

/// Returns a key's age, or `None` if its creation lies more than [`CLOCK_SLACK`] in the future because the clock was
/// set back. Such a key is no longer used.
fn age(made: SystemTime, now: SystemTime) -> Option<Duration> {
    match now.duration_since(made) {
        Ok(age) => Some(age),
        Err(error) if error.duration() <= CLOCK_SLACK => Some(Duration::ZERO),
        Err(_) => None,
    }
}

/// The ticket keys of a server, newest first. They stay in use when its certificates are reloaded.
pub(super) struct TicketKeys {
    keys: RwLock<Vec<Arc<Key>>>,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys must not reach a log.
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

impl TicketKeys {
    /// Creates the keys in memory, at first only a random one.
    pub(super) fn random(now: SystemTime) -> Result<TicketKeys, LoadError> {
        let key =
            Key::random(now).ok_or_else(|| LoadError::setting("the system gives no random bytes for a ticket key"))?;
        Ok(TicketKeys { keys: RwLock::new(vec![key]) })
    }

    /// Reads the keys from a file.
    pub(super) fn from_file(path: &Path) -> Result<TicketKeys, LoadError> {
        Ok(TicketKeys { keys: RwLock::new(read_keys(path)?) })
    }

    /// Reads the key file again. If that fails, the old keys stay in use.
    pub(super) fn reread(&self, path: &Path) -> Result<(), LoadError> {
        let keys = read_keys(path)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Creates a new key in memory if the newest one is old enough, and then deletes the keys that are too old. Returns
    /// true if it created one.
    pub(super) fn rotate(&self, now: SystemTime) -> bool {
        let is_due = |keys: &[Arc<Key>]| keys.first().is_some_and(|newest| newest.is_due(now));
        if !is_due(&self.read()) {
            return false;
        }
        // Without random bytes the old key stays in use until it is too old, and the next call tries again.
        let Some(key) = Key::random(now) else { return false };
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have created a key meanwhile.
        if !is_due(&keys) {
            return false;
        }
        keys.insert(0, key);
        keys.retain(|key| key.is_alive(now));
        keys.truncate(TICKET_KEYS_KEPT);
        true
    }

    /// Returns the key that encrypts, after a rotation if that is due. Returns `None` if the key is too old and no new
    /// one could be created.
    fn newest(&self, now: SystemTime) -> Option<Arc<Key>> {
        self.rotate(now);
        self.read().first().filter(|key| key.is_alive(now)).cloned()
    }

    fn named(&self, name: &[u8], now: SystemTime) -> Option<Arc<Key>> {
        // Each ticket contains its key's name in plain text, so the comparison need not take constant time.
        self.read().iter().find(|key| key.name == name).filter(|key| key.is_alive(now)).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Key>>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encrypts and decrypts tickets for rustls. Each loaded configuration has its own `Ticketer`, with the same keys.
#[derive(Debug)]
pub(super) struct Ticketer {
    keys: Arc<TicketKeys>,
    binding: Binding,
}

impl Ticketer {
    pub(super) fn new(keys: Arc<TicketKeys>, binding: Binding) -> Ticketer {
        Ticketer { keys, binding }
    }

    fn encrypt_at(&self, plain: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let key = self.keys.newest(now)?;
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

    fn decrypt_at(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.keys.named(name, now)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.cipher.open_in_place(nonce, Aad::from(self.binding), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
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
        self.encrypt_at(plain, SystemTime::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, SystemTime::now())
    }
}

fn read_keys(path: &Path) -> Result<Vec<Arc<Key>>, LoadError> {
    const WHAT: &str = "ticket keys";
    let fail = |fault| LoadError::new(place(WHAT, path), fault);
    parse_keys(&read_file(WHAT, path)?).map_err(fail)
}

/// Parses the text of a key file. Errors never contain the text of a line, because it may be a key.
fn parse_keys(text: &[u8]) -> Result<Vec<Arc<Key>>, LoadFault> {
    let mut keys: Vec<Arc<Key>> = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |why: &str| LoadFault::TicketLine(index + 1, why.to_owned());
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.len() != 2 * LINE_BYTES {
            return Err(wrong(&format!("a key has {} hex digits; this line has {} bytes", 2 * LINE_BYTES, line.len())));
        }
        let bytes = unhex(line).ok_or_else(|| wrong("a key must have only hex digits"))?;
        let key = Key::new(&bytes, None).ok_or_else(|| wrong("the key cannot be used"))?;
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
        let open = |keys: &Arc<TicketKeys>, binding, ticket: &[u8]| ticketer(keys, binding).decrypt_at(ticket, start());
        let ticket = ticketer(&keys, 1).encrypt_at(b"state", start()).expect("a ticket");
        assert_eq!(open(&keys, 1, &ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(open(&keys, 2, &ticket), None);
        let others = Arc::new(TicketKeys::random(start()).expect("keys"));
        assert_eq!(open(&others, 1, &ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(open(&keys, 1, &changed), None, "byte {at}");
            assert_eq!(open(&keys, 1, &ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_ticket_dies_with_the_third_rotation() {
        let keys = Arc::new(TicketKeys::random(start()).expect("keys"));
        let ticketer = ticketer(&keys, 0);
        let ticket = ticketer.encrypt_at(b"x", start()).expect("a ticket");
        assert!(!keys.rotate(start() + TICKET_ROTATION - Duration::from_secs(1)));
        for round in 1..=3 {
            let now = start() + TICKET_ROTATION * round;
            assert!(keys.rotate(now));
            assert!(!keys.rotate(now));
            assert_eq!(ticketer.decrypt_at(&ticket, now).is_some(), round < 3, "rotation {round}");
        }
        assert!(!keys.rotate(start() + TICKET_ROTATION * 3 - CLOCK_SLACK), "another thread's clock");
        assert!(keys.rotate(start()), "a clock that was set back");
    }

    #[test]
    fn keys_that_nobody_rotates_die_in_their_time() {
        let keys = Arc::new(TicketKeys::random(start()).expect("keys"));
        let ticketer = ticketer(&keys, 0);
        let ticket = ticketer.encrypt_at(b"x", start()).expect("a ticket");
        let second = Duration::from_secs(1);
        assert!(ticketer.decrypt_at(&ticket, start() + KEY_LIFE - second).is_some());
        assert_eq!(ticketer.decrypt_at(&ticket, start() + KEY_LIFE), None);
        assert_eq!(ticketer.decrypt_at(&ticket, start() - CLOCK_SLACK - second), None, "a clock that was set back");
        // After a long idle time, a new key encrypts.
        let rested = start() + KEY_LIFE * 3;
        let fresh = ticketer.encrypt_at(b"y", rested).expect("a ticket");
        assert_ne!(fresh[..NAME_BYTES], ticket[..NAME_BYTES]);
        assert!(ticketer.decrypt_at(&fresh, rested + KEY_LIFE - second).is_some());
        assert_eq!(keys.read().len(), 1, "the old key is forgotten");
    }

    #[test]
    fn keys_of_a_file_live_until_the_file_changes() {
        let read = parse_keys("0a".repeat(LINE_BYTES).as_bytes()).expect("a key");
        let keys = Arc::new(TicketKeys { keys: RwLock::new(read) });
        let ticketer = ticketer(&keys, 0);
        let ticket = ticketer.encrypt_at(b"x", start()).expect("a ticket");
        assert!(ticketer.decrypt_at(&ticket, start() + KEY_LIFE * 100).is_some());
        assert!(!keys.rotate(start() + KEY_LIFE * 100));
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
            (format!("\n{}0", key("00")), line(2, "a key has 96 hex digits; this line has 97 bytes")),
            (key("0g"), line(1, "a key must have only hex digits")),
            (format!("{0}\n{0}", key("00")), line(2, "another key has the same name (the first 32 digits)")),
            ((0..25).map(|at| key(&format!("{at:02x}")) + "\n").collect(), line(25, "there are more than 24 keys")),
        ] {
            assert_eq!(parse_keys(text.as_bytes()).map(|keys| keys.len()), expected, "{text}");
        }
    }
}
