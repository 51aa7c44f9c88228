//! Files that are open to be sent or kept: counted over all workers, up to a bound, for as long as anybody has them.
//!
//! A client decides how long an answer takes, and over HTTP/2 how many are under way on one connection: without a
//! bound, a few clients that ask for large files and take nothing of them would hold all descriptors of the process.

use io::file::{File, Metadata, Open};
use std::io::Result;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of the process's descriptors that open files may be at most, all together: one of so many. The others are
/// for connections, without which there is nobody to send files to.
const FILES_SHARE: usize = 4;

/// The part of the open files that workers may keep for later requests: one of so many. The others are for answers.
const KEPT_SHARE: usize = 2;

/// How many files are open, over all workers and folders.
pub(crate) struct OpenFiles {
    count: AtomicUsize,
    most: usize,
}

impl OpenFiles {
    /// For a process that may have so many descriptors.
    pub(crate) fn new(descriptors: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles { count: AtomicUsize::new(0), most: (descriptors / FILES_SHARE).max(1) })
    }

    /// Counts a file from now on; none where there are as many as there may be.
    pub(super) fn hold(self: &Arc<Self>, file: Open) -> Option<Arc<Held>> {
        let add = |count| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Arc::new(Held { file, all: self.clone() }))
    }

    /// Whether what is open now may stay open for later requests.
    pub(super) fn may_be_kept(&self) -> bool {
        self.count.load(Ordering::Relaxed) <= self.most / KEPT_SHARE
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

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_until_the_last_one_who_has_them_lets_go() {
        let folder = io::file::Folder::open(&std::env::temp_dir()).expect("a folder");
        let file = || io::file::Files::open(&folder, b"").expect("the folder itself takes a descriptor like any file");
        let all = OpenFiles::new(2 * FILES_SHARE);
        let one = all.hold(file()).expect("the first");
        assert!(all.may_be_kept());
        let other = all.hold(file()).expect("the second");
        assert!(!all.may_be_kept(), "the rest is for answers");
        let again = one.clone();
        drop(one);
        assert!(all.hold(file()).is_none(), "there are two still");
        drop(again);
        assert!(all.hold(file()).is_some());
        drop(other);
        assert_eq!(all.count.load(Ordering::Relaxed), 0);
    }
}
