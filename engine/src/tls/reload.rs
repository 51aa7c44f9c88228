//! Loads new certificates without a restart.
//!
//! The owner of a [`Reload`] calls [`Reload::look`] about once per second; this module starts no thread and watches no
//! folders. Each check compares the metadata of each file with that of the previous check. If a certificate, key,
//! OCSP or authority file differs, it reads all of these again and replaces the configuration as a whole; the ticket
//! key file is read separately. A connection keeps the configuration that it began with.
//!
//! A look may happen after a certificate was replaced and before its key was. The two then do not match, so the old
//! configuration stays in use, and the error is logged once. The next look after the key's replacement finds another
//! change. The metadata is read *before* the file, so that a change during the reading is found by the next look.

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

/// The TLS configuration of a running server, which its workers share.
#[derive(Debug)]
pub struct Reload {
    settings: TlsConfig,
    keys: Option<Arc<TicketKeys>>,
    /// The loaded configuration, which each new connection reads.
    loaded: RwLock<Arc<Loaded>>,
    watch: Mutex<Watch>,
}

/// The result of [`Reload::look`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Looked {
    /// Nothing has changed, or another thread is looking.
    Unchanged,
    /// The changed files are in use; changed certificates serve new connections only.
    Reloaded,
    /// A changed file cannot be used. The configuration or the ticket keys that the file belongs to stay as they were
    /// until a file changes again.
    Kept(LoadError),
}

/// The metadata of the files at the last look, even if they could not be used.
#[derive(Debug)]
struct Watch {
    files: Vec<(PathBuf, Option<Stamp>)>,
    ticket_file: Option<(PathBuf, Option<Stamp>)>,
}

/// The metadata by which a replaced or changed file is detected. The inode reveals a rename over the old file, and the
/// time of change a copy that keeps the time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the metadata of a file, or `None` if there is no such file or its metadata cannot be read.
    fn of(path: &Path) -> Option<Stamp> {
        // Follows symbolic links, because certbot and Kubernetes replace links, not files.
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

/// Reads the metadata of all files again. Returns true if the metadata of any file has changed.
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

    /// Returns the configuration for a new connection. Takes a read lock for a short time.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.loaded().config.clone()
    }

    /// Returns the certificates in use, in the order of the settings.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        self.loaded().certificates.clone()
    }

    /// Loads the files again if one has changed, and replaces the newest ticket key in memory if it is old enough. Call
    /// it about once per second; without a change it reads only the metadata of the files. It logs reloads and errors
    /// with the target `highwire::tls`.
    pub fn look(&self) -> Looked {
        self.look_at(SystemTime::now())
    }

    /// Does the same as [`look`](Reload::look), with `now` as the current time.
    pub fn look_at(&self, now: SystemTime) -> Looked {
        let Ok(mut watch) = self.watch.try_lock() else { return Looked::Unchanged };
        if let Some(keys) = &self.keys
            && keys.rotate(now)
        {
            tracing::debug!(target: "highwire::tls", "a new ticket key is in use");
        }
        let tickets = told(self.look_at_tickets(&mut watch));
        let files = told(self.look_at_files(&mut watch, now));
        // Both may have changed. An error is the more important result.
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

/// Logs a reload or an error, and returns the result.
fn told(looked: Looked) -> Looked {
    match &looked {
        Looked::Unchanged => {}
        Looked::Reloaded => tracing::info!(target: "highwire::tls", "changed TLS files are in use now"),
        Looked::Kept(error) => tracing::error!(target: "highwire::tls", "{error}; the old files stay in use"),
    }
    looked
}
