//! The count of open files over all workers, and its limit. Files that are being sent and cached files are counted.
//!
//! A client can make a response last long, and over HTTP/2 it can have many in progress on one connection. Without a
//! limit, a few clients that request large files and do not read them would use up all descriptors of the process.

use highwire_io::file::{File, FileHandle, Metadata, Open};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The divisor for the limit on open files, which is a fourth of the process's descriptors. The rest is for
/// connections.
const FILES_SHARE: usize = 4;

/// The divisor for the limit on files that caches keep open, which is half of the limit on open files, even if no
/// response uses the rest.
const KEPT_SHARE: usize = 2;

/// The number of open files over all workers and folders.
pub(crate) struct OpenFiles {
    count: AtomicUsize,
    /// The number of files that caches keep open.
    kept: AtomicUsize,
    most: usize,
}

impl OpenFiles {
    /// Creates the count for a process that may have `descriptors` descriptors.
    pub(crate) fn new(descriptors: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            count: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            most: (descriptors / FILES_SHARE).max(1),
        })
    }

    /// Counts a file until the last clone of the returned value is dropped. At the limit, closes the file and returns
    /// `None`.
    pub(super) fn hold(self: &Arc<Self>, file: Open) -> Option<Arc<Held>> {
        let add = |count| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Arc::new(Held { file, all: self.clone() }))
    }

    /// Reserves places for `files` files in a cache until the returned value is dropped. Returns `None` at the limit.
    pub(super) fn keep(self: &Arc<Self>, files: usize) -> Option<Keeping> {
        let most = (self.most / KEPT_SHARE).max(1);
        let add = |kept: usize| (files == 0 || kept + files <= most).then_some(kept + files);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Keeping { files, all: self.clone() })
    }
}

/// The reserved places of a cache entry's files.
pub(super) struct Keeping {
    files: usize,
    all: Arc<OpenFiles>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.all.kept.fetch_sub(self.files, Ordering::Relaxed);
    }
}

/// An open file that is counted.
pub(super) struct Held {
    pub(super) file: Open,
    all: Arc<OpenFiles>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl File for Held {
    fn metadata(&self) -> Metadata {
        self.file.metadata()
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        self.file.read_now(buffer, offset)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read(buffer, offset)
    }

    fn descriptor(&self) -> Option<FileHandle<'_>> {
        self.file.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_until_the_last_one_who_has_them_lets_go() {
        let folder = highwire_io::file::Folder::open(&std::env::temp_dir()).expect("a folder");
        let file = || {
            highwire_io::file::Files::open(&folder, b"")
                .expect("the folder itself, which takes a descriptor like any file")
        };
        let all = OpenFiles::new(2 * FILES_SHARE);
        let one = all.hold(file()).expect("the first file");
        let other = all.hold(file()).expect("the second file");
        let kept = all.keep(1).expect("files of responses take no places of the caches");
        assert!(all.keep(1).is_none(), "the rest is for responses");
        assert!(all.keep(0).is_some(), "an entry without open files takes no place");
        drop(kept);
        assert!(all.keep(1).is_some());
        let again = one.clone();
        drop(one);
        assert!(all.hold(file()).is_none(), "two files are still open");
        drop(again);
        assert!(all.hold(file()).is_some());
        drop(other);
        assert_eq!(all.count.load(Ordering::Relaxed), 0);
    }
}
