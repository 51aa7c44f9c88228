//! Files beneath a folder: what a server may show of a file system, and nothing else of it.
//!
//! A path is resolved by the kernel and may not leave the folder, not by `..`, not by a symbolic link, not while somebody moves
//! things about (`openat2` with `RESOLVE_BENEATH`). Reading has two forms: what is in the page cache is read where the caller
//! stands ([`File::read_now`]); what is not would make a worker wait for a disk, and is read elsewhere ([`File::read`]). The
//! simulator's twin is [`sim::files`](crate::sim::files).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder with files in it.
pub trait Files {
    /// Its files.
    type File: File;

    /// Opens a file for reading. The path is relative, its parts separated by slashes.
    ///
    /// # Errors
    /// What the system says: not found, no permission, no descriptors. [`io::ErrorKind::PermissionDenied`] also where the path
    /// would leave the folder; [`io::ErrorKind::InvalidInput`] where it is none, or names what is neither a file nor a folder.
    fn open(&self, path: &[u8]) -> io::Result<Self::File>;
}

/// What is said of a file when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whether it is a folder; then there is nothing to read.
    pub is_folder: bool,
    /// Its bytes.
    pub length: u64,
    /// When it was last changed.
    pub modified: SystemTime,
}

/// An open file.
pub trait File {
    /// What was said of it when it was opened.
    fn metadata(&self) -> Metadata;

    /// Reads what needs no wait: how many bytes, 0 at the file's end; `None` where it would have to be fetched first.
    ///
    /// # Errors
    /// What the system says. A file that has become shorter than it was is no error: it ends earlier.
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// Reads, and waits for the disk where it has to: for threads that may.
    ///
    /// # Errors
    /// As [`read_now`](Self::read_now).
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A folder of the system.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens a folder. It stays the same one, wherever its path leads afterwards.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Folder> {
        use std::os::unix::ffi::OsStrExt;
        let path = text(path.as_os_str().as_bytes())?;
        // SAFETY: the pointer is to a string that ends in NUL and outlives the call.
        let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        Ok(Folder { descriptor: owned(descriptor)? })
    }
}

impl Files for Folder {
    type File = Open;

    fn open(&self, path: &[u8]) -> io::Result<Open> {
        let path = text(if path.is_empty() { b"." } else { path })?;
        // SAFETY: an all-zero open_how is valid.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        // A pipe or a device without a writer must not hold the caller: it is refused below.
        how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        let folder = self.descriptor.as_raw_fd();
        // SAFETY: the pointers are to a string that ends in NUL and to the struct whose size is given; both outlive the call.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw const how, size_of_val(&how)) };
        let descriptor = owned(descriptor as RawFd).map_err(|error| match error.raw_os_error() {
            // What the kernel says where a path would leave the folder.
            Some(libc::EXDEV | libc::ELOOP) => io::ErrorKind::PermissionDenied.into(),
            _ => error,
        })?;
        let metadata = metadata(&descriptor)?;
        Ok(Open { descriptor, metadata })
    }
}

/// A file of the system.
#[derive(Debug)]
pub struct Open {
    descriptor: OwnedFd,
    metadata: Metadata,
}

impl Open {
    fn read_with(&self, buffer: &mut [u8], offset: u64, flags: libc::c_int) -> io::Result<usize> {
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        loop {
            // SAFETY: the one part describes the buffer, which outlives the call.
            let count = unsafe { libc::preadv2(self.descriptor.as_raw_fd(), &raw const part, 1, offset, flags) };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

impl File for Open {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        match self.read_with(buffer, offset, libc::RWF_NOWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // A file system that does not know the flag: it may wait for anything.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_with(buffer, offset, 0)
    }
}

fn text(path: &[u8]) -> io::Result<CString> {
    CString::new(path).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn metadata(descriptor: &OwnedFd) -> io::Result<Metadata> {
    // SAFETY: an all-zero stat is valid, and the pointer describes it.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(descriptor.as_raw_fd(), &mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat
    };
    let kind = stat.st_mode & libc::S_IFMT;
    if kind != libc::S_IFREG && kind != libc::S_IFDIR {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let nanoseconds = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or(0));
    Ok(Metadata {
        is_folder: kind == libc::S_IFDIR,
        length: u64::try_from(stat.st_size).unwrap_or(0),
        modified: UNIX_EPOCH + seconds + nanoseconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder of its own for each test, which goes with it.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("highwire-file-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("root/inner")).expect("a folder");
            std::fs::write(path.join("secret"), "secret").expect("a file");
            std::fs::write(path.join("root/a"), "0123456789").expect("a file");
            Place(path)
        }

        fn folder(&self) -> Folder {
            Folder::open(&self.0.join("root")).expect("a folder")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_read_at_any_place_and_end_where_they_end_now() {
        let place = Place::new("read");
        let file = place.folder().open(b"inner/../a").expect("a path that stays inside");
        assert_eq!((file.metadata().length, file.metadata().is_folder), (10, false));
        let mut buffer = [0; 4];
        assert_eq!(file.read(&mut buffer, 3).expect("bytes"), 4);
        assert_eq!(&buffer, b"3456");
        // Just written, it is in the cache; a file system may still refuse to say so.
        assert!(matches!(file.read_now(&mut buffer, 8), Ok(Some(2) | None)));
        assert_eq!(file.read(&mut buffer, 10).expect("the end"), 0);
        std::fs::write(place.0.join("root/a"), "01").expect("it shrinks");
        assert_eq!(file.read(&mut buffer, 3).expect("an earlier end"), 0);
        assert!(place.folder().open(b"").expect("the folder itself").metadata().is_folder);
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let place = Place::new("beneath");
        let root = place.0.join("root");
        symlink("../secret", root.join("up")).expect("a link");
        symlink(place.0.join("secret"), root.join("absolute")).expect("a link");
        symlink("..", root.join("inner/out")).expect("a link");
        symlink("a", root.join("within")).expect("a link");
        let folder = place.folder();
        let etc = [b"/etc/passwd".to_vec(), place.0.join("secret").to_string_lossy().into_owned().into_bytes()];
        for path in [
            &b"../secret"[..],
            b"up",
            b"absolute",
            b"inner/../../secret",
            b"inner/out/../secret",
            b"..",
            &etc[0],
            &etc[1],
        ] {
            let error = folder.open(path).expect_err("it leads out");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(folder.open(b"within").expect("a link that stays").metadata().length, 10);
        assert_eq!(folder.open(b"inner/out/a").expect("out of the inner folder is not out").metadata().length, 10);
        assert_eq!(folder.open(b"a\0b").expect_err("no path").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(folder.open(b"nothing").expect_err("it is not there").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_file_is_refused_and_nobody_waits_for_it() {
        let place = Place::new("kinds");
        let pipe = text(place.0.join("root/pipe").to_string_lossy().as_bytes()).expect("a path");
        // SAFETY: the pointer is to a string that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert_eq!(place.folder().open(b"pipe").expect_err("a pipe").kind(), io::ErrorKind::InvalidInput);
    }
}
