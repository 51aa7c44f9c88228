//! Looking at the folder: what a name leads to there, read where it is small.
//!
//! Each look has two forms. On a worker it takes only what the kernel has in its caches, and gives up where it would have to wait
//! ([`Obstacle::Cold`]); then the same look is taken on the blocking pool, where it may wait.

use super::coding::{CODINGS, Coding};
use super::name::Name;
use super::open::{Held, OpenFiles};
use super::{Site, listing};
use bytes::Bytes;
use highwire_io::Instant;
use highwire_io::file::{File, Files, Metadata, Open};
use http::StatusCode;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::SystemTime;

/// A file up to this length is read whole and kept in memory; a longer one is kept open and sent in parts. Sixteen times what most pages'
/// scripts and styles have.
pub(super) const SMALL_BYTES: u64 = 64 * 1024;

/// What lies behind a name.
pub(super) enum Found {
    File(Source),
    /// The file that stands for paths which lead nowhere.
    SinglePage(Source),
    /// A folder whose name came without the slash.
    Folder,
    /// What is in a folder, as a page.
    Listing(String),
    /// An error in words, or the page for it.
    Failed(StatusCode, Option<Source>),
}

/// A file as it was found, in the codings that were looked for.
pub(super) struct Source {
    /// Its path beneath the folder, decoded.
    pub(super) path: Vec<u8>,
    pub(super) itself: Part,
    /// In the order of [`CODINGS`].
    pub(super) coded: [Option<Part>; CODINGS.len()],
    /// None of them is being written: it may be kept.
    pub(super) may_be_kept: bool,
    pub(super) looked_at: Moment,
}

/// One coding of a file.
pub(super) struct Part {
    pub(super) metadata: Metadata,
    pub(super) content: Content,
}

#[derive(Clone)]
pub(super) enum Content {
    Bytes(Bytes),
    File(Arc<Held>),
}

/// Why a look came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The disk would have to be waited for.
    Cold,
    /// There is nothing of that name, or nothing for others to see.
    Missing,
    /// The system has failed, or has no more descriptors.
    Failed,
    /// There are as many open files as there may be.
    Full,
}

impl From<std::io::Error> for Obstacle {
    fn from(error: std::io::Error) -> Obstacle {
        match error.kind() {
            // A link that leads out, a file without permission, a device: that it exists is nobody's business.
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename => Obstacle::Missing,
            _ => {
                highwire_engine::log!(Failure, warn, %error, "a file cannot be opened or read");
                Obstacle::Failed
            }
        }
    }
}

/// Whether a look may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Waits,
}

/// When a look was begun, by the clock of timers and by that of files. What it finds counts from then on: a change
/// while it waits for the disk, or for a thread, is one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) date: SystemTime,
}

/// A look at a folder.
#[derive(Clone, Copy)]
pub(super) struct Look<'s> {
    pub(super) site: &'s Site,
    pub(super) open_files: &'s Arc<OpenFiles>,
    pub(super) patience: Patience,
    pub(super) at: Moment,
}

impl Look<'_> {
    /// What a name leads to; only [`Obstacle::Cold`] is an error.
    pub(super) fn find(self, name: Option<&Name<'_>>) -> Result<Found, Obstacle> {
        let found = match name {
            None => Err(Obstacle::Missing),
            Some(name) if name.is_folder() => self.folder(name.without_slash()),
            Some(name) => self.file_or_folder(&name.0),
        };
        let found = match found {
            Err(Obstacle::Missing) => self.missing(name),
            found => found,
        };
        match found {
            Err(Obstacle::Failed | Obstacle::Full) => self.failed(StatusCode::SERVICE_UNAVAILABLE),
            found => found,
        }
    }

    fn file_or_folder(self, path: &[u8]) -> Result<Found, Obstacle> {
        let file = self.open(path)?;
        if file.metadata().is_folder {
            return Ok(Found::Folder);
        }
        self.source(path, file).map(Found::File)
    }

    fn folder(self, path: &[u8]) -> Result<Found, Obstacle> {
        if let Some(index) = &self.site.index {
            let index = if path.is_empty() { index.clone() } else { [path, b"/", index].concat() };
            match self.file(&index) {
                Err(Obstacle::Missing) => {}
                found => return found.map(Found::File),
            }
        }
        if !self.site.has_listing {
            return Err(Obstacle::Missing);
        }
        if self.patience == Patience::None {
            return Err(Obstacle::Cold);
        }
        let is_shown = |name: &[u8]| listing::is_shown(name, self.site.hidden);
        let listing = self.site.folder.list(path, listing::MOST_ITEMS, is_shown)?;
        Ok(Found::Listing(listing::page(path, listing)))
    }

    /// There is nothing of that name: what the program has for that.
    fn missing(self, name: Option<&Name<'_>>) -> Result<Found, Obstacle> {
        if let (Some(page), Some(name)) = (&self.site.single_page, name)
            && !name.last().contains(&b'.')
        {
            match self.file(page) {
                Err(Obstacle::Missing) => {}
                found => return found.map(Found::SinglePage),
            }
        }
        self.failed(StatusCode::NOT_FOUND)
    }

    /// An error, with its page where there is one.
    pub(super) fn failed(self, status: StatusCode) -> Result<Found, Obstacle> {
        let page = self.site.error_pages.iter().find(|(known, _)| *known == status);
        let page = match page.map(|(_, page)| self.file(page)) {
            Some(Err(Obstacle::Cold)) => return Err(Obstacle::Cold),
            Some(page) => page.ok(),
            None => None,
        };
        Ok(Found::Failed(status, page))
    }

    fn file(self, path: &[u8]) -> Result<Source, Obstacle> {
        let file = self.open(path)?;
        if file.metadata().is_folder { Err(Obstacle::Missing) } else { self.source(path, file) }
    }

    fn open(self, path: &[u8]) -> Result<Open, Obstacle> {
        match self.patience {
            Patience::Waits => Ok(self.site.folder.open(path)?),
            Patience::None => self.site.folder.open_now(path)?.ok_or(Obstacle::Cold),
        }
    }

    /// What is said of a file and its codings now: [`Obstacle::Missing`] for those that are not there.
    pub(super) fn metadata(self, path: &[u8], coding: Option<Coding>) -> Result<Metadata, Obstacle> {
        let file = match coding {
            None => self.open(path)?,
            Some(coding) => self.open(&[path, coding.ending()].concat())?,
        };
        if file.metadata().is_folder { Err(Obstacle::Missing) } else { Ok(file.metadata()) }
    }

    /// Reads a file in all its codings, so that it can be kept for everybody.
    fn source(self, path: &[u8], file: Open) -> Result<Source, Obstacle> {
        let mut coded = [const { None }; CODINGS.len()];
        for coding in CODINGS.into_iter().filter(|_| self.site.precompressed) {
            match self.open(&[path, coding.ending()].concat()) {
                Ok(file) if !file.metadata().is_folder => coded[coding as usize] = Some(self.read(file)?),
                Ok(_) | Err(Obstacle::Missing) => {}
                Err(obstacle) => return Err(obstacle),
            }
        }
        let itself = self.read(file)?;
        let is_being_written =
            |part: &Part| matches!(part.content, Content::File(_)) && part.metadata.length <= SMALL_BYTES;
        let may_be_kept = !coded.iter().flatten().chain([&itself]).any(is_being_written);
        Ok(Source { path: path.to_vec(), itself, coded, may_be_kept, looked_at: self.at })
    }

    fn read(self, file: Open) -> Result<Part, Obstacle> {
        let metadata = file.metadata();
        if metadata.length > SMALL_BYTES {
            return self.hold(file);
        }
        // One more than it has: a file that has grown is noticed as well as one that has shrunk.
        let mut bytes = vec![0; metadata.length as usize + 1];
        let mut length = 0;
        while length < bytes.len() {
            let (rest, offset) = (&mut bytes[length..], length as u64);
            let count = match self.patience {
                Patience::Waits => file.read(rest, offset)?,
                Patience::None => file.read_now(rest, offset)?.ok_or(Obstacle::Cold)?,
            };
            if count == 0 {
                break;
            }
            length += count;
        }
        if length as u64 != metadata.length {
            // It is being written: sent in parts it ends where it ends then.
            return self.hold(file);
        }
        bytes.truncate(length);
        Ok(Part { metadata, content: Content::Bytes(Bytes::from(bytes.into_boxed_slice())) })
    }

    /// A file that stays open, for whoever is sent it.
    fn hold(self, file: Open) -> Result<Part, Obstacle> {
        let metadata = file.metadata();
        let held = self.open_files.hold(file).ok_or(Obstacle::Full)?;
        Ok(Part { metadata, content: Content::File(held) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_there_but_not_to_be_had_now_is_not_missing() {
        for (kind, expected) in [
            (ErrorKind::NotFound, Obstacle::Missing),
            (ErrorKind::PermissionDenied, Obstacle::Missing),
            (ErrorKind::WouldBlock, Obstacle::Failed),
            (ErrorKind::Other, Obstacle::Failed),
        ] {
            assert_eq!(Obstacle::from(std::io::Error::from(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn what_is_found_counts_from_when_the_look_began() {
        let folder = std::env::temp_dir().join(format!("highwire-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a");
        std::fs::write(&path, "a").expect("a file");
        // Long ago, so that the machine's own clock would say that it has rested since.
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(date)).expect("a date");
        let site = Site::open(crate::files::Files::new(&folder)).expect("a folder");
        let name = Name::parse(b"a", false).expect("a name");
        for (seconds, is_weak) in [(0, true), (1, true), (2, false)] {
            let instant = Instant { nanoseconds: seconds };
            let at = Moment { instant, date: date + Duration::from_secs(seconds) };
            let look = Look { site: &site, open_files: &OpenFiles::new(4), patience: Patience::Waits, at };
            let Ok(Found::File(source)) = look.find(Some(&name)) else { panic!("it is there") };
            assert_eq!(source.looked_at.instant, instant);
            let entry = Entry::new(source, &site);
            assert_eq!(entry.variant(Default::default()).validators.is_weak(), is_weak, "after {seconds} seconds");
        }
        std::fs::remove_dir_all(&folder).expect("it was there");
    }
}
