//! Folders and files through the crate cap-std, which does not let a path leave the folder.
//!
//! Only Linux reports whether a path or bytes are in its caches. Therefore `open_now` and `read_now` always return
//! `None` here, and the caller must open and read on a thread that may wait.

#![cfg_attr(target_os = "linux", expect(unreachable_pub, reason = "Linux compiles this for its tests only"))]

use crate::file::{Again, File, FileHandle, Files, Listing, Metadata};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// A folder of the file system.
#[derive(Debug)]
pub struct Folder {
    dir: Dir,
}

impl Folder {
    /// Opens a folder. The returned [`Folder`] refers to this folder even if the path leads elsewhere later.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Ok(Folder { dir: Dir::open_ambient_dir(path, ambient_authority())? })
    }

    /// Opens the path of this folder again, because it may be a link that leads elsewhere now, or name a new folder. May wait
    /// for the disk.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn again(&self, path: &Path) -> io::Result<Again<Folder>> {
        let other = Folder::open(path)?;
        Ok(if self.is_same(&other)? { Again::Same } else { Again::Other(other) })
    }

    /// Returns true if both are one folder.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn is_same(&self, other: &Folder) -> io::Result<bool> {
        let number = |folder: &Folder| Ok::<_, io::Error>(metadata(&folder.dir.dir_metadata()?)?.number);
        Ok(number(self)? == number(other)?)
    }

    /// Returns `None`, because only Linux reports whether a path is in its caches.
    ///
    /// # Errors
    /// Returns no error.
    pub fn again_now(&self, _: &Path) -> io::Result<Option<Again<Folder>>> {
        Ok(None)
    }

    /// Lists the items of this folder or of one beneath it whose names satisfy `is_wanted`, at most `most` of them.
    /// Leaves out items that cannot be opened, such as special files, links that lead out of this folder, and items for
    /// which this process lacks permission. May wait for the disk.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Files::open), and [`io::ErrorKind::NotADirectory`] if `path` names a file.
    pub fn list(&self, path: &[u8], most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<Listing> {
        if !self.open(path)?.metadata.is_folder {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let mut listing = Listing::default();
        for entry in self.dir.read_dir(system_path(path)?)? {
            let name = entry?.file_name();
            let name = name.as_encoded_bytes();
            if !is_wanted(name) {
                continue;
            }
            let inside = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            let Ok(metadata) = self.open(&inside).map(|open| open.metadata) else { continue };
            if metadata.is_folder && self.dir.read_dir(system_path(&inside)?).is_err() {
                continue;
            }
            if listing.items.len() == most {
                listing.more = true;
                break;
            }
            listing.items.push((name.to_vec(), metadata));
        }
        Ok(listing)
    }
}

/// Checks a path and converts it to a path of the system. The empty path is the folder itself.
fn system_path(path: &[u8]) -> io::Result<&Path> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    if path.contains(&0) {
        return Err(invalid("the path contains NUL"));
    }
    if path.first() == Some(&b'/') {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let text = std::str::from_utf8(path).map_err(|_| invalid("the path is not UTF-8"))?;
    if cfg!(windows) && !text.split('/').all(is_windows_name) {
        return Err(invalid("the path contains a name that Windows may take for another name"));
    }
    Ok(Path::new(if text.is_empty() { "." } else { text }))
}

/// Returns false for names that Windows may take for another name: names with a drive, a stream or a backslash, short
/// names such as `GIT~1`, and names that end in a dot or a space, which Windows drops. `.` and `..` are allowed.
fn is_windows_name(name: &str) -> bool {
    let short = |(at, _): (usize, &str)| name[at + 1..].starts_with(|next: char| next.is_ascii_digit());
    let is_dots = matches!(name, "." | "..");
    !name.contains(['\\', ':']) && (is_dots || !name.ends_with(['.', ' '])) && !name.match_indices('~').any(short)
}

impl Files for Folder {
    type File = Open;

    fn open(&self, path: &[u8]) -> io::Result<Open> {
        let path = system_path(path)?;
        let metadata = metadata(&self.dir.metadata(path)?)?;
        if metadata.is_folder {
            return Ok(Open { file: None, metadata });
        }
        let mut options = OpenOptions::new();
        options.read(true);
        do_not_wait(&mut options);
        Open::of(self.dir.open_with(path, &options)?.into_std())
    }

    fn open_now(&self, _: &[u8]) -> io::Result<Option<Open>> {
        Ok(None)
    }
}

/// Makes opening return immediately if a pipe has replaced the file since the metadata was read. Otherwise opening the
/// pipe would wait for a writer.
#[cfg(unix)]
fn do_not_wait(options: &mut OpenOptions) {
    use cap_std::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
}

#[cfg(windows)]
fn do_not_wait(_: &mut OpenOptions) {}

/// An open file or folder of the file system.
#[derive(Debug)]
pub struct Open {
    /// `None` for a folder.
    file: Option<std::fs::File>,
    metadata: Metadata,
}

impl Open {
    fn of(file: std::fs::File) -> io::Result<Open> {
        let metadata = metadata_of(&file)?;
        Ok(Open { file: Some(file), metadata })
    }

    /// Returns the current metadata of a file. For a folder, returns the metadata from when it was opened.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn metadata_now(&self) -> io::Result<Metadata> {
        self.file.as_ref().map_or(Ok(self.metadata), metadata_of)
    }
}

impl File for Open {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read_now(&self, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(file) = &self.file else { return Err(io::ErrorKind::IsADirectory.into()) };
        loop {
            match read_at(file, buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn descriptor(&self) -> Option<FileHandle<'_>> {
        self.file.as_ref().map(handle)
    }
}

#[cfg(unix)]
fn read_at(file: &std::fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &std::fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

#[cfg(unix)]
fn handle(file: &std::fs::File) -> FileHandle<'_> {
    std::os::fd::AsFd::as_fd(file)
}

#[cfg(windows)]
fn handle(file: &std::fs::File) -> FileHandle<'_> {
    std::os::windows::io::AsHandle::as_handle(file)
}

fn metadata_of(file: &std::fs::File) -> io::Result<Metadata> {
    metadata(&cap_std::fs::Metadata::from_file(file)?)
}

fn metadata(of: &cap_std::fs::Metadata) -> io::Result<Metadata> {
    if !of.is_file() && !of.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    let modified = of.modified().map_or(UNIX_EPOCH, |time| time.into_std().max(UNIX_EPOCH));
    let (changed, number) = identity(of, modified);
    Ok(Metadata { is_folder: of.is_dir(), length: of.len(), modified, changed, number })
}

/// Returns the time of the file's last change of any kind, and its number in its file system.
#[cfg(unix)]
fn identity(of: &cap_std::fs::Metadata, _: std::time::SystemTime) -> (std::time::SystemTime, u64) {
    use cap_std::fs::MetadataExt;
    use std::time::Duration;
    let since = |seconds: i64, nanoseconds: i64| {
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        UNIX_EPOCH + seconds + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
    };
    (since(of.ctime(), of.ctime_nsec()), of.ino())
}

/// Returns the time of the last modification and the creation time instead, because Windows needs another call for the
/// real values. The creation time usually distinguishes a file from one that replaces it.
#[cfg(windows)]
fn identity(of: &cap_std::fs::Metadata, modified: std::time::SystemTime) -> (std::time::SystemTime, u64) {
    use cap_std::fs::MetadataExt;
    (modified, of.creation_time())
}

#[cfg(test)]
mod tests {
    use super::is_windows_name;

    #[test]
    fn names_that_windows_takes_for_others_are_refused() {
        for (name, is_own) in [
            ("a.txt", true),
            (".", true),
            ("..", true),
            ("~", true),
            ("a~b", true),
            ("GIT~1", false),
            ("a.", false),
            ("a ", false),
            ("a.txt:stream", false),
            ("C:", false),
            ("a\\b", false),
        ] {
            assert_eq!(is_windows_name(name), is_own, "{name:?}");
        }
    }
}
