//! A map of shared values by type, for [`App::state`](crate::App::state).

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Holds at most one value of each type.
#[derive(Clone, Default)]
pub(crate) struct Map {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Map {
    pub(crate) fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.values.get(&TypeId::of::<T>()).cloned().and_then(|value| value.downcast().ok())
    }

    pub(crate) fn extend(&mut self, other: Map) {
        self.values.extend(other.values);
    }
}
