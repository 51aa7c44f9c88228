//! The folder that a worker serves. The site's path may lead to another one later.

use super::Site;
use highwire_io::Instant;
use highwire_io::file::{Again, Folder};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
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
    pub(super) fn look(&self, site: &Arc<Site>, now: Instant) -> Looked {
        if now.since(self.looked_at.get()) < FRESH { Looked::Same } else { self.look_now(site, now) }
    }

    #[cold]
    fn look_now(&self, site: &Arc<Site>, now: Instant) -> Looked {
        self.looked_at.set(now);
        let again = self.folder.borrow().again_now(&site.path);
        match again.transpose() {
            None => Looked::Cold,
            Some(again) => match other(site, again) {
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

/// Returns the other folder to which the site's path leads now. If it leads nowhere, the folder that is served stays.
pub(super) fn other(site: &Arc<Site>, again: io::Result<Again<Folder>>) -> Option<Arc<Folder>> {
    let path = &site.path;
    if again.is_ok() && site.told_gone.load(Ordering::Relaxed) {
        site.told_gone.store(false, Ordering::Relaxed);
    }
    match again {
        Ok(Again::Same) => None,
        Ok(Again::Other(other)) => {
            let other = Arc::new(other);
            // Each worker finds out for itself, and the first one tells.
            let mut told = site.told.lock().unwrap_or_else(PoisonError::into_inner);
            if !told.is_same(&other).unwrap_or(false) {
                *told = other.clone();
                drop(told);
                tracing::info!(path = %path.display(), "another folder is served from now on, to which the path leads");
                // A look at the disk may take long. It has a thread of its own, because it comes once with each new folder.
                let (site, folder) = (site.clone(), other.clone());
                let look = move || site.tell_missing_pages(&folder);
                let _ = std::thread::Builder::new().name("highwire-pages".into()).spawn(look);
            }
            Some(other)
        }
        Err(error) => {
            let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            if !is_gone {
                let path = path.display();
                highwire_engine::log!(Failure, warn, %path, %error, "the served folder cannot be looked up again");
            } else if !site.told_gone.swap(true, Ordering::Relaxed) {
                let text = "the path leads to no folder now; the open one is served, and is empty if it was removed";
                tracing::warn!(path = %path.display(), %error, "{text}");
            }
            None
        }
    }
}
