//! Files beneath a folder: what a server may show of a file system, and nothing else of it.
//!
//! A path may not leave the folder, not by `..`, not by a symbolic link, not while another process moves files. On Linux the kernel
//! ensures this (`openat2` with `RESOLVE_BENEATH`), elsewhere the crate cap-std. Opening and reading have two forms each: what the
//! kernel has in its caches is opened and read by the caller ([`Files::open_now`], [`File::read_now`]); anything else would make a
//! worker wait for a disk, and is left to threads that may wait ([`Files::open`], [`File::read`]). Only Linux reports what is in its
//! caches. The simulator's twin is [`sim::files`](crate::sim::files).

pub use crate::sys::FileHandle;
pub use crate::sys::file::{Folder, Open};

use std::fmt;
use std::io;
use std::time::SystemTime;

/// A folder with files in it.
pub trait Files {
    /// Its files.
    type File: File;

    /// Opens a file for reading. The path is relative, its parts separated by slashes.
    ///
    /// # Errors
    /// What the system says: not found, no permission, no descriptors; [`io::ErrorKind::WouldBlock`] where it asks to
    /// try again later. [`io::ErrorKind::PermissionDenied`] also where the path would leave the folder;
    /// [`io::ErrorKind::InvalidInput`] where it is none, or names what is neither a file nor a folder.
    fn open(&self, path: &[u8]) -> io::Result<Self::File>;

    /// Opens a file whose path can be resolved without a wait; `None` where it would have to be looked up on a disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_now(&self, path: &[u8]) -> io::Result<Option<Self::File>>;
}

/// What is said of a file when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whether it is a folder; then there is nothing to read.
    pub is_folder: bool,
    /// Its bytes.
    pub length: u64,
    /// When its bytes were last changed, or what somebody has set for that.
    pub modified: SystemTime,
    /// When it was last changed in any way; nobody can set that.
    pub changed: SystemTime,
    /// Its number in its file system: two paths with one number lead to one file.
    pub number: u64,
}

/// What is in a folder: see [`Folder::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Files and folders by their names, in no order.
    pub items: Vec<(Vec<u8>, Metadata)>,
    /// There are more than were asked for.
    pub more: bool,
}

/// An open file. What has it open may be several at once, on several threads.
pub trait File: fmt::Debug + Send + Sync {
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

    /// The system's handle of it, where the system has it: its bytes can be sent without being read first.
    fn descriptor(&self) -> Option<FileHandle<'_>> {
        None
    }
}

/// Tests that every implementation passes.
#[cfg(all(test, unix))]
mod tests {
    macro_rules! tests_of {
        ($name:ident, $folder:path) => {
            mod $name {
                use crate::file::{File, Files};
                use std::ffi::CString;
                use std::io;
                use std::os::unix::fs::symlink;

                type Folder = $folder;

                /// A folder of its own for each test, which goes with it.
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
                    // Just written, it is in the cache; a file system may still refuse to say so.
                    assert!(matches!(file.read_now(&mut buffer, 8), Ok(Some(2) | None)));
                    assert_eq!(file.read(&mut buffer, 10).expect("the end"), 0);
                    std::fs::write(place.0.join("root/a"), "01").expect("it shrinks");
                    assert_eq!(file.metadata_now().expect("it is open").length, 2);
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
                        let error = folder.open(path).expect_err("it leads out");
                        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", String::from_utf8_lossy(path));
                    }
                    assert_eq!(folder.open(b"within").expect("a link that stays").metadata().length, 10);
                    assert_eq!(
                        folder.open(b"inner/out/a").expect("out of the inner folder is not out").metadata().length,
                        10
                    );
                    assert_eq!(folder.open(b"a\0b").expect_err("no path").kind(), io::ErrorKind::InvalidInput);
                    assert_eq!(folder.open(b"nothing").expect_err("it is not there").kind(), io::ErrorKind::NotFound);
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
                    // What is not shown takes no place of what is.
                    assert_eq!(list(b"", 2), ("a false 10, inner true 0".to_string(), false));
                    for name in ["unwanted", "inner/unwanted"] {
                        std::fs::write(root.join(name), "").expect("a file");
                    }
                    assert_eq!(list(b"", 2), ("a false 10, inner true 0".to_string(), false));
                    assert_eq!(list(b"inner", 1), ("within false 10".to_string(), false));
                    let list = |path: &[u8]| place.folder().list(path, 1, |_| true);
                    assert!(list(b"a").is_err());
                    assert_eq!(list(b"..").expect_err("it leads out").kind(), io::ErrorKind::PermissionDenied);
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
                            .expect("it is ours");
                    };
                    mode(".", 0o755);
                    mode("closed", 0);
                    // It could be passed through, and not be looked into.
                    mode("closed-folder", 0o111);
                    mode("a", 0o444);
                    mode("inner", 0o555);
                    let folder = place.folder();
                    let names = std::thread::scope(|scope| {
                        let listed = scope.spawn(|| {
                            // Who may do everything is somebody else here: the call itself, unlike the library's, is for this
                            // thread alone. SAFETY: the calls take numbers only.
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
                        let error = place.folder().open(name).expect_err("no file");
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
    // On Linux, cap-std uses openat2 itself: this tests what surrounds it, and not its own resolution of paths.
    tests_of!(portable, crate::sys::portable::file::Folder);
}
