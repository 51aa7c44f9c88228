//! Looking up a name in the folder, and reading the file if it is small.
//!
//! A worker uses only data that the kernel has in its caches, and gives up if the look would have to wait for the disk
//! ([`Obstacle::Cold`]). Then the blocking pool repeats the same look, and may wait.

use super::coding::{CODINGS, Coding};
use super::name::Name;
use super::open::{Held, OpenFiles};
use super::{Site, listing};
use bytes::Bytes;
use highwire_io::Instant;
use highwire_io::file::{File, Files, Folder, Metadata, Open};
use http::StatusCode;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::SystemTime;

/// The length in bytes up to which a file is read whole and cached in memory. A longer file is kept open and sent in
/// parts. Most scripts and styles of pages are much shorter.
pub(super) const SMALL_BYTES: u64 = 64 * 1024;

/// The result of looking up a name.
pub(super) enum Found {
    File(Source),
    /// The file that is sent for paths that do not exist.
    SinglePage(Source),
    /// A folder, but the name lacks the final slash.
    Folder,
    /// The contents of a folder, as an HTML page.
    Listing(String),
    /// An error status, with its page if there is one.
    Failed(StatusCode, Option<Source>),
}

/// A file with its precompressed variants, if these are enabled.
pub(super) struct Source {
    /// The decoded path, relative to the folder.
    pub(super) path: Vec<u8>,
    pub(super) itself: Part,
    /// The precompressed variants, in the order of [`CODINGS`].
    pub(super) coded: [Option<Part>; CODINGS.len()],
    /// True if the file may be cached. False if the file or a variant was being written during the look.
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

/// The reason why a look has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The look would have to wait for the disk.
    Cold,
    /// There is no such file or folder.
    Missing,
    /// There is something that clients must not see: a file without permission, or a link out of the folder. Clients must not
    /// learn that it exists.
    Forbidden,
    /// The system failed, or has no descriptors left.
    Failed,
    /// The limit on open files is reached.
    Full,
}

impl From<std::io::Error> for Obstacle {
    fn from(error: std::io::Error) -> Obstacle {
        match error.kind() {
            ErrorKind::PermissionDenied => Obstacle::Forbidden,
            // Devices, pipes and sockets are invalid input.
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
                Obstacle::Missing
            }
            _ => {
                highwire_engine::log!(Failure, warn, %error, "cannot open or read a file");
                Obstacle::Failed
            }
        }
    }
}

/// A look's permission to wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Waits,
}

/// The time at which a look began, by the clock of timers and by the clock of files. The age of its result counts from
/// then, because the file may change while the look waits for the disk or for a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) date: SystemTime,
}

/// A look into a folder.
#[derive(Clone, Copy)]
pub(super) struct Look<'s> {
    pub(super) site: &'s Site,
    pub(super) folder: &'s Folder,
    pub(super) open_files: &'s Arc<OpenFiles>,
    pub(super) patience: Patience,
    pub(super) at: Moment,
}

impl Look<'_> {
    /// Looks up a name; `None` stands for a name that cannot exist. The only error is [`Obstacle::Cold`].
    pub(super) fn find(self, name: Option<&Name<'_>>) -> Result<Found, Obstacle> {
        let found = match name {
            None => Err(Obstacle::Missing),
            Some(name) if name.is_folder() => self.folder(name.without_slash()),
            Some(name) => self.file_or_folder(&name.0),
        };
        let found = match found {
            Err(Obstacle::Missing | Obstacle::Forbidden) => self.missing(name),
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
        let listing = self.folder.list(path, listing::MOST_ITEMS, is_shown)?;
        Ok(Found::Listing(listing::page(path, listing)))
    }

    /// Returns the single page, or else a 404, for a name that does not exist.
    fn missing(self, name: Option<&Name<'_>>) -> Result<Found, Obstacle> {
        if let (Some(page), Some(name)) = (&self.site.single_page, name)
            && !name.last().contains(&b'.')
        {
            match self.file(page) {
                Err(Obstacle::Missing | Obstacle::Forbidden) => {}
                found => return found.map(Found::SinglePage),
            }
        }
        self.failed(StatusCode::NOT_FOUND)
    }

    /// Returns an error status, with its page if there is one.
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
        let opened = match self.patience {
            Patience::Waits => self.folder.open(path).map(Some),
            Patience::None => self.folder.open_now(path),
        };
        if let Err(error) = &opened
            && error.kind() == ErrorKind::PermissionDenied
        {
            let (path, folder) = (String::from_utf8_lossy(path), self.site.path.display());
            let text = "a file is not served, because it cannot be read or lies outside of the folder";
            // Clients choose the path, so it is written in quotes.
            highwire_engine::log!(Forbidden, warn, path = &*path, %folder, %error, "{text}");
        }
        opened?.ok_or(Obstacle::Cold)
    }

    /// Returns the current metadata of a file, or of its variant in a coding. Returns [`Obstacle::Missing`] if there is
    /// no such file, and [`Obstacle::Forbidden`] if clients must not see it.
    pub(super) fn metadata(self, path: &[u8], coding: Option<Coding>) -> Result<Metadata, Obstacle> {
        let file = match coding {
            None => self.open(path)?,
            Some(coding) => self.open(&[path, coding.ending()].concat())?,
        };
        if file.metadata().is_folder { Err(Obstacle::Missing) } else { Ok(file.metadata()) }
    }

    /// Reads a file and its precompressed variants, or keeps them open if they are large, so that the cache can serve
    /// every client.
    fn source(self, path: &[u8], file: Open) -> Result<Source, Obstacle> {
        let mut coded = [const { None }; CODINGS.len()];
        for coding in CODINGS.into_iter().filter(|_| self.site.precompressed) {
            match self.open(&[path, coding.ending()].concat()) {
                Ok(file) if !file.metadata().is_folder => coded[coding as usize] = Some(self.read(file)?),
                Ok(_) | Err(Obstacle::Missing | Obstacle::Forbidden) => {}
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
        // The buffer is one byte longer than the file, to notice that the file has grown.
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
            // The file's length has changed, so the file is being written. It is kept open, and read while it is sent.
            return self.hold(file);
        }
        bytes.truncate(length);
        Ok(Part { metadata, content: Content::Bytes(Bytes::from(bytes.into_boxed_slice())) })
    }

    /// Keeps a file open as long as a response or the cache uses it. Returns [`Obstacle::Full`] at the limit.
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
            (ErrorKind::PermissionDenied, Obstacle::Forbidden),
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
        // The date is long ago, so that the file would count as old by the machine's clock.
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(date)).expect("a date");
        let site = Site::open(crate::files::Files::new(&folder)).expect("a folder");
        let name = Name::parse(b"a", false).expect("a name");
        for (seconds, is_weak) in [(0, true), (1, true), (2, false)] {
            let instant = Instant { nanoseconds: seconds };
            let at = Moment { instant, date: date + Duration::from_secs(seconds) };
            let look = Look {
                site: &site,
                folder: &site.folder,
                open_files: &OpenFiles::new(4),
                patience: Patience::Waits,
                at,
            };
            let Ok(Found::File(source)) = look.find(Some(&name)) else { panic!("the file was not found") };
            assert_eq!(source.looked_at.instant, instant);
            let entry = Entry::new(source, &site);
            assert_eq!(entry.variant(Default::default()).validators.is_weak(), is_weak, "after {seconds} seconds");
        }
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    }
}
