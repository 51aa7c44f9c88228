//! Files that responses send.

use highwire_engine::io::file::{File, Files, Folder, Open};
use pyo3::prelude::*;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file, or a part of it.
pub(crate) struct FilePart {
    pub(super) file: Arc<Open>,
    pub(super) range: Range<u64>,
}

impl FilePart {
    /// Opens a file with an absolute path.
    pub(crate) fn open(py: Python<'_>, path: &Path, range: Option<Range<u64>>) -> PyResult<FilePart> {
        let (file, length) = open(path).map_err(|error| {
            let error = PyErr::from(error);
            let _ = error.value(py).setattr("filename", path);
            error
        })?;
        let range = range.map_or(0..length, |range| range.start.min(length)..range.end.min(length));
        Ok(FilePart { file, range })
    }
}

/// Opens a file with an absolute path. Returns its length, too.
fn open(path: &Path) -> io::Result<(Arc<Open>, u64)> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the path must be that of a file, and absolute");
    let (folder, name) = path.parent().zip(path.file_name()).filter(|_| path.is_absolute()).ok_or_else(invalid)?;
    let file = Folder::open(folder)?.open(name.as_encoded_bytes())?;
    let length = file.metadata().length;
    Ok((Arc::new(file), length))
}
