//! Folders and files through openat2(2) and preadv2(2), which can fail instead of waiting for the disk.

use crate::file::{Again, File, Files, Listing, Metadata};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder of the file system.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens a folder. The returned [`Folder`] refers to this folder even if the path leads elsewhere later.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open(path: &Path) -> io::Result<Folder> {
        use std::os::unix::ffi::OsStrExt;
        let path = text(path.as_os_str().as_bytes())?;
        // SAFETY: the pointer is to a string that ends in NUL and outlives the call.
        let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        let folder = Folder { descriptor: owned(descriptor)? };
        // Fails now if the system lacks openat2, without which no file could be opened later.
        folder.resolve_patiently(b"", libc::O_PATH)?;
        Ok(folder)
    }

    /// Opens the path of this folder again, because it may be a link that leads elsewhere now, or name a new folder. May wait
    /// for the disk.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn again(&self, path: &Path) -> io::Result<Again<Folder>> {
        self.or_other(Folder::open(path)?)
    }

    /// Does the same as [`again`](Self::again) without waiting. Returns `None` if the path may have to be looked up on a disk.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn again_now(&self, path: &Path) -> io::Result<Option<Again<Folder>>> {
        use std::os::unix::ffi::OsStrExt;
        let path = text(path.as_os_str().as_bytes())?;
        match open_how(libc::AT_FDCWD, &path, libc::O_PATH | libc::O_DIRECTORY, libc::RESOLVE_CACHED) {
            Ok(descriptor) => self.or_other(Folder { descriptor }).map(Some),
            // The kernel may be older than Linux 5.12 and lack RESOLVE_CACHED.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINVAL)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn or_other(&self, other: Folder) -> io::Result<Again<Folder>> {
        Ok(if self.is_same(&other)? { Again::Same } else { Again::Other(other) })
    }

    /// Returns true if both are one folder.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn is_same(&self, other: &Folder) -> io::Result<bool> {
        let place = |folder: &Folder| status(&folder.descriptor).map(|stat| (stat.st_dev, stat.st_ino));
        // While this folder is open, no other gets its number.
        Ok(place(self)? == place(other)?)
    }

    /// Lists the items of this folder or of one beneath it whose names satisfy `is_wanted`, at most `most` of them.
    /// Leaves out items whose properties cannot be read, special files, links that lead out of this folder, and items
    /// that this process may not open. May wait for the disk.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Files::open), and [`io::ErrorKind::NotADirectory`] if `path` does not name a
    /// folder.
    pub fn list(&self, path: &[u8], most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<Listing> {
        let descriptor = self.resolve_patiently(path, READING)?;
        let number = descriptor.as_raw_fd();
        // SAFETY: the descriptor is open. If the call succeeds, the stream owns it, and `descriptor` is forgotten
        // below.
        let stream = unsafe { libc::fdopendir(number) };
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(descriptor);
        let stream = Stream(stream);
        let mut listing = Listing::default();
        while let Some(name) = stream.next()? {
            if !is_wanted(name.to_bytes()) {
                continue;
            }
            // Any error leaves the item out, for example because it is gone by now, leads out of the folder or may not
            // be opened.
            let Ok(metadata) = self.metadata_of(number, path, &name) else { continue };
            if listing.items.len() == most {
                listing.more = true;
                break;
            }
            listing.items.push((name.into_bytes(), metadata));
        }
        Ok(listing)
    }

    /// Returns the metadata of an item of an open folder; for a link, of the link's target. Fails if this process may
    /// not open the item.
    fn metadata_of(&self, folder: RawFd, path: &[u8], name: &CStr) -> io::Result<Metadata> {
        // SAFETY: an all-zero stat is valid, and the pointers are to it and to a string that ends in NUL.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstatat(folder, name.as_ptr(), &mut stat, libc::AT_SYMLINK_NOFOLLOW) != 0 {
                return Err(io::Error::last_os_error());
            }
            stat
        };
        if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            let path = [path, b"/", name.to_bytes()].concat();
            return self.open(path.strip_prefix(b"/").unwrap_or(&path)).map(|file| file.metadata);
        }
        let metadata = metadata_from(&stat)?;
        let wanted = if metadata.is_folder { libc::R_OK | libc::X_OK } else { libc::R_OK };
        // SAFETY: the pointer is to a string that ends in NUL.
        match unsafe { libc::faccessat(folder, name.as_ptr(), wanted, libc::AT_EACCESS) } {
            0 => Ok(metadata),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Opens a path beneath the folder, with these open flags and additional resolve flags.
    fn resolve(&self, path: &CStr, flags: libc::c_int, resolve: u64) -> io::Result<OwnedFd> {
        let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | resolve;
        open_how(self.descriptor.as_raw_fd(), path, flags, resolve).map_err(|error| match error.raw_os_error() {
            // The path would leave the folder, contains a magic link, or has too many links.
            Some(libc::EXDEV | libc::ELOOP) => io::ErrorKind::PermissionDenied.into(),
            // The path names a socket, or a device that does not exist.
            Some(libc::ENXIO | libc::ENODEV) => io::ErrorKind::InvalidInput.into(),
            _ => error,
        })
    }

    fn resolve_patiently(&self, path: &[u8], flags: libc::c_int) -> io::Result<OwnedFd> {
        let path = name(path)?;
        for _ in 1..RESOLVE_TRIES {
            match self.resolve(&path, flags, 0) {
                // The kernel returns EAGAIN if another process renames something while the kernel resolves a `..`,
                // because it then cannot be sure where the `..` leads.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                resolved => return resolved,
            }
        }
        // The kernel also returns EAGAIN for a file on which another program has a lease. Then no try succeeds until
        // the lease ends.
        self.resolve(&path, flags, 0)
    }
}

/// Opens a path that counts from a folder, with these open flags and resolve flags.
fn open_how(folder: RawFd, path: &CStr, flags: libc::c_int, resolve: u64) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero open_how is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = resolve;
    // SAFETY: the pointers are to a string that ends in NUL and to the struct, with its size. Both outlive the call.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw const how, size_of_val(&how)) };
    owned(descriptor as RawFd)
}

/// The flags for opening files. Opening a pipe or a device must not wait; `metadata_from` refuses it afterwards.
const READING: libc::c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The most attempts to resolve a path while other processes rename files. An attempt fails only if a rename coincides
/// with it.
const RESOLVE_TRIES: u32 = 64;

impl Files for Folder {
    type File = Open;

    fn open(&self, path: &[u8]) -> io::Result<Open> {
        Open::of(self.resolve_patiently(path, READING)?)
    }

    fn open_now(&self, path: &[u8]) -> io::Result<Option<Open>> {
        match self.resolve(&name(path)?, READING, libc::RESOLVE_CACHED) {
            Ok(descriptor) => Open::of(descriptor).map(Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // The kernel may be older than Linux 5.12 and lack RESOLVE_CACHED. If the path itself is invalid, `open`
            // returns the error.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A folder that is being listed.
struct Stream(*mut libc::DIR);

impl Stream {
    /// Returns the name of the next item, or `None` at the end. Skips `.` and `..`.
    fn next(&self) -> io::Result<Option<CString>> {
        loop {
            // SAFETY: errno belongs to this thread. The stream is open, and only this thread uses it, because it is not
            // `Send`.
            let entry = unsafe {
                *libc::__errno_location() = 0;
                libc::readdir64(self.0)
            };
            if entry.is_null() {
                let error = io::Error::last_os_error();
                return if error.raw_os_error() == Some(0) { Ok(None) } else { Err(error) };
            }
            // SAFETY: the entry is valid until the next call, and its name ends in NUL.
            let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
            if !matches!(name.to_bytes(), b"." | b"..") {
                return Ok(Some(name.to_owned()));
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and nothing uses it after the drop.
        unsafe { libc::closedir(self.0) };
    }
}

/// An open file or folder of the file system.
#[derive(Debug)]
pub struct Open {
    descriptor: OwnedFd,
    metadata: Metadata,
}

impl Open {
    fn of(descriptor: OwnedFd) -> io::Result<Open> {
        let metadata = metadata(&descriptor)?;
        Ok(Open { descriptor, metadata })
    }

    /// Returns the current metadata.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn metadata_now(&self) -> io::Result<Metadata> {
        metadata(&self.descriptor)
    }

    fn read_with(&self, buffer: &mut [u8], offset: u64, flags: libc::c_int) -> io::Result<usize> {
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        loop {
            // SAFETY: the one iovec describes the buffer, which outlives the call.
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
            // The file system does not support the flag, so reading may wait.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_with(buffer, offset, 0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

fn text(path: &[u8]) -> io::Result<CString> {
    CString::new(path).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Converts a path for the kernel. The empty path is the folder itself.
fn name(path: &[u8]) -> io::Result<CString> {
    text(if path.is_empty() { b"." } else { path })
}

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every caller passes a descriptor that a system call has just created, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn metadata(descriptor: &OwnedFd) -> io::Result<Metadata> {
    metadata_from(&status(descriptor)?)
}

fn status(descriptor: &OwnedFd) -> io::Result<libc::stat> {
    // SAFETY: an all-zero stat is valid, and the pointer describes it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(descriptor.as_raw_fd(), &mut stat) {
            0 => Ok(stat),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn metadata_from(stat: &libc::stat) -> io::Result<Metadata> {
    let kind = stat.st_mode & libc::S_IFMT;
    if kind != libc::S_IFREG && kind != libc::S_IFDIR {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    Ok(Metadata {
        is_folder: kind == libc::S_IFDIR,
        length: u64::try_from(stat.st_size).unwrap_or(0),
        modified: moment(stat.st_mtime, stat.st_mtime_nsec),
        changed: moment(stat.st_ctime, stat.st_ctime_nsec),
        number: stat.st_ino,
    })
}

/// Converts a time of the system. A time before 1970 becomes one in the first second of 1970.
fn moment(seconds: i64, nanoseconds: i64) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    UNIX_EPOCH + seconds + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> (std::path::PathBuf, Folder) {
        let path = std::env::temp_dir().join(format!("highwire-file-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("a"), "0123456789").expect("a file");
        let folder = Folder::open(&path).expect("a folder");
        (path, folder)
    }

    #[test]
    fn a_file_that_a_program_has_a_lease_of_is_there_but_not_now() {
        let (path, folder) = folder("lease");
        let file = std::fs::File::options().write(true).open(path.join("a")).expect("a file");
        // SAFETY: the calls take only numbers. SIGIO is ignored, because the kernel sends it to the lease's owner and
        // the signal would end the process.
        let has_lease = unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        // Some file systems have no leases.
        let expected = if has_lease { Err(io::ErrorKind::WouldBlock) } else { Ok(10) };
        let opened = folder.open(b"a").map(|file| file.metadata().length).map_err(|error| error.kind());
        assert_eq!(opened, expected);
        drop(file);
        assert_eq!(folder.open(b"a").expect("the lease has ended").metadata().length, 10);
        std::fs::remove_dir_all(path).expect("it is there");
    }

    #[test]
    fn what_the_kernel_knows_is_opened_at_once() {
        let (path, folder) = folder("now");
        let names = |path: &[u8]| folder.open_now(path).map(|file| file.map(|file| file.metadata().length));
        folder.open(b"a").expect("a file, which the kernel has in its cache from now on");
        // Some file systems may need the disk even now.
        assert!(matches!(names(b"a"), Ok(Some(10) | None)));
        assert!(names(b"../secret").is_err() || matches!(names(b"../secret"), Ok(None)));
        assert!(matches!(names(b"nothing"), Ok(None)) || names(b"nothing").is_err());
        std::fs::remove_dir_all(path).expect("it is there");
    }
}
