//! A part's data in a temporary file, which is removed when its handle is dropped, unless the handler keeps it.
//!
//! The blocking pool writes the file, so that a slow or stalled disk stops this upload but no worker. Received bytes
//! are collected first, because each job of the pool costs two hand-overs between threads. A complete file is closed,
//! because a handler may hold as many as a form has parts. The pool also removes the files. One job removes all files
//! that a worker drops until the job ends, so that a form of many small files does not fill the pool.

use super::multipart::Fault;
use crate::app::spawn_blocking::{SpawnBlockingError, spawn_blocking};
use bytes::Bytes;
use highwire_engine::context;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of bytes that are collected before a write.
const WRITE_BYTES: usize = 256 * 1024;

/// An uploaded file. Dropping the handle removes the file; [`keep`](Self::keep) prevents this.
///
/// The file's name is `highwire-` and a random number. On Unix, only the server's user may read it. The file stays if
/// the process is killed. Its bytes are written, but not synchronized with the disk (`fsync`).
///
/// ```
/// use highwire::form::MultipartError;
/// use highwire::{App, Multipart, StatusCode};
///
/// let keep = async |mut form: Multipart| {
///     while let Some(part) = form.next().await {
///         let file = part?.spool(std::env::temp_dir()).await?;
///         if file.len() > 0 {
///             // From here on, the program must rename or remove the file.
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
    /// Bytes that are not written yet.
    gathered: Vec<u8>,
    bytes: u64,
}

/// A file that is removed when this is dropped, by the thread that drops it, unless `kept` is true.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    /// The open file, until all bytes are written.
    file: Option<File>,
    kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            highwire_engine::log!(Failure, warn, %error, path = %self.path.display(), "cannot remove the file of an upload");
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
        // If the write fails, or if the upload's future is gone when the write ends, the file is dropped, which removes
        // it.
        let write = move || {
            file.write(&gathered)?;
            gathered.clear();
            if rest == Rest::None {
                // The buffer is freed, too, because the handler may keep the handle for long.
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

    /// Writes the rest, and closes the file.
    pub(super) async fn finish(self) -> Result<Spool, Fault> {
        self.flush(Rest::None).await
    }

    /// Returns the file's length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for a file's emptiness by another name")]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), |file| &file.path)
    }

    /// Keeps the file, and returns its path. From then on, the program must rename or remove the file.
    pub fn keep(mut self) -> PathBuf {
        let Some(mut file) = self.file.take() else { return PathBuf::new() };
        file.kept = true;
        file.path.clone()
    }
}

/// The rest of a file, after the bytes that are being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Follows,
    None,
}

/// Gives the file to the blocking pool to remove, because removing a large file takes time. If the pool is full, this
/// thread removes it.
impl Drop for Spool {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // While the thread ends, `DROPPED` no longer exists, and this thread removes the file.
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

/// The files that a thread has dropped. When the thread ends, it removes those that the pool has not removed yet.
#[derive(Default)]
struct Its(Arc<Mutex<Dropped>>);

impl Drop for Its {
    fn drop(&mut self) {
        remove_all(&self.0);
    }
}

/// Removes the files that this thread has dropped and that still exist. A worker that ends must call it, because its
/// thread may continue.
pub(crate) fn remove_dropped() {
    let _ = DROPPED.try_with(|its| remove_all(&its.0));
}

fn remove_all(dropped: &Mutex<Dropped>) {
    // The lock is not held while a file is removed, so that this thread and the pool can remove files at the same time.
    while let Some(file) = { lock(dropped).files.pop() } {
        drop(file);
    }
}

/// Files that a thread has dropped and that still exist, and whether a [`Remover`] exists for them.
#[derive(Default)]
struct Dropped {
    files: Vec<Temporary>,
    has_remover: bool,
}

fn lock(dropped: &Mutex<Dropped>) -> MutexGuard<'_, Dropped> {
    dropped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes dropped files when it is dropped itself. Its job on the pool drops it, or the pool if it ends before it runs
/// the job, or the caller at once if the pool is full.
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
            // In this state, the pool has a job for these files, but has not run it.
            DROPPED.with(|its| lock(&its.0).has_remover = true);
            let write = |number: u32| {
                let path = std::env::temp_dir().join(format!("highwire-ends-{}-{number}", std::process::id()));
                std::fs::write(&path, "a").expect("a file");
                let file = Temporary { path: path.clone(), file: None, kept: false };
                drop(Spool { file: Some(file), gathered: Vec::new(), bytes: 1 });
                path
            };
            let paths: Vec<PathBuf> = (0..3).map(write).collect();
            assert!(paths.iter().all(|path| path.exists()), "the files exist until the thread ends");
            paths
        });
        let paths = paths.join().expect("the thread ends without a panic");
        assert!(!paths.iter().any(|path| path.exists()), "a file is left behind");
    }

    #[test]
    fn a_full_disk_is_told_and_leaves_no_file() {
        // Needs a real kernel, for the device `/dev/full`, which is always full.
        let app = App::new().get("/", async || {
            let mut spool = Spool::create(&std::env::temp_dir()).await.expect("a file");
            let path = spool.path().to_path_buf();
            let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
            spool.file.as_mut().expect("a file that is not being written").file = Some(full);
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
