//! Files in memory, with the faults of a disk: the simulator's implementation of [`file`](crate::file).

use crate::file::{File, Files, Metadata};
use crate::random::Seeded;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

/// The faults of a simulated disk. A number n means a probability of 1/n per operation; 0 means never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// The path or the bytes are not in the cache, so `open_now` or `read_now` returns `None`.
    pub cold: u32,
    /// A read returns only some of the requested bytes, although the file has more.
    pub short: u32,
    /// A read fails (EIO).
    pub broken: u32,
}

/// The bytes of a file, which its open handles on all threads share.
type Contents = Arc<Mutex<Vec<u8>>>;

#[derive(Debug)]
struct Disk {
    files: Mutex<BTreeMap<Vec<u8>, Contents>>,
    faults: DiskFaults,
    random: Mutex<Seeded>,
    full: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder in memory. Clones share its files.
#[derive(Clone, Debug)]
pub struct SimulatedFolder {
    disk: Arc<Disk>,
}

/// An open file of a [`SimulatedFolder`]. Each one has its own random sequence, so that the faults of its reads do not
/// depend on reads of other files.
#[derive(Debug)]
pub struct SimulatedFile {
    faults: DiskFaults,
    random: Mutex<Seeded>,
    bytes: Contents,
    metadata: Metadata,
}

impl SimulatedFolder {
    /// Creates an empty folder. The seed decides when faults occur.
    pub fn new(seed: u64, faults: DiskFaults) -> SimulatedFolder {
        let (files, random) = (Mutex::default(), Mutex::new(Seeded::new(seed)));
        SimulatedFolder { disk: Arc::new(Disk { files, faults, random, full: AtomicBool::new(false) }) }
    }

    /// Sets whether the disk is full. While it is, writes fail.
    pub fn set_full(&self, full: bool) {
        self.disk.full.store(full, Ordering::Release);
    }

    /// Creates a file, or replaces its bytes. Open handles of the file see the new bytes.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::StorageFull`] if the disk is full.
    pub fn write(&self, path: &[u8], bytes: &[u8]) -> io::Result<()> {
        if self.disk.full.load(Ordering::Acquire) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let contents = locked(&self.disk.files).entry(path.to_vec()).or_default().clone();
        *locked(&contents) = bytes.to_vec();
        Ok(())
    }
}

impl Disk {
    fn file(&self, bytes: Contents, is_folder: bool) -> SimulatedFile {
        let length = locked(&bytes).len() as u64;
        let random = Mutex::new(Seeded::new(locked(&self.random).next()));
        let metadata = Metadata { is_folder, length, modified: UNIX_EPOCH, changed: UNIX_EPOCH, number: 0 };
        SimulatedFile { faults: self.faults.clone(), random, bytes, metadata }
    }
}

impl SimulatedFile {
    fn chance(&self, one_in: u32) -> bool {
        locked(&self.random).one_in(one_in)
    }
}

impl Files for SimulatedFolder {
    type File = SimulatedFile;

    fn open(&self, path: &[u8]) -> io::Result<SimulatedFile> {
        let mut parts: Vec<&[u8]> = Vec::new();
        if path.first() == Some(&b'/') {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        for part in path.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop().ok_or(io::ErrorKind::PermissionDenied)?),
                part if part.contains(&0) => return Err(io::ErrorKind::InvalidInput.into()),
                part => parts.push(part),
            }
        }
        let path = parts.join(&b'/');
        let files = locked(&self.disk.files);
        if let Some(bytes) = files.get(&path) {
            return Ok(self.disk.file(bytes.clone(), false));
        }
        let inside = [&path[..], b"/"].concat();
        if path.is_empty() || files.keys().any(|other| other.starts_with(&inside)) {
            return Ok(self.disk.file(Contents::default(), true));
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn open_now(&self, path: &[u8]) -> io::Result<Option<SimulatedFile>> {
        let cold = locked(&self.disk.random).one_in(self.disk.faults.cold);
        if cold { Ok(None) } else { self.open(path).map(Some) }
    }
}

impl File for SimulatedFile {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if self.chance(self.faults.cold) {
            return Ok(None);
        }
        self.read(buffer, offset).map(Some)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.chance(self.faults.broken) {
            return Err(io::Error::other("cannot read the file: disk error (EIO)"));
        }
        let bytes = locked(&self.bytes);
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let mut count = rest.len().min(buffer.len());
        if count > 1 && self.chance(self.faults.short) {
            count = 1 + locked(&self.random).below(count - 1);
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(file: &SimulatedFile) -> (Vec<u8>, usize) {
        let (mut bytes, mut waits) = (Vec::new(), 0);
        let mut buffer = [0; 7];
        loop {
            match file.read_now(&mut buffer, bytes.len() as u64).expect("this disk does not break") {
                None => {
                    waits += 1;
                    assert!(waits < 10_000, "the file is never in the cache");
                }
                Some(0) => return (bytes, waits),
                Some(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn what_was_written_is_read_whatever_the_disk_does_and_the_same_seed_does_the_same() {
        let text: Vec<u8> = (0..=255).collect();
        let read = |seed| {
            let folder = SimulatedFolder::new(seed, DiskFaults { cold: 3, short: 2, broken: 0 });
            folder.write(b"a/b", &text).expect("room");
            whole(&folder.open(b"a/./c/../b").expect("a file"))
        };
        for seed in 0..50 {
            let (bytes, waits) = read(seed);
            assert_eq!(bytes, text, "seed {seed}");
            assert_eq!(read(seed).1, waits, "seed {seed}");
        }
    }

    #[test]
    fn paths_mean_what_they_mean_on_a_disk() {
        let folder = SimulatedFolder::new(1, DiskFaults::default());
        folder.write(b"a/b", b"x").expect("room");
        for (path, expected) in [
            (&b"../a/b"[..], io::ErrorKind::PermissionDenied),
            (b"a/../../b", io::ErrorKind::PermissionDenied),
            (b"/a/b", io::ErrorKind::PermissionDenied),
            (b"a/c", io::ErrorKind::NotFound),
            (b"a\0", io::ErrorKind::InvalidInput),
        ] {
            assert_eq!(folder.open(path).expect_err("no file").kind(), expected, "{path:?}");
        }
        assert!(folder.open(b"a").expect("a folder").metadata().is_folder);
        folder.set_full(true);
        assert_eq!(folder.write(b"c", b"").expect_err("no room").kind(), io::ErrorKind::StorageFull);
        let file = folder.open(b"a/b").expect("a file");
        folder.set_full(false);
        folder.write(b"a/b", b"").expect("room");
        assert_eq!(file.read(&mut [0; 4], 0).expect("the new end of the file"), 0);
    }
}
