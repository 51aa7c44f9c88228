//! The shared values of an app and its nested apps, by type.

use crate::message::request::Locals;
use crate::templates::Templates;
use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Makes the value of [`App::per_worker`](crate::App::per_worker) for each worker.
#[derive(Clone)]
struct Factory {
    kind: TypeId,
    make: Arc<dyn Fn() -> Rc<dyn Any> + Send + Sync>,
}

/// The values of one app, without those of the app around it.
#[derive(Clone, Default)]
struct Scope {
    /// The index of the app around it.
    parent: Option<usize>,
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    factories: Vec<Factory>,
}

/// The values of an app, at index 0, and of the apps that are nested in it.
#[derive(Clone)]
pub(crate) struct Scopes(Vec<Scope>);

impl Default for Scopes {
    fn default() -> Scopes {
        Scopes(vec![Scope::default()])
    }
}

impl Scopes {
    /// Adds a value. Returns false if the app has one of this type.
    #[must_use]
    pub(crate) fn insert<T: Any + Send + Sync>(&mut self, value: T) -> bool {
        self.0[0].values.insert(TypeId::of::<T>(), Arc::new(value)).is_none()
    }

    /// Adds a function that makes a value for each worker. Returns false if the app has one of this type.
    #[must_use]
    pub(crate) fn insert_factory<T: Any>(&mut self, factory: impl Fn() -> T + Send + Sync + 'static) -> bool {
        let kind = TypeId::of::<T>();
        let is_new = self.0[0].factories.iter().all(|known| known.kind != kind);
        self.0[0].factories.push(Factory { kind, make: Arc::new(move || Rc::new(factory())) });
        is_new
    }

    /// Nests another app's values in this one's. Returns the index of the other app's own values.
    pub(crate) fn nest(&mut self, other: Scopes) -> usize {
        let before = self.0.len();
        self.0.extend(
            other
                .0
                .into_iter()
                .map(|scope| Scope { parent: Some(scope.parent.map_or(0, |parent| parent + before)), ..scope }),
        );
        before
    }

    /// Returns the values of each app together with those of the apps around it.
    pub(crate) fn resolve(&self) -> Vec<Map> {
        let mut maps: Vec<Map> = Vec::with_capacity(self.0.len());
        for scope in &self.0 {
            // The app around an app comes before it.
            let mut map = scope.parent.map(|parent| maps[parent].clone()).unwrap_or_default();
            map.values.extend(scope.values.iter().map(|(kind, value)| (*kind, value.clone())));
            maps.push(map);
        }
        maps
    }

    /// Returns the types of the workers' own values of each app, together with those of the apps around it.
    pub(crate) fn local_kinds(&self) -> Vec<HashSet<TypeId>> {
        let mut all: Vec<HashSet<TypeId>> = Vec::with_capacity(self.0.len());
        for scope in &self.0 {
            let mut kinds = scope.parent.map(|parent| all[parent].clone()).unwrap_or_default();
            kinds.extend(scope.factories.iter().map(|factory| factory.kind));
            all.push(kinds);
        }
        all
    }

    /// Makes a worker's own values of each app, together with those of the apps around it. Called on the worker's thread.
    pub(crate) fn make_locals(&self) -> Vec<Rc<Locals>> {
        let mut all: Vec<Rc<Locals>> = Vec::with_capacity(self.0.len());
        for scope in &self.0 {
            let around = scope.parent.map(|parent| all[parent].clone());
            let own = scope.factories.iter().map(|factory| (factory.kind, (factory.make)()));
            all.push(match around {
                Some(around) if scope.factories.is_empty() => around,
                Some(around) => Rc::new(around.iter().map(|(kind, value)| (*kind, value.clone())).chain(own).collect()),
                None => Rc::new(own.collect()),
            });
        }
        all
    }
}

/// Holds at most one value of each type.
#[derive(Clone, Default)]
pub(crate) struct Map {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Map {
    pub(crate) fn has<T: Any + Send + Sync>(&self) -> bool {
        self.values.contains_key(&TypeId::of::<T>())
    }

    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }

    #[cfg(all(feature = "cookies", feature = "json"))]
    pub(crate) fn shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.values.get(&TypeId::of::<T>()).cloned()?.downcast().ok()
    }

    /// Returns a copy of the templates.
    pub(crate) fn templates(&self) -> Option<Templates> {
        self.get::<Templates>().cloned()
    }
}
