//! Pages from templates in the language of Jinja2, rendered by [minijinja]. Requires the feature `templates`.
//!
//! ```
//! use highwire::templates::{Template, Templates};
//! use highwire::testing::Client;
//! use highwire::{App, Path};
//! use std::collections::BTreeMap;
//!
//! let templates = Templates::new([
//!     ("layout.html", "<!doctype html><title>{% block title %}{% endblock %}</title>{% block body %}{% endblock %}"),
//!     ("hello.html", "{% extends 'layout.html' %}{% block body %}<p>Hello, {{ name }}!</p>{% endblock %}"),
//! ])?;
//! let app = App::new()
//!     .state(templates)
//!     .get("/hello/{name}", |Path(name): Path<String>| Template("hello.html", BTreeMap::from([("name", name)])));
//! let mut client = Client::new(app)?;
//! assert!(client.get("/hello/Ann").send().text().contains("<p>Hello, Ann!</p>"));
//! assert!(client.get("/hello/%3Cb%3E").send().text().contains("<p>Hello, &lt;b&gt;!</p>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All templates are parsed when they are loaded, so that a mistake of syntax is found at the start. What a template inserts
//! is escaped for HTML; in templates whose names end in `.json`, it is written as JSON, and in `.txt` and `.md`, as it
//! is. A variable that is missing is an error when it is inserted, and counts as false in a condition.

use crate::files::media_type;
use crate::{IntoResponse, Response, StatusCode};
use arc_swap::ArcSwap;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The most files of a folder.
const FILES: usize = 10_000;

/// The most bytes of a file.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The most bytes of all files.
const ALL_BYTES: u64 = 64 * 1024 * 1024;

/// minijinja's limit of recursion: an include counts as 10, a call of a macro as 4. In a debug build, 100 take up to 384 KiB
/// of stack (measured), and threads of the blocking pool have 512 KiB.
const RECURSION: usize = 80;

/// The most folders within each other.
const DEPTH: usize = 16;

type Configure = Arc<dyn Fn(&mut Environment<'static>) + Send + Sync>;

/// The templates of an app, as its state: `App::state(templates)`. A clone is another handle to the same templates.
#[derive(Clone)]
pub struct Templates {
    inner: Arc<Inner>,
}

struct Inner {
    /// The parsed templates, or the error of the last attempt to load them again.
    loaded: ArcSwap<Result<Environment<'static>, TemplateError>>,
    configure: Option<Configure>,
    /// The files of the folder as they were loaded last, if changes are noticed.
    watched: Option<Mutex<Files>>,
    sources: Sources,
}

enum Sources {
    Folder(PathBuf),
    Texts(Vec<(String, String)>),
}

/// The paths of files by the names of their templates, with their times of change and their lengths.
type Files = BTreeMap<String, (PathBuf, Option<SystemTime>, u64)>;

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates").finish_non_exhaustive()
    }
}

/// A template that cannot be loaded or rendered. Its text names the template or the file and, if there is one, the line.
#[derive(Clone, Debug)]
pub struct TemplateError {
    text: Arc<str>,
    /// True if clients may see the text.
    is_shown: bool,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TemplateError {}

impl TemplateError {
    fn new(text: impl Into<Arc<str>>) -> TemplateError {
        TemplateError { text: text.into(), is_shown: false }
    }

    /// Describes an error of minijinja and its causes.
    fn of(error: &minijinja::Error) -> TemplateError {
        let mut text = match (error.name(), error.line()) {
            (Some(name), Some(line)) => format!("{name}, line {line}: "),
            (Some(name), None) => format!("{name}: "),
            _ => String::new(),
        };
        text += &error.kind().to_string();
        if let Some(detail) = error.detail() {
            text += &format!(": {detail}");
        }
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            match error.downcast_ref::<minijinja::Error>() {
                Some(error) => text += &format!("; {}", TemplateError::of(error)),
                None => text += &format!("; {error}"),
            }
            // The text of an error of minijinja has its causes already.
            cause = error.source().filter(|_| !error.is::<minijinja::Error>());
        }
        TemplateError::new(text)
    }

    fn of_file(path: &Path, error: impl fmt::Display) -> TemplateError {
        TemplateError::new(format!("{}: {error}", path.display()))
    }
}

/// The response is 500 and the error is logged. The client sees the error only if the templates are reloaded.
impl IntoResponse for TemplateError {
    fn into_response(self) -> Response {
        highwire_engine::log!(Mistake, error, error = %self, "a template cannot be rendered");
        let text = if self.is_shown { format!("{self}\n") } else { "internal server error\n".into() };
        Response::error(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl Templates {
    /// Parses templates from their names and texts, such as those of `include_str!`.
    ///
    /// # Errors
    /// Returns an error that names the template and the line, if one is invalid.
    pub fn new<N: Into<String>, T: Into<String>>(
        templates: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Templates, TemplateError> {
        let texts = templates.into_iter().map(|(name, text)| (name.into(), text.into())).collect();
        Templates::builder(Sources::Texts(texts)).build()
    }

    /// Parses the files of a folder. A template's name is its path in the folder, such as `users/list.html`. Files and
    /// folders whose names begin with a dot are left out.
    ///
    /// # Errors
    /// Returns an error that names the file and the line, if a file cannot be read, has more than 4 MiB, is not UTF-8 or
    /// is invalid, or if there are more than 10,000 files, 64 MiB, or 16 folders within each other.
    pub fn folder(path: impl Into<PathBuf>) -> Result<Templates, TemplateError> {
        Templates::builder(Sources::Folder(path.into())).build()
    }

    fn builder(sources: Sources) -> Inner {
        let loaded = ArcSwap::from_pointee(Ok(Environment::empty()));
        Inner { loaded, configure: None, watched: None, sources }
    }

    /// Looks for changed, new and removed files before each rendering, and loads the folder again if there are any. If
    /// that fails, responses have the error as their text. It is meant for development: looking costs a system call for
    /// each file.
    ///
    /// ```no_run
    /// use highwire::templates::Templates;
    ///
    /// let templates = Templates::folder("templates")?.reload(cfg!(debug_assertions));
    /// # let _ = templates;
    /// # Ok::<(), highwire::templates::TemplateError>(())
    /// ```
    pub fn reload(self, is_on: bool) -> Templates {
        let watched = is_on.then(Mutex::default);
        let Inner { configure, sources, .. } = &*self.inner;
        let inner = Inner { watched, configure: configure.clone(), ..Templates::builder(sources.clone()) };
        inner.loaded.store(self.inner.loaded.load_full());
        Templates { inner: Arc::new(inner) }
    }

    /// Calls a function that adds filters, functions and global values to minijinja's environment, before templates are
    /// parsed.
    ///
    /// # Errors
    /// As [`folder`](Self::folder).
    pub fn configure(
        self,
        configure: impl Fn(&mut Environment<'static>) + Send + Sync + 'static,
    ) -> Result<Templates, TemplateError> {
        let is_watched = self.inner.watched.is_some();
        let inner = Templates::builder(self.inner.sources.clone());
        let earlier = self.inner.configure.clone();
        let both = move |environment: &mut Environment<'static>| {
            earlier.iter().for_each(|earlier| earlier(environment));
            configure(environment);
        };
        let templates = Inner { configure: Some(Arc::new(both)), ..inner }.build()?;
        Ok(templates.reload(is_watched))
    }

    /// Renders a template with the values of a serializable struct or map.
    ///
    /// # Errors
    /// Returns an error that names the template and the line, if there is no such template or it fails.
    pub fn render(&self, name: &str, values: impl Serialize) -> Result<String, TemplateError> {
        let is_shown = self.inner.watched.is_some();
        let rendered = self.inner.refreshed().and_then(|()| match &**self.inner.loaded.load() {
            Ok(environment) => {
                let template = environment.get_template(name);
                let rendered = template.and_then(|template| template.render(Value::from(Serde(&values))));
                rendered.map_err(|error| TemplateError::of(&error))
            }
            Err(error) => Err(error.clone()),
        });
        rendered.map_err(|error| TemplateError { is_shown, ..error })
    }

    /// Renders a template as a response, whose media type is that of the template's name.
    fn respond(&self, name: &str, values: impl Serialize) -> Response {
        match self.render(name, values) {
            Ok(text) => Response::bytes(media_type::of(name.as_bytes()), text),
            Err(error) => error.into_response(),
        }
    }
}

impl Clone for Sources {
    fn clone(&self) -> Sources {
        match self {
            Sources::Folder(path) => Sources::Folder(path.clone()),
            Sources::Texts(texts) => Sources::Texts(texts.clone()),
        }
    }
}

impl Inner {
    fn build(self) -> Result<Templates, TemplateError> {
        let environment = self.load(&self.files()?)?;
        self.loaded.store(Arc::new(Ok(environment)));
        Ok(Templates { inner: Arc::new(self) })
    }

    /// Returns the files of the folder, if there is one.
    fn files(&self) -> Result<Files, TemplateError> {
        let mut files = Files::new();
        if let Sources::Folder(folder) = &self.sources {
            find(folder, "", DEPTH, &mut files)?;
        }
        Ok(files)
    }

    fn load(&self, files: &Files) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_recursion_limit(RECURSION);
        environment.set_auto_escape_callback(|name| match name.rsplit('.').next() {
            Some("json") => AutoEscape::Json,
            Some("txt" | "md") => AutoEscape::None,
            _ => AutoEscape::Html,
        });
        if let Some(configure) = &self.configure {
            configure(&mut environment);
        }
        let texts = if let Sources::Texts(texts) = &self.sources { texts.clone() } else { Vec::new() };
        let read = files.iter().map(|(name, (path, ..))| Ok((name.clone(), read(path)?)));
        for template in texts.into_iter().map(Ok).chain(read) {
            let (name, text) = template?;
            environment.add_template_owned(name, text).map_err(|error| TemplateError::of(&error))?;
        }
        Ok(environment)
    }

    /// Loads the folder again if its files have changed.
    fn refreshed(&self) -> Result<(), TemplateError> {
        let Some(watched) = &self.watched else { return Ok(()) };
        let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.files()?;
        if files != *watched {
            let loaded = self.load(&files);
            // A file that could not be read may be readable the next time, without a change.
            *watched = if loaded.is_ok() { files } else { Files::new() };
            self.loaded.store(Arc::new(loaded));
        }
        Ok(())
    }
}

/// Reads a file, which may have grown since it was found.
fn read(path: &Path) -> Result<String, TemplateError> {
    let failed = |error| TemplateError::of_file(path, error);
    let mut text = String::new();
    let count = File::open(path).and_then(|file| file.take(FILE_BYTES + 1).read_to_string(&mut text));
    match count.map_err(failed)? as u64 {
        0..=FILE_BYTES => Ok(text),
        _ => Err(TemplateError::of_file(path, "the file has more than 4 MiB")),
    }
}

/// Finds the files in a folder. Their names begin with `prefix`.
fn find(folder: &Path, prefix: &str, depth: usize, files: &mut Files) -> Result<(), TemplateError> {
    let failed = |error: std::io::Error| TemplateError::of_file(folder, error);
    if depth == 0 {
        return Err(TemplateError::of_file(folder, format_args!("more than {DEPTH} folders are within each other")));
    }
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| TemplateError::of_file(&path, "the name is not UTF-8"))?;
        if name.starts_with('.') {
            continue;
        }
        let file = match fs::metadata(&path) {
            Ok(file) => file,
            // Editors make files that last only for a moment.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(TemplateError::of_file(&path, error)),
        };
        let name = format!("{prefix}{name}");
        if file.is_dir() {
            find(&path, &format!("{name}/"), depth - 1, files)?;
            continue;
        }
        if !file.is_file() {
            return Err(TemplateError::of_file(&path, "it is neither a file nor a folder"));
        }
        if files.values().map(|(.., bytes)| bytes).sum::<u64>() + file.len() > ALL_BYTES {
            return Err(TemplateError::of_file(folder, "the files have more than 64 MiB"));
        }
        if files.len() == FILES {
            return Err(TemplateError::of_file(folder, format_args!("there are more than {FILES} files")));
        }
        files.insert(name, (path, file.modified().ok(), file.len()));
    }
    Ok(())
}

/// A response: the template with this name, rendered with the values of a serializable struct or map. The app must have
/// [`Templates`] as its state. Its media type is that of the name. If the template fails, the response is 500 and the
/// error is logged.
#[derive(Clone, Debug)]
pub struct Template<C>(pub &'static str, pub C);

impl<C: Serialize> IntoResponse for Template<C> {
    fn into_response(self) -> Response {
        let templates = CURRENT.with_borrow(Option::clone);
        let missing = || TemplateError::new("the app has no templates: call `App::state` with `Templates`");
        templates.map_or_else(|| missing().into_response(), |templates| templates.respond(self.0, self.1))
    }
}

thread_local! {
    /// The templates of the app whose handlers run on this thread, for [`Template`].
    static CURRENT: RefCell<Option<Rc<Templates>>> = const { RefCell::new(None) };
}

/// Makes an app's templates the current ones until the returned value is dropped. Each worker has a count of its own, so
/// that workers do not write to shared memory for each request.
#[inline]
pub(crate) fn enter(templates: &Option<Rc<Templates>>) -> Entered {
    Entered { previous: CURRENT.replace(templates.clone()) }
}

/// Restores the templates that were the current ones before.
pub(crate) struct Entered {
    previous: Option<Rc<Templates>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.previous.take());
    }
}
