//! The folder that a worker serves. The site's path may lead to another one later.

use super::Site;
use highwire_io::Instant;
use highwire_io::file::{Again, Folder};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the folder is served without another look at the site's path.
const FRESH: Duration = Duration::from_secs(1);

/// The folder of one worker.
pub(super) struct Root {
    folder: RefCell<Arc<Folder>>,
    looked_at: Cell<Instant>,
}

/// What a look at the site's path has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// The folder that is served, or nothing.
    Same,
    /// Another folder, which is served from now on.
    Other,
    /// The kernel does not have the path in its caches, so a look may have to wait for the disk.
    Cold,
}

impl Root {
    /// Begins with the folder to which the path led at the start of the server, which may be long ago.
    pub(super) fn of(site: &Site) -> Root {
        Root { folder: RefCell::new(site.folder.clone()), looked_at: Cell::new(Instant { nanoseconds: 0 }) }
    }

    pub(super) fn folder(&self) -> Arc<Folder> {
        self.folder.borrow().clone()
    }

    /// Looks at the site's path again if the last look is a second old.
    #[inline]
    pub(super) fn look(&self, path: &Path, now: Instant) -> Looked {
        if now.since(self.looked_at.get()) < FRESH { Looked::Same } else { self.look_now(path, now) }
    }

    #[cold]
    fn look_now(&self, path: &Path, now: Instant) -> Looked {
        self.looked_at.set(now);
        let again = self.folder.borrow().again_now(path);
        match again.transpose() {
            None => Looked::Cold,
            Some(again) => match other(path, again) {
                None => Looked::Same,
                Some(other) => {
                    self.serve(other);
                    Looked::Other
                }
            },
        }
    }

    pub(super) fn serve(&self, folder: Arc<Folder>) {
        *self.folder.borrow_mut() = folder;
    }
}

/// Returns the other folder to which a path leads now. If it leads nowhere, the folder that is served stays.
pub(super) fn other(path: &Path, again: io::Result<Again<Folder>>) -> Option<Arc<Folder>> {
    match again {
        Ok(Again::Same) => None,
        Ok(Again::Other(other)) => {
            tracing::info!(path = %path.display(), "a worker serves another folder from now on, to which the path leads");
            Some(Arc::new(other))
        }
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the served folder cannot be looked up again");
            None
        }
    }
}
