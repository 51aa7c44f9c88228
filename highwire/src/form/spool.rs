//! A part's data in a file that is gone with its handle.
//!
//! The file is written on the blocking pool: a disk that is slow, or stands still, stops this upload and no worker. What
//! comes is gathered first, so that a job of the pool is worth its two hand-overs between threads. A file that is whole
//! is closed: a handler may have as many as a form has parts. It is removed by the pool as well, where one job removes
//! all that a worker has dropped until it ends: a form of many small files does not take the pool's places from others.

use super::multipart::Fault;
use crate::spawn_blocking::{SpawnBlockingError, spawn_blocking};
use bytes::Bytes;
use highwire_engine::context;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// A file that was uploaded. Dropped, it is removed, unless it was [kept](Self::keep).
///
/// Only the user that the server runs as may read it, and its name in the folder is `highwire-` and a random number; a
/// process that is killed leaves it there. It is written, but not synchronised with the disk.
///
/// ```
/// use highwire::form::MultipartError;
/// use highwire::{App, Multipart, StatusCode};
///
/// let keep = async |mut form: Multipart| {
///     while let Some(part) = form.next().await {
///         let file = part?.spool(std::env::temp_dir()).await?;
///         if file.len() > 0 {
///             // From here on it is the program's.
///             println!("stored as {}", file.keep().display());
///         }
///     }
///     Ok::<_, MultipartError>(StatusCode::NO_CONTENT)
/// };
/// let app = App::new().post("/upload", keep);
/// # let _ = app;
/// ```
#[derive(Debug)]
pub struct Spool {
    file: Option<Temporary>,
    /// What is not written yet.
    gathered: Vec<u8>,
    bytes: u64,
}

/// A file that is removed when it is dropped, on whatever thread that is.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    /// Until it is whole.
    file: Option<File>,
    kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            highwire_engine::log!(Failure, warn, %error, path = %self.path.display(), "an upload's file cannot be removed");
        }
    }
}

impl Temporary {
    fn create(folder: &Path) -> io::Result<Temporary> {
        let path = folder.join(format!(
            "highwire-{:016x}{:016x}",
            highwire_io::random::system(),
            highwire_io::random::system()
        ));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        Ok(Temporary { path, file: Some(file), kept: false })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }
}

fn lost(error: SpawnBlockingError) -> Fault {
    match error {
        SpawnBlockingError::Full => Fault::Busy,
        _ => Fault::Disk(io::ErrorKind::Other),
    }
}

impl Spool {
    pub(super) async fn create(folder: &Path) -> Result<Spool, Fault> {
        let folder = folder.to_path_buf();
        match spawn_blocking(move || Temporary::create(&folder)).await.map_err(lost)? {
            Ok(file) => Ok(Spool { file: Some(file), gathered: Vec::new(), bytes: 0 }),
            Err(error) => Err(Fault::Disk(error.kind())),
        }
    }

    pub(super) async fn write(mut self, bytes: &Bytes) -> Result<Spool, Fault> {
        self.gathered.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        if self.gathered.len() >= WRITE_BYTES { self.flush(Rest::Follows).await } else { Ok(self) }
    }

    async fn flush(mut self, rest: Rest) -> Result<Spool, Fault> {
        let Some(mut file) = self.file.take() else { return Ok(self) };
        let mut gathered = std::mem::take(&mut self.gathered);
        // Where it fails, or nobody waits for it any more, the file is dropped there, and so removed.
        let write = move || {
            file.write(&gathered)?;
            gathered.clear();
            if rest == Rest::None {
                // What gathered bytes is not kept either, as long as the file may be.
                (file.file, gathered) = (None, Vec::new());
            }
            Ok::<_, io::Error>((file, gathered))
        };
        match spawn_blocking(write).await.map_err(lost)? {
            Ok((file, gathered)) => {
                (self.file, self.gathered) = (Some(file), gathered);
                Ok(self)
            }
            Err(error) => Err(Fault::Disk(error.kind())),
        }
    }

    /// It is whole.
    pub(super) async fn finish(self) -> Result<Spool, Fault> {
        self.flush(Rest::None).await
    }

    /// How many bytes it has.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for a file's emptiness by another name")]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), |file| &file.path)
    }

    /// Leaves the file where it is, for the program to rename or remove.
    pub fn keep(mut self) -> PathBuf {
        let Some(mut file) = self.file.take() else { return PathBuf::new() };
        file.kept = true;
        file.path.clone()
    }
}

/// What becomes of a file behind the bytes that are written now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Follows,
    None,
}

/// Removing a large file takes the system a while: the pool does it where it has a place.
impl Drop for Spool {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // Where the thread is ending, the file goes here.
        let Ok(dropped) = DROPPED.try_with(|its| its.0.clone()) else { return };
        let mut its = lock(&dropped);
        its.files.push(file);
        if !std::mem::replace(&mut its.has_remover, true) {
            drop(its);
            drop(context::try_offer(Remover(dropped), Box::new(drop)));
        }
    }
}

thread_local! {
    static DROPPED: Its = Its::default();
}

/// What a thread has dropped. With the thread goes what is still there, whether or not the pool has time for it.
#[derive(Default)]
struct Its(Arc<Mutex<Dropped>>);

impl Drop for Its {
    fn drop(&mut self) {
        remove_all(&self.0);
    }
}

/// Removes what this thread has dropped and is still there: a worker that ends on a thread which goes on does it by this.
pub(crate) fn remove_dropped() {
    let _ = DROPPED.try_with(|its| remove_all(&its.0));
}

fn remove_all(dropped: &Mutex<Dropped>) {
    // Without the lock, so that both may remove, this thread and the pool's.
    while let Some(file) = { lock(dropped).files.pop() } {
        drop(file);
    }
}

/// Files that this thread has dropped, and that are still there.
#[derive(Default)]
struct Dropped {
    files: Vec<Temporary>,
    has_remover: bool,
}

fn lock(dropped: &Mutex<Dropped>) -> MutexGuard<'_, Dropped> {
    dropped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes them where it is dropped: on the pool, also with one that ends before it comes to that; or where the pool
/// has no place.
struct Remover(Arc<Mutex<Dropped>>);

impl Drop for Remover {
    fn drop(&mut self) {
        loop {
            remove_all(&self.0);
            let mut dropped = lock(&self.0);
            if dropped.files.is_empty() {
                (dropped.has_remover, dropped.files) = (false, Vec::new());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Client;
    use crate::{App, form::MultipartError};

    #[test]
    fn a_thread_that_ends_leaves_no_file() {
        let paths = std::thread::spawn(|| {
            // As if the pool were at it, and did not come to its end.
            DROPPED.with(|its| lock(&its.0).has_remover = true);
            let write = |number: u32| {
                let path = std::env::temp_dir().join(format!("highwire-ends-{}-{number}", std::process::id()));
                std::fs::write(&path, "a").expect("a file");
                let file = Temporary { path: path.clone(), file: None, kept: false };
                drop(Spool { file: Some(file), gathered: Vec::new(), bytes: 1 });
                path
            };
            let paths: Vec<PathBuf> = (0..3).map(write).collect();
            assert!(paths.iter().all(|path| path.exists()), "somebody else removes them");
            paths
        });
        let paths = paths.join().expect("it ends");
        assert!(!paths.iter().any(|path| path.exists()), "they are left behind");
    }

    #[test]
    fn a_full_disk_is_told_and_leaves_no_file() {
        // Needs a real kernel: its device that is always full.
        let app = App::new().get("/", async || {
            let mut spool = Spool::create(&std::env::temp_dir()).await.expect("a file");
            let path = spool.path().to_path_buf();
            let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
            spool.file.as_mut().expect("it is not being written").file = Some(full);
            let part = Bytes::from(vec![0; WRITE_BYTES]);
            let fault = spool.write(&part).await.expect_err("the disk is full");
            assert!(!path.exists(), "the file is left behind");
            MultipartError { fault, part: Some("a".to_string()), offset: 7 }
        });
        let answer = Client::new(app).expect("an app").get("/").send();
        let expected = r#"{"title":"Insufficient Storage","status":507,"detail":"the server has no room left for the upload","in":"body","offset":7,"field":"a"}"#;
        assert_eq!((answer.status().as_u16(), answer.text()), (507, expected));
    }
}
