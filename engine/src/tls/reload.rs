//! New certificates without a restart: what connections get, and when it is read again.
//!
//! Somebody calls [`Reload::look`] about once a second; there is no thread here and no watch on folders. A look compares
//! what the system says of each file with the last time, reads all of them again where one differs, and puts a whole
//! new configuration in the old one's place. A connection holds the configuration it began with, so that nothing ever
//! changes under it.
//!
//! Files are replaced one after the other, and a look may fall between a new certificate and its new key. Then nothing
//! fits, the old configuration stays, the reason is logged once, and the look after the second file has come finds
//! another change. What the system says is asked *before* a file is read: what changes while it is read differs at the
//! next look.

use super::config::TlsConfig;
use super::error::LoadError;
use super::load::{CertificateInfo, Loaded, load, make_self_signed};
use super::tickets::{TicketKeys, Tickets};
use rustls::ServerConfig;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// The TLS configuration of a running server. Shared by its workers; every method takes `&self`.
#[derive(Debug)]
pub struct Reload {
    settings: TlsConfig,
    keys: Option<Arc<TicketKeys>>,
    /// Read once for each connection.
    loaded: RwLock<Arc<Loaded>>,
    watch: Mutex<Watch>,
}

/// What a look has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Looked {
    /// Nothing has changed, or another thread is looking.
    Unchanged,
    /// New connections get what the files say now.
    Reloaded,
    /// A file has changed and cannot be used; everything stays as it was until it changes again.
    Kept(LoadError),
}

/// What the system said of the files when they were read last, whether they could be used or not.
#[derive(Debug)]
struct Watch {
    files: Vec<(PathBuf, Option<Stamp>)>,
    ticket_file: Option<(PathBuf, Option<Stamp>)>,
}

/// What tells a file from what stood in its place before. The inode catches a rename over the old file, the time of
/// change a copy that keeps the time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// None where there is no such file, or none that may be asked about.
    fn of(path: &Path) -> Option<Stamp> {
        // Links are followed: certbot and Kubernetes replace links, not files.
        let of = |meta: Metadata| Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        };
        std::fs::metadata(path).ok().map(of)
    }
}

fn stamped(path: PathBuf) -> (PathBuf, Option<Stamp>) {
    let stamp = Stamp::of(&path);
    (path, stamp)
}

/// Takes new stamps; whether one differs.
fn restamp<'a>(files: impl IntoIterator<Item = &'a mut (PathBuf, Option<Stamp>)>) -> bool {
    let mut changed = false;
    for (path, stamp) in files {
        let now = Stamp::of(path);
        changed |= std::mem::replace(stamp, now) != now;
    }
    changed
}

impl Reload {
    pub(super) fn new(mut settings: TlsConfig, now: SystemTime) -> Result<Reload, LoadError> {
        make_self_signed(&mut settings, now)?;
        let ticket_file = match &settings.tickets {
            Tickets::File(path) => Some(stamped(path.clone())),
            Tickets::Off | Tickets::InMemory => None,
        };
        let keys = match &settings.tickets {
            Tickets::Off => None,
            Tickets::InMemory => Some(Arc::new(TicketKeys::random(now)?)),
            Tickets::File(path) => Some(Arc::new(TicketKeys::from_file(path)?)),
        };
        let watch = Watch { files: settings.files().into_iter().map(stamped).collect(), ticket_file };
        let loaded = load(&settings, keys.as_ref(), now)?;
        Ok(Reload { settings, keys, loaded: RwLock::new(Arc::new(loaded)), watch: Mutex::new(watch) })
    }

    /// What a connection that begins now gets. One short lock and one count.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.loaded().config.clone()
    }

    /// The certificates in use, in the order of the settings.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.loaded().certificates.clone()
    }

    /// Looks whether files have changed, and rotates ticket keys. To be called about once a second; it asks the system
    /// about each file, and reads files only after a change. It logs what it finds, target `highwire::tls`.
    pub fn look(&self) -> Looked {
        self.look_at(SystemTime::now())
    }

    /// [`look`](Reload::look) at a time that the caller says.
    pub fn look_at(&self, now: SystemTime) -> Looked {
        let Ok(mut watch) = self.watch.try_lock() else { return Looked::Unchanged };
        if let Some(keys) = &self.keys
            && keys.rotate(now)
        {
            tracing::debug!(target: "highwire::tls", "a new ticket key");
        }
        let tickets = told(self.look_at_tickets(&mut watch));
        let files = told(self.look_at_files(&mut watch, now));
        // Both may have changed; what went wrong matters most.
        match (tickets, files) {
            (Looked::Kept(error), _) | (_, Looked::Kept(error)) => Looked::Kept(error),
            (Looked::Reloaded, _) | (_, Looked::Reloaded) => Looked::Reloaded,
            (Looked::Unchanged, Looked::Unchanged) => Looked::Unchanged,
        }
    }

    fn look_at_tickets(&self, watch: &mut Watch) -> Looked {
        if !restamp(&mut watch.ticket_file) {
            return Looked::Unchanged;
        }
        let (Some((path, _)), Some(keys)) = (&watch.ticket_file, &self.keys) else { return Looked::Unchanged };
        keys.reread(path).map_or_else(Looked::Kept, |()| Looked::Reloaded)
    }

    fn look_at_files(&self, watch: &mut Watch, now: SystemTime) -> Looked {
        if !restamp(&mut watch.files) {
            return Looked::Unchanged;
        }
        match load(&self.settings, self.keys.as_ref(), now) {
            Ok(loaded) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                Looked::Reloaded
            }
            Err(error) => Looked::Kept(error),
        }
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Logs what has changed.
fn told(looked: Looked) -> Looked {
    match &looked {
        Looked::Unchanged => {}
        Looked::Reloaded => tracing::info!(target: "highwire::tls", "TLS files have changed and are in use"),
        Looked::Kept(error) => tracing::error!(target: "highwire::tls", "{error}; what was loaded before stays in use"),
    }
    looked
}
