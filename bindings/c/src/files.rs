//! Folders of files.

use crate::app::{change, check_path, highwire_app};
use crate::result::{guarded, highwire_result, text};
use highwire::Files;
use std::ffi::c_char;

/// Serves the files of a folder below a path: with conditional requests, ranges, precompressed files and `index.html`.
/// If `lists` is not 0, a folder without an `index.html` gets a listing.
///
/// # Safety
/// `prefix` and `folder` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_app_files(
    app: highwire_app,
    prefix: *const c_char,
    folder: *const c_char,
    lists: i32,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (prefix, folder) = unsafe { (text(prefix, "prefix")?, text(folder, "folder")?) };
        check_path(prefix)?;
        let files = Files::new(folder).precompressed();
        let files = if lists != 0 { files.listing() } else { files };
        change(app, |app| app.files(prefix, files))
    })
}
