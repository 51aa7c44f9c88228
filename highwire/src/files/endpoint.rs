//! The route of a folder. It responds from the cache, or after a look that does not wait for the disk, or after a look
//! on the blocking pool.

use super::Site;
use super::answer::{Terms, answer, page};
use super::cache::{Cache, Known};
use super::entry::{Entry, Standing};
use super::load::{Found, Look, Moment, Obstacle, Patience};
use super::name::Name;
use super::root::{self, Looked, Root};
use crate::app::shared::Shared;
use crate::handler::{Endpoint, Route};
use crate::message::request::{BodyUse, Request};
use crate::message::response::Overloaded;
use crate::{IntoResponse, Response, StatusCode};
use highwire_engine::Outcome;
use highwire_engine::{Asked, context};
use highwire_io::file::Folder;
use http::{HeaderValue, header};
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

/// The route of a folder, which all workers share.
pub(super) struct FilesRoute(pub(super) Arc<Site>);

impl Route for FilesRoute {
    fn body_use(&self) -> BodyUse {
        BodyUse::None
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        let site = self.0.clone();
        let (cache, root) = (RefCell::new(Cache::new(site.cache_bytes)), Root::of(&site));
        Box::new(FilesEndpoint { cache, root, waiting: RefCell::default(), site })
    }
}

/// The route of a folder in one worker.
struct FilesEndpoint {
    site: Arc<Site>,
    root: Root,
    cache: RefCell<Cache>,
    waiting: RefCell<Slab<Waiting>>,
}

/// What a look on the blocking pool has found: another folder to serve, and the file.
type LookedUp = (Option<Arc<Folder>>, Result<Found, Obstacle>);

/// A request that waits for a look on the blocking pool.
struct Waiting {
    asked: Asked<LookedUp>,
    case: Case<'static>,
    location: Option<HeaderValue>,
    /// The folder that was served when the request came.
    folder: Arc<Folder>,
}

/// The properties of a request that its response depends on, apart from the file.
struct Case<'r> {
    name: Option<Name<'r>>,
    terms: Terms<'r>,
    shared: Arc<Shared>,
}

impl FilesEndpoint {
    /// Returns the cached entry if it may still be served, and removes it otherwise.
    #[inline]
    fn cached(&self, name: &Name<'_>, shared: &Shared) -> Option<Rc<Entry>> {
        let now = context::now();
        let known = self.cache.borrow_mut().get(&name.0, now);
        let (entry, stays) = match known {
            Known::Nothing => return None,
            Known::Fresh(entry) => {
                let stays = entry.is_unchanged(now);
                (entry, stays)
            }
            Known::Stale(entry) => {
                let stays = self.stays(name, &entry, shared);
                (entry, stays)
            }
        };
        if !stays {
            self.cache.borrow_mut().remove(&name.0);
        }
        stays.then_some(entry)
    }

    /// Forgets all entries, because another folder is served now.
    fn forget(&self) {
        *self.cache.borrow_mut() = Cache::new(self.site.cache_bytes);
    }

    /// Compares a stale entry with the folder. Returns true if the entry may still be served.
    fn stays(&self, name: &Name<'_>, entry: &Entry, shared: &Shared) -> bool {
        let now = context::now();
        match entry.standing(self.look(&self.root.folder(), shared)) {
            Standing::Current => {
                self.cache.borrow_mut().confirm(&name.0, now);
                true
            }
            Standing::Unknown => entry.is_unchanged(now) && self.cache.borrow_mut().doubt(&name.0, now),
            Standing::Outdated => false,
        }
    }

    fn look<'s>(&'s self, folder: &'s Folder, shared: &'s Shared) -> Look<'s> {
        let at = Moment { instant: context::now(), date: SystemTime::now() };
        Look { site: &self.site, folder, open_files: &shared.app.open_files, patience: Patience::None, at }
    }

    /// Returns the response for the result of a look. Caches a found file if it may be kept.
    fn finish(&self, found: Found, case: &Case<'_>, location: impl FnOnce() -> Option<HeaderValue>) -> Response {
        let Case { name, terms, shared } = case;
        match found {
            Found::File(source) => {
                let looked_at = source.looked_at.instant;
                let entry = Rc::new(Entry::new(source, &self.site));
                if entry.may_be_kept
                    && let Some(name) = name
                    && let Some(keeping) = shared.app.open_files.keep(entry.descriptors())
                {
                    self.cache.borrow_mut().insert(&name.0, &entry, looked_at, keeping);
                }
                answer(entry.variant(terms.wanted), terms, shared)
            }
            Found::SinglePage(source) => answer(Entry::new(source, &self.site).variant(terms.wanted), terms, shared),
            Found::Folder => redirect(location()),
            Found::Listing(page) => Response::html(page),
            Found::Failed(status, found) => {
                let response = match (status, found) {
                    (_, Some(source)) => page(Entry::new(source, &self.site).variant(terms.wanted), status),
                    (StatusCode::NOT_FOUND, None) => shared.app.error(status, "not found"),
                    (_, None) => shared.app.error(status, "the file cannot be read now"),
                };
                if status != StatusCode::SERVICE_UNAVAILABLE {
                    return response;
                }
                response.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
            }
        }
    }
}

impl Endpoint for FilesEndpoint {
    fn call(&self, request: &mut Request<'_>, response: &mut Option<Response>) -> Outcome {
        let looked = self.root.look(&self.site, context::now());
        if looked == Looked::Other {
            self.forget();
        }
        let text = request.params.captures.last(request.params.path);
        let name = Name::parse(text, self.site.hidden);
        let terms = Terms::of(request);
        if let Some(name) = &name
            && looked != Looked::Cold
            && let Some(entry) = self.cached(name, request.shared)
        {
            *response = Some(answer(entry.variant(terms.wanted), &terms, request.shared));
            return Outcome::Ready;
        }
        let folder = self.root.folder();
        let look = self.look(&folder, request.shared);
        if looked != Looked::Cold
            && let Ok(found) = look.find(name.as_ref())
        {
            let case = Case { name, terms, shared: request.shared.clone() };
            *response = Some(self.finish(found, &case, || location(request)));
            return Outcome::Ready;
        }
        let (name, terms) = (name.map(Name::into_owned), terms.into_owned());
        let (site, open_files, its) = (self.site.clone(), request.shared.app.open_files.clone(), name.clone());
        let (at, its_folder) = (look.at, folder.clone());
        let look = move || {
            let other = (looked == Looked::Cold).then(|| root::other(&site, folder.again(&site.path))).flatten();
            let folder = other.as_ref().unwrap_or(&folder);
            let look = Look { site: &site, folder, open_files: &open_files, patience: Patience::Waits, at };
            let found = look.find(its.as_ref());
            (other, found)
        };
        let asked = request.shared.ask(look);
        let location = location(request);
        let case = Case { name, terms, shared: request.shared.clone() };
        let place = self.waiting.borrow_mut().insert(Waiting { asked, case, location, folder: its_folder }) as u32;
        match self.poll(place, &mut Context::from_waker(&request.waker())) {
            Poll::Pending => Outcome::Pending(place),
            Poll::Ready(answer) => {
                *response = Some(answer);
                Outcome::Ready
            }
        }
    }

    fn poll(&self, place: u32, cx: &mut Context<'_>) -> Poll<Response> {
        let mut all = self.waiting.borrow_mut();
        let Some(waiting) = all.get_mut(place as usize) else { return Poll::Pending };
        let Poll::Ready(found) = waiting.asked.poll(cx) else { return Poll::Pending };
        let Waiting { mut case, location, folder, .. } = all.remove(place as usize);
        drop(all);
        Poll::Ready(match found {
            Some((other, Ok(found))) => {
                if !Arc::ptr_eq(&folder, &self.root.folder()) {
                    // Another request has found another folder meanwhile. This file is not kept for those that follow.
                    case.name = None;
                } else if let Some(other) = other {
                    self.root.serve(other);
                    self.forget();
                }
                self.finish(found, &case, || location)
            }
            // The pool was full, or the look panicked.
            _ => Overloaded.into_response(),
        })
    }

    fn cancel(&self, place: u32) {
        self.waiting.borrow_mut().try_remove(place as usize);
    }
}

/// Returns the target of a redirect to a folder whose path lacks the final slash, which is the path with the slash, and
/// the query. Returns `None` if the target could lead to another host.
pub(super) fn location(request: &Request<'_>) -> Option<HeaderValue> {
    let path = request.params.path;
    // A target that begins with two slashes leads to another host. Some clients treat a backslash as a slash.
    if path.first() != Some(&b'/') || matches!(path.get(1), Some(b'/' | b'\\')) {
        return None;
    }
    let mut location = [path, b"/"].concat();
    if let Some(query) = request.query() {
        location.push(b'?');
        location.extend_from_slice(query.as_bytes());
    }
    HeaderValue::from_bytes(&location).ok()
}

pub(super) fn redirect(location: Option<HeaderValue>) -> Response {
    match location {
        Some(location) => Response::error(StatusCode::PERMANENT_REDIRECT, "this is a folder\n")
            .with_header(header::LOCATION, location),
        None => Response::error(StatusCode::NOT_FOUND, "not found\n"),
    }
}
