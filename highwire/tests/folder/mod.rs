//! Helpers for the tests with files: a folder with files of a known date, and contents for them.

#![allow(dead_code, reason = "each test program uses a part of it")]

use highwire::Files;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// Friday, 15 January 2021, 08:00:00 UTC, in seconds since 1970. This is long enough ago for strong validators.
const DATE: u64 = 1_610_697_600;

/// A temporary folder for one test. Dropping the value removes the folder.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// Makes a folder that no other test of this process has, even with the same name.
    pub(crate) fn new(name: &str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("highwire-files-{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("root")).expect("a folder");
        Place(path)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// Writes a file with the modification date [`DATE`].
    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a path below the root")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        let date = UNIX_EPOCH + Duration::from_secs(DATE);
        fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(date)).expect("a date");
    }

    pub(crate) fn files(&self) -> Files {
        Files::new(self.root())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns pseudo-random bytes, which do not repeat within any buffer.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    next.take(length).collect()
}
