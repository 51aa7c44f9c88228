//! Files below a folder, for a server that must not expose any other files.
//!
//! A path cannot leave the folder, neither by `..` nor by a symbolic link, even while another process moves files. The
//! kernel ensures this on Linux (`openat2` with `RESOLVE_BENEATH`), and the crate cap-std on other systems.
//!
//! There are two ways to open and to read a file. [`Files::open_now`] and [`File::read_now`] do not wait for a disk.
//! They return `None` if the kernel does not have the path or the bytes in its caches, and always on systems other than
//! Linux, which do not report that. [`Files::open`] and [`File::read`] may wait, so a worker usually calls them on
//! other threads. The simulator's implementation is [`sim::files`](crate::sim::files).

pub use crate::sys::FileHandle;
pub use crate::sys::file::{Folder, Open};

use std::fmt;
use std::io;
use std::time::SystemTime;

/// A folder whose files can be opened.
pub trait Files {
    /// The type of an open file.
    type File: File;

    /// Opens a file or folder for reading. The path is relative, and its parts are separated by slashes.
    ///
    /// # Errors
    /// Returns the system's error, for example if the file does not exist, may not be read, or no descriptor is free;
    /// [`io::ErrorKind::WouldBlock`] if the file can only be opened later, for example because a program has a lease on
    /// it. Also returns [`io::ErrorKind::PermissionDenied`] if the path would leave the folder, and
    /// [`io::ErrorKind::InvalidInput`] if the path is invalid (for example because it contains NUL) or names neither a
    /// file nor a folder.
    fn open(&self, path: &[u8]) -> io::Result<Self::File>;

    /// Opens a file if that is possible without waiting. Returns `None` if its path may have to be looked up on a disk.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    fn open_now(&self, path: &[u8]) -> io::Result<Option<Self::File>>;
}

/// The properties of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// True for a folder, which has no bytes to read.
    pub is_folder: bool,
    /// The length in bytes.
    pub length: u64,
    /// The time of the last change to the bytes. Programs can set it to any time.
    pub modified: SystemTime,
    /// The time of the last change to the bytes or properties, which programs normally cannot set. On Windows, the same
    /// as `modified`.
    pub changed: SystemTime,
    /// The file's number in its file system (inode), the same for all paths to the file. On Windows, the creation time.
    pub number: u64,
}

/// What a path that led to a folder leads to now, as [`Folder::again`] returns it.
#[derive(Debug)]
pub enum Again<F> {
    /// The same folder.
    Same,
    /// Another folder.
    Other(F),
}

/// The content of a folder, as [`Folder::list`] returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The names and properties of files and folders, in no particular order.
    pub items: Vec<(Vec<u8>, Metadata)>,
    /// True if there are more items than the caller allowed.
    pub more: bool,
}

/// An open file. Several threads can read it at the same time.
pub trait File: fmt::Debug + Send + Sync {
    /// Returns the properties that the file had when it was opened.
    fn metadata(&self) -> Metadata;

    /// Reads bytes from `offset` on without waiting. Returns their number, 0 at the end of the file, or `None` if they
    /// may have to be fetched from a disk.
    ///
    /// # Errors
    /// Returns the system's error. A file that has become shorter causes no error; reading then ends earlier.
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// Reads bytes from `offset` on, and waits for the disk if necessary. Returns their number, 0 at the end of the
    /// file. Call this only on threads that may wait.
    ///
    /// # Errors
    /// Returns the same errors as [`read_now`](Self::read_now).
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the system's handle of the file, if there is one. With it, the kernel can send the file's bytes without
    /// a read.
    fn descriptor(&self) -> Option<FileHandle<'_>> {
        None
    }
}

/// Tests of the implementation for Linux and of the portable one.
#[cfg(all(test, unix))]
mod tests {
    macro_rules! tests_of {
        ($name:ident, $folder:path) => {
            mod $name {
                use crate::file::{Again, File, Files};
                use std::ffi::CString;
                use std::io;
                use std::os::unix::fs::symlink;

                type Folder = $folder;

                /// A temporary folder for one test, removed when this is dropped.
                struct Place(std::path::PathBuf);

                impl Place {
                    fn new(name: &str) -> Place {
                        let path = std::env::temp_dir().join(format!(
                            "highwire-file-{}-{name}-{}",
                            stringify!($name),
                            std::process::id()
                        ));
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
                    // The file was just written, so it is in the cache, but not every file system reports that.
                    assert!(matches!(file.read_now(&mut buffer, 8), Ok(Some(2) | None)));
                    assert_eq!(file.read(&mut buffer, 10).expect("the end"), 0);
                    std::fs::write(place.0.join("root/a"), "01").expect("the file can be written");
                    assert_eq!(file.metadata_now().expect("properties of an open file").length, 2);
                    assert_eq!(file.read(&mut buffer, 3).expect("the new end"), 0);
                    assert!(place.folder().open(b"").expect("the folder itself").metadata().is_folder);
                }

                #[test]
                fn a_path_that_leads_to_another_folder_is_noticed() {
                    let place = Place::new("again");
                    let folder = place.folder();
                    let root = place.0.join("root");
                    assert!(matches!(folder.again(&root), Ok(Again::Same)));
                    assert!(matches!(folder.again_now(&root), Ok(Some(Again::Same) | None)));
                    std::fs::rename(&root, place.0.join("old")).expect("another name");
                    assert!(folder.again(&root).is_err());
                    std::fs::create_dir(place.0.join("new")).expect("a folder");
                    std::fs::write(place.0.join("new/a"), "new").expect("a file");
                    symlink("new", &root).expect("a link");
                    let Ok(Again::Other(other)) = folder.again(&root) else {
                        panic!("the path leads to another folder")
                    };
                    assert_eq!(other.open(b"a").expect("a file").metadata().length, 3);
                    assert_eq!(folder.open(b"a").expect("a file").metadata().length, 10);
                    assert!(matches!(folder.again_now(&root), Ok(Some(Again::Other(_)) | None)));
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
                    let etc =
                        [b"/etc/passwd".to_vec(), place.0.join("secret").to_string_lossy().into_owned().into_bytes()];
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
                        let error = folder.open(path).expect_err("the path leaves the folder");
                        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", String::from_utf8_lossy(path));
                    }
                    assert_eq!(folder.open(b"within").expect("a link that stays").metadata().length, 10);
                    assert_eq!(folder.open(b"inner/out/a").expect("a path below the root").metadata().length, 10);
                    assert_eq!(folder.open(b"a\0b").expect_err("a path with NUL").kind(), io::ErrorKind::InvalidInput);
                    assert_eq!(folder.open(b"nothing").expect_err("no such file").kind(), io::ErrorKind::NotFound);
                }

                #[test]
                fn a_folder_is_listed_without_what_leads_out_of_it() {
                    let place = Place::new("list");
                    let root = place.0.join("root");
                    symlink("../secret", root.join("up")).expect("a link");
                    symlink("../a", root.join("inner/within")).expect("a link");
                    symlink("gone", root.join("dangling")).expect("a link");
                    let list = |path: &[u8], most| {
                        let mut listing =
                            place.folder().list(path, most, |name| name != b"unwanted").expect("a folder");
                        listing.items.sort_by(|one, other| one.0.cmp(&other.0));
                        let items = listing.items.iter().map(|(name, metadata)| {
                            format!(
                                "{} {} {}",
                                String::from_utf8_lossy(name),
                                metadata.is_folder,
                                metadata.length * u64::from(!metadata.is_folder)
                            )
                        });
                        (items.collect::<Vec<_>>().join(", "), listing.more)
                    };
                    assert_eq!(list(b"", 10), ("a false 10, inner true 0".to_string(), false));
                    assert_eq!(list(b"inner", 10), ("within false 10".to_string(), false));
                    assert!(list(b"", 1).1);
                    // Items that are left out do not count against the limit.
                    assert_eq!(list(b"", 2), ("a false 10, inner true 0".to_string(), false));
                    for name in ["unwanted", "inner/unwanted"] {
                        std::fs::write(root.join(name), "").expect("a file");
                    }
                    assert_eq!(list(b"", 2), ("a false 10, inner true 0".to_string(), false));
                    assert_eq!(list(b"inner", 1), ("within false 10".to_string(), false));
                    let list = |path: &[u8]| place.folder().list(path, 1, |_| true);
                    assert!(list(b"a").is_err());
                    assert_eq!(list(b"..").expect_err("it leaves the folder").kind(), io::ErrorKind::PermissionDenied);
                }

                #[test]
                fn a_folder_is_listed_without_what_may_not_be_opened() {
                    use std::os::unix::fs::PermissionsExt;
                    let place = Place::new("closed");
                    let root = place.0.join("root");
                    std::fs::create_dir(root.join("closed-folder")).expect("a folder");
                    std::fs::write(root.join("closed"), "").expect("a file");
                    symlink("closed", root.join("to-closed")).expect("a link");
                    let mode = |name: &str, mode| {
                        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode))
                            .expect("the test owns the file");
                    };
                    mode(".", 0o755);
                    mode("closed", 0);
                    // All users may pass through the folder, but not list it.
                    mode("closed-folder", 0o111);
                    mode("a", 0o444);
                    mode("inner", 0o555);
                    let folder = place.folder();
                    let names = std::thread::scope(|scope| {
                        let listed = scope.spawn(|| {
                            // Root may open everything, so a thread of root becomes another user. The raw system call
                            // affects only this thread; the function of the C library affects all.
                            // SAFETY: the calls take only numbers.
                            unsafe {
                                if libc::geteuid() == 0 {
                                    assert_eq!(libc::syscall(libc::SYS_setresuid, -1, 65_534, -1), 0);
                                }
                            }
                            let listing = folder.list(b"", 10, |_| true).expect("a folder");
                            listing.items.into_iter().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>()
                        });
                        listed.join().expect("a listing")
                    });
                    mode("closed-folder", 0o700);
                    assert_eq!(names, [b"a".to_vec(), b"inner".to_vec()].into());
                }

                #[test]
                fn what_is_no_file_is_refused_and_nobody_waits_for_it() {
                    let place = Place::new("kinds");
                    let pipe = CString::new(place.0.join("root/pipe").to_string_lossy().as_bytes()).expect("a path");
                    // SAFETY: the pointer is to a string that ends in NUL.
                    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
                    let _socket =
                        std::os::unix::net::UnixListener::bind(place.0.join("root/socket")).expect("a socket");
                    for name in [&b"pipe"[..], b"socket"] {
                        let error = place.folder().open(name).expect_err("neither a file nor a folder");
                        assert_eq!(
                            error.kind(),
                            io::ErrorKind::InvalidInput,
                            "{}: {error}",
                            String::from_utf8_lossy(name)
                        );
                    }
                }
            }
        };
    }

    #[cfg(target_os = "linux")]
    tests_of!(linux, crate::sys::linux::file::Folder);
    // On Linux, cap-std itself uses openat2. This therefore tests our code around cap-std, and not cap-std's own
    // resolution of paths.
    tests_of!(portable, crate::sys::portable::file::Folder);
}
