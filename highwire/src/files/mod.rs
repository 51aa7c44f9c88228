//! The files of a folder, which [`App::files`](crate::App::files) serves.
//!
//! For each request, `endpoint` parses the path (`name`) and looks for the file in the `cache`. If the cache does not
//! have it, `load` reads it at once or on the blocking pool, and `entry` renders its header fields. Then `answer` makes
//! the response, using `coding`, `validators` and `range`.

mod answer;
mod body;
mod cache;
mod coding;
mod endpoint;
mod entry;
mod listing;
mod load;
pub(crate) mod media_type;
mod name;
pub(crate) mod open;
pub(crate) mod range;
mod root;
pub(crate) mod validators;

use crate::handler::Route;
use crate::{Error, HeaderValue, Response, Result, StatusCode};
use highwire_io::file::Folder;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// A folder to serve, with its settings. [`App::files`](crate::App::files) takes this, or only the path of a folder.
///
/// A request cannot reach a file outside of the folder, neither by `..` nor through symbolic links; on Linux, the
/// kernel ensures this. Paths in these settings are relative to the folder and use slashes.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Files, StatusCode};
/// # let folder = std::env::temp_dir().join(format!("highwire-example-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # std::fs::write(folder.join("style.css"), "body { color: black }")?;
/// # std::fs::write(folder.join("missing.html"), "<p>gone")?;
/// let files = Files::new(&folder)
///     .cache_control("*.css", "max-age=3600")
///     .error_page(StatusCode::NOT_FOUND, "missing.html");
/// let mut client = Client::new(App::new().files("/static", files))?;
/// let answer = client.get("/static/style.css").send();
/// assert_eq!((answer.text(), answer.header("content-type")), ("body { color: black }", "text/css; charset=utf-8"));
/// assert_eq!(answer.header("cache-control"), "max-age=3600");
/// assert_eq!(client.get("/static/nothing").send().text(), "<p>gone");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Files {
    folder: PathBuf,
    index: Option<String>,
    has_listing: bool,
    hidden: bool,
    precompressed: bool,
    single_page: Option<String>,
    error_pages: Vec<(StatusCode, String)>,
    cache_control: Vec<(String, String)>,
    media_types: Vec<(String, String)>,
    cache_bytes: usize,
}

/// The default limit of the bytes of small files that each worker keeps. Most sites' pages, scripts and styles fit.
const CACHE_BYTES: usize = 16 << 20;

impl Files {
    /// Serves the files of a folder. [`App::files`](crate::App::files) opens the folder. If the path later leads to another
    /// folder, such as a link that a deployment switches, each worker serves that one after a second at most. While it
    /// leads nowhere, the old folder is served.
    pub fn new(folder: impl Into<PathBuf>) -> Files {
        Files {
            folder: folder.into(),
            index: Some("index.html".to_string()),
            has_listing: false,
            hidden: false,
            precompressed: false,
            single_page: None,
            error_pages: Vec::new(),
            cache_control: Vec::new(),
            media_types: Vec::new(),
            cache_bytes: CACHE_BYTES,
        }
    }

    /// Sets the name of the file that is sent for a folder; the default is `index.html`.
    pub fn index(mut self, name: impl Into<String>) -> Files {
        self.index = Some(name.into());
        self
    }

    /// Sends no index file for a folder.
    pub fn without_index(mut self) -> Files {
        self.index = None;
        self
    }

    /// Lists the contents of folders that have no index file.
    pub fn listing(mut self) -> Files {
        self.has_listing = true;
        self
    }

    /// Also serves files and folders whose names begin with a dot. Those of `.well-known` (RFC 8615) in the folder are always
    /// served.
    pub fn hidden(mut self) -> Files {
        self.hidden = true;
        self
    }

    /// Sends `a.js.br`, `a.js.zst` or `a.js.gz` for `a.js`, if it exists and the client accepts it. You must update
    /// these files together with the original, because their dates are not compared.
    pub fn precompressed(mut self) -> Files {
        self.precompressed = true;
        self
    }

    /// Sends this file with status 200 for paths that do not exist, if their last part has no dot. Use it for
    /// applications that route in the browser. A missing script or image, whose name has a dot, still gets 404.
    pub fn single_page(mut self, path: impl Into<String>) -> Files {
        self.single_page = Some(path.into());
        self
    }

    /// Sends this file as the body of responses with an error status: 404 (not found) or 503 (a file cannot be opened
    /// or read now).
    pub fn error_page(mut self, status: StatusCode, path: impl Into<String>) -> Files {
        self.error_pages.push((status, path.into()));
        self
    }

    /// Sets `Cache-Control` for files whose paths match a pattern, in which one `*` stands for any text (`*.css`,
    /// `assets/*`, `*`). The paths count from the folder; a slash at the beginning of a pattern is ignored. The first matching
    /// pattern counts.
    pub fn cache_control(mut self, pattern: impl Into<String>, value: impl Into<String>) -> Files {
        let pattern = pattern.into();
        let pattern = pattern.strip_prefix('/').map(str::to_string).unwrap_or(pattern);
        self.cache_control.push((pattern, value.into()));
        self
    }

    /// Sets the media type, including its charset, of files with this ending (such as `md`). The case of the ending is
    /// ignored.
    pub fn media_type(mut self, ending: impl Into<String>, media_type: impl Into<String>) -> Files {
        self.media_types.push((ending.into(), media_type.into()));
        self
    }

    /// Sets the most bytes of small files that each worker keeps in memory, including overhead; the default is 16 MiB,
    /// and 0 disables the cache. Unless it is 0, each worker also keeps up to 64 larger files open, fewer if the
    /// process may have few descriptors.
    pub fn cache_bytes(mut self, bytes: usize) -> Files {
        self.cache_bytes = bytes;
        self
    }
}

impl From<&str> for Files {
    fn from(folder: &str) -> Files {
        Files::new(folder)
    }
}

impl From<&Path> for Files {
    fn from(folder: &Path) -> Files {
        Files::new(folder)
    }
}

impl From<PathBuf> for Files {
    fn from(folder: PathBuf) -> Files {
        Files::new(folder)
    }
}

/// A folder to serve, with its checked settings. All workers share it.
struct Site {
    /// The path of the folder, and the folder to which it led at the start.
    path: PathBuf,
    folder: Arc<Folder>,
    /// The folder of which the log has told last.
    told: Mutex<Arc<Folder>>,
    /// True once the log has told that the path leads to no folder.
    told_gone: AtomicBool,
    index: Option<Vec<u8>>,
    has_listing: bool,
    hidden: bool,
    precompressed: bool,
    single_page: Option<Vec<u8>>,
    error_pages: Vec<(StatusCode, Vec<u8>)>,
    cache_control: Vec<(String, HeaderValue)>,
    media_types: Vec<(String, HeaderValue)>,
    cache_bytes: usize,
}

impl Site {
    fn open(files: Files) -> Result<Site> {
        let folder = Folder::open(&files.folder).map_err(|error| {
            let text = format!("cannot open the folder {}: {error}", files.folder.display());
            Error::System(std::io::Error::new(error.kind(), text))
        })?;
        let values = |name: &str, settings: Vec<(String, String)>| -> Result<Vec<(String, HeaderValue)>> {
            let checked = settings.into_iter().map(|(key, text)| match HeaderValue::try_from(&text) {
                Ok(value) => Ok((key, value)),
                Err(_) => Err(Error::Setting(format!("{text:?} is not a valid {name} for {key}"))),
            });
            checked.collect()
        };
        for page in files.error_pages.iter().map(|(_, page)| page).chain(&files.single_page) {
            if page.is_empty() || page.starts_with('/') || page.split('/').any(|part| part == "..") {
                let text =
                    format!("the page {page:?} must be the path of a file in the folder, such as errors/404.html");
                return Err(Error::Setting(text));
            }
        }
        if let Some(page) = &files.single_page {
            // Without it, most paths of the application would be 404.
            let folder_path = files.folder.display();
            check_page(&folder, page.as_bytes()).map_err(|error| {
                let text = format!("cannot open the single page {page} in {folder_path}: {error}");
                Error::System(std::io::Error::new(error.kind(), text))
            })?;
        }
        let patterns = files.cache_control.iter().map(|(pattern, _)| pattern);
        if let Some(pattern) =
            patterns.into_iter().find(|pattern| pattern.is_empty() || pattern.matches('*').count() > 1)
        {
            let text =
                format!("{pattern:?} is not a pattern for Cache-Control: one * may stand for any text, as in assets/*");
            return Err(Error::Setting(text));
        }
        let folder = Arc::new(folder);
        let site = Site {
            // The path counts from the working folder at the start.
            path: std::path::absolute(&files.folder).unwrap_or(files.folder),
            told: Mutex::new(folder.clone()),
            told_gone: AtomicBool::new(false),
            folder,
            index: files.index.map(String::into_bytes),
            has_listing: files.has_listing,
            hidden: files.hidden,
            precompressed: files.precompressed,
            single_page: files.single_page.map(String::into_bytes),
            error_pages: files.error_pages.into_iter().map(|(status, page)| (status, page.into_bytes())).collect(),
            cache_control: values("Cache-Control", files.cache_control)?,
            media_types: values("media type", files.media_types)?,
            cache_bytes: files.cache_bytes,
        };
        site.tell_missing_pages(&site.folder);
        Ok(site)
    }

    /// Logs the pages that a folder does not have. They may be added later, and are sent from then on. May wait for the disk.
    fn tell_missing_pages(&self, folder: &Folder) {
        let pages = self.error_pages.iter().map(|(_, page)| page).chain(&self.single_page);
        for page in pages {
            if let Err(error) = check_page(folder, page) {
                let (page, folder) = (String::from_utf8_lossy(page), self.path.display());
                highwire_engine::log!(Mistake, warn, "cannot open the page {page} in {folder}: {error}");
            }
        }
    }

    fn media_type(&self, path: &[u8]) -> HeaderValue {
        let ending = media_type::ending(path);
        let is_it = |known: &str| ending.is_some_and(|ending| ending.eq_ignore_ascii_case(known.as_bytes()));
        let own = self.media_types.iter().find(|(known, _)| is_it(known));
        own.map_or_else(|| HeaderValue::from_static(media_type::of(path)), |(_, media_type)| media_type.clone())
    }
}

/// Returns an error if a page cannot be opened, or is a folder. May wait for the disk.
fn check_page(folder: &Folder, page: &[u8]) -> std::io::Result<()> {
    let opened = highwire_io::file::Files::open(folder, page)?;
    match highwire_io::file::File::metadata(&opened).is_folder {
        true => Err(std::io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
        false => Ok(()),
    }
}

/// Opens a folder, and returns the route for its files.
pub(crate) fn route(files: Files) -> Result<Arc<dyn Route>> {
    Ok(Arc::new(endpoint::FilesRoute(Arc::new(Site::open(files)?))))
}

/// Redirects a request whose path is that of the folder without the final slash.
pub(crate) fn to_folder(request: &crate::Request<'_>) -> Response {
    endpoint::redirect(endpoint::location(request))
}
