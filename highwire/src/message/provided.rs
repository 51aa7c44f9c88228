//! What an app provides for a route, so that extractors can be checked before any request comes.

use crate::app::states;
use std::any::{Any, TypeId};
use std::collections::HashSet;

/// What an app provides for one of its routes. [`FromRequest::check`](crate::FromRequest::check) gets it when the app is built.
#[derive(Clone, Copy)]
pub struct Provided<'p> {
    /// `None` for a handler that has no path of its own, such as the app's fallback.
    pub(crate) path: Option<&'p str>,
    pub(crate) parameters: &'p [Box<str>],
    pub(crate) states: &'p states::Map,
    /// The types of the values that each worker has of its own.
    pub(crate) per_worker: &'p HashSet<TypeId>,
}

impl std::fmt::Debug for Provided<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provided").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<'p> Provided<'p> {
    /// Returns the template of the route's path, such as `/users/{id}`; `None` for a handler without one, such as that of
    /// [`App::fallback`](crate::App::fallback).
    pub fn path(&self) -> Option<&'p str> {
        self.path
    }

    /// Returns the names of the parameters of the route's path.
    pub fn parameters(&self) -> impl Iterator<Item = &'p str> {
        self.parameters.iter().map(|name| &**name)
    }

    /// Returns true if the handler can extract [`State<T>`](crate::State).
    pub fn has_state<T: Any + Send + Sync>(&self) -> bool {
        self.states.has::<T>()
    }

    /// Returns true if the handler can extract [`PerWorker<T>`](crate::PerWorker).
    pub fn has_per_worker<T: Any>(&self) -> bool {
        self.per_worker.contains(&TypeId::of::<T>())
    }
}

/// Returns the name of a type without the modules, such as `Option<Pool>`.
pub(crate) fn name_of<T: ?Sized>() -> String {
    let mut short = String::new();
    for part in
        std::any::type_name::<T>().split_inclusive(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter))
    {
        short.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    short
}
