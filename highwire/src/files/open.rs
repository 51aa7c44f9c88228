//! Files that are open to be sent or kept: counted over all workers, up to a bound, for as long as anybody has them.
//!
//! A client decides how long an answer takes, and over HTTP/2 how many are under way on one connection: without a
//! bound, a few clients that ask for large files and take nothing of them would hold all descriptors of the process.

use highwire_io::file::{File, FileHandle, Metadata, Open};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of the process's descriptors that open files may be at most, all together: one of so many. The others are
/// for connections, without which there is nobody to send files to.
const FILES_SHARE: usize = 4;

/// The part of the open files that workers may keep for later requests, whatever answers have open: one of so many.
const KEPT_SHARE: usize = 2;

/// How many files are open, over all workers and folders.
pub(crate) struct OpenFiles {
    count: AtomicUsize,
    /// Of them, those that are kept for later requests.
    kept: AtomicUsize,
    most: usize,
}

impl OpenFiles {
    /// For a process that may have so many descriptors.
    pub(crate) fn new(descriptors: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            count: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            most: (descriptors / FILES_SHARE).max(1),
        })
    }

    /// Counts a file from now on; none where there are as many as there may be.
    pub(super) fn hold(self: &Arc<Self>, file: Open) -> Option<Arc<Held>> {
        let add = |count| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Arc::new(Held { file, all: self.clone() }))
    }

    /// Lets so many of them stay open for later requests, for as long as the place is had.
    pub(super) fn keep(self: &Arc<Self>, files: usize) -> Option<Keeping> {
        let most = (self.most / KEPT_SHARE).max(1);
        let add = |kept: usize| (files == 0 || kept + files <= most).then_some(kept + files);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Keeping { files, all: self.clone() })
    }
}

/// The place of files that are kept.
pub(super) struct Keeping {
    files: usize,
    all: Arc<OpenFiles>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.all.kept.fetch_sub(self.files, Ordering::Relaxed);
    }
}

/// One of them.
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
            highwire_io::file::Files::open(&folder, b"").expect("the folder itself takes a descriptor like any file")
        };
        let all = OpenFiles::new(2 * FILES_SHARE);
        let one = all.hold(file()).expect("the first");
        let other = all.hold(file()).expect("the second");
        let kept = all.keep(1).expect("answers take no places of what is kept");
        assert!(all.keep(1).is_none(), "the rest is for answers");
        assert!(all.keep(0).is_some(), "what is in memory takes none");
        drop(kept);
        assert!(all.keep(1).is_some());
        let again = one.clone();
        drop(one);
        assert!(all.hold(file()).is_none(), "there are two still");
        drop(again);
        assert!(all.hold(file()).is_some());
        drop(other);
        assert_eq!(all.count.load(Ordering::Relaxed), 0);
    }
}
