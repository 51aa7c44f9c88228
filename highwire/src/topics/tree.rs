//! The subscribers of a worker, by their filters.

use super::subscriber::Subscriber;
use slab::Slab;
use std::collections::HashMap;
use std::rc::Rc;

/// The subscribers of a worker. Most filters have no wildcard and are found by one look-up; only the others need levels.
#[derive(Default)]
pub(super) struct Tree {
    topics: HashMap<Rc<str>, Ends>,
    wildcards: Level,
}

/// A level of the tree of filters with wildcards.
#[derive(Default)]
struct Level {
    levels: HashMap<Box<str>, Level>,
    /// The filters with `+` at this level.
    any: Option<Box<Level>>,
    /// The subscribers whose filter ends here.
    here: Ends,
    /// The subscribers whose filter ends with `#` at this level.
    rest: Ends,
}

/// The subscribers of one filter.
#[derive(Default)]
enum Ends {
    #[default]
    None,
    /// The usual number, which needs no allocation. Its key is 0.
    One(Rc<Subscriber>),
    Many(Box<Slab<Rc<Subscriber>>>),
}

/// The index of a subscriber among those of its filter.
pub(super) type Key = usize;

/// About the number of bytes that a subscriber holds, with its place in the tree, besides the filter's text.
const SUBSCRIBER_BYTES: usize = 320;

/// About the number of bytes of a level of a filter with a wildcard.
const LEVEL_BYTES: usize = 640;

/// Returns about how many bytes a subscription to a filter holds.
pub(super) fn cost(filter: &str) -> usize {
    let levels = if has_wildcard(filter) { filter.split('/').count() * LEVEL_BYTES } else { 0 };
    SUBSCRIBER_BYTES + filter.len() + levels
}

impl Ends {
    fn add(&mut self, subscriber: Rc<Subscriber>) -> Key {
        match self {
            Ends::None => {
                *self = Ends::One(subscriber);
                0
            }
            Ends::One(_) => {
                let mut many = Box::new(Slab::with_capacity(2));
                if let Ends::One(first) = std::mem::take(self) {
                    many.insert(first);
                }
                let key = many.insert(subscriber);
                *self = Ends::Many(many);
                key
            }
            Ends::Many(many) => many.insert(subscriber),
        }
    }

    fn remove(&mut self, key: Key) {
        match self {
            Ends::Many(many) => {
                many.try_remove(key);
                if many.is_empty() {
                    *self = Ends::None;
                }
            }
            Ends::None | Ends::One(_) => *self = Ends::None,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Ends::None)
    }

    fn add_to(&self, all: &mut Vec<Rc<Subscriber>>) {
        match self {
            Ends::None => {}
            Ends::One(subscriber) => all.push(subscriber.clone()),
            Ends::Many(many) => all.extend(many.iter().map(|(_, subscriber)| subscriber.clone())),
        }
    }
}

fn has_wildcard(filter: &str) -> bool {
    filter.split('/').any(|level| level == "+" || level == "#")
}

impl Tree {
    /// Adds a subscriber of a valid filter.
    pub(super) fn add(&mut self, filter: &Rc<str>, subscriber: Rc<Subscriber>) -> Key {
        if !has_wildcard(filter) {
            return self.topics.entry(filter.clone()).or_default().add(subscriber);
        }
        let mut tree = &mut self.wildcards;
        for level in filter.split('/') {
            tree = match level {
                "#" => return tree.rest.add(subscriber),
                "+" => tree.any.get_or_insert_default(),
                _ => {
                    if !tree.levels.contains_key(level) {
                        tree.levels.insert(level.into(), Level::default());
                    }
                    tree.levels.get_mut(level).expect("it was inserted above")
                }
            };
        }
        tree.here.add(subscriber)
    }

    /// Removes a subscriber, and the empty places that it leaves.
    pub(super) fn remove(&mut self, filter: &str, key: Key) {
        if has_wildcard(filter) {
            return self.wildcards.remove(filter, key);
        }
        let Some(ends) = self.topics.get_mut(filter) else { return };
        ends.remove(key);
        if ends.is_empty() {
            self.topics.remove(filter);
            // A peak of subscriptions must not stay in memory.
            if self.topics.capacity() > 64 && self.topics.len() < self.topics.capacity() / 8 {
                self.topics.shrink_to(self.topics.len() * 2);
            }
        }
    }

    /// Returns true if there are no subscribers.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.wildcards.is_empty()
    }

    /// Adds each subscriber whose filter matches the name of a topic to a list.
    pub(super) fn matching(&self, name: &str, all: &mut Vec<Rc<Subscriber>>) {
        if let Some(ends) = self.topics.get(name) {
            ends.add_to(all);
        }
        if !self.wildcards.is_empty() {
            self.wildcards.matching(Some(name), !name.starts_with('$'), all);
        }
    }

    /// Adds each subscriber of exactly this filter to a list.
    pub(super) fn of_filter(&self, filter: &str, all: &mut Vec<Rc<Subscriber>>) {
        if let Some(ends) = self.topics.get(filter) {
            return ends.add_to(all);
        }
        let mut tree = &self.wildcards;
        for level in filter.split('/') {
            let next = match level {
                "#" => return tree.rest.add_to(all),
                "+" => tree.any.as_deref(),
                _ => tree.levels.get(level),
            };
            let Some(next) = next else { return };
            tree = next;
        }
        tree.here.add_to(all);
    }

    /// Adds every subscriber to a list.
    pub(super) fn all(&self, all: &mut Vec<Rc<Subscriber>>) {
        self.topics.values().for_each(|ends| ends.add_to(all));
        self.wildcards.all(all);
    }
}

impl Level {
    fn remove(&mut self, filter: &str, key: Key) {
        let (level, further) = filter.split_once('/').map_or((filter, None), |(level, further)| (level, Some(further)));
        if level == "#" {
            return self.rest.remove(key);
        }
        let next = if level == "+" { self.any.as_deref_mut() } else { self.levels.get_mut(level) };
        let Some(next) = next else { return };
        match further {
            Some(further) => next.remove(further, key),
            None => next.here.remove(key),
        }
        if next.is_empty() {
            if level == "+" {
                self.any = None;
            } else {
                self.levels.remove(level);
                if self.levels.is_empty() {
                    self.levels = HashMap::new();
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.levels.is_empty() && self.any.is_none() && self.here.is_empty() && self.rest.is_empty()
    }

    fn matching(&self, name: Option<&str>, has_wildcards: bool, all: &mut Vec<Rc<Subscriber>>) {
        if has_wildcards {
            self.rest.add_to(all);
        }
        let Some(name) = name else { return self.here.add_to(all) };
        let (level, further) = name.split_once('/').map_or((name, None), |(level, further)| (level, Some(further)));
        if let Some(next) = self.levels.get(level) {
            next.matching(further, true, all);
        }
        if let Some(next) = self.any.as_ref().filter(|_| has_wildcards) {
            next.matching(further, true, all);
        }
    }

    fn all(&self, all: &mut Vec<Rc<Subscriber>>) {
        self.here.add_to(all);
        self.rest.add_to(all);
        self.levels.values().chain(self.any.as_deref()).for_each(|tree| tree.all(all));
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::matches;
    use super::*;

    #[test]
    fn the_tree_finds_the_filters_that_match_one_by_one() {
        let levels = ["a", "b", "+", "#"];
        let mut filters: Vec<String> =
            vec!["#".into(), "$presence/a".into(), "$presence/#".into(), "+/a".into(), "a".into()];
        for one in &levels[..3] {
            filters.push((*one).into());
            for two in levels {
                filters.push(format!("{one}/{two}"));
                if two != "#" {
                    filters.extend(levels.map(|three| format!("{one}/{two}/{three}")));
                }
            }
        }
        let mut tree = Tree::default();
        let added: Vec<_> = filters
            .iter()
            .map(|filter| {
                let subscriber = Rc::new(Subscriber::new(None, false));
                (filter, tree.add(&filter.as_str().into(), subscriber.clone()), subscriber)
            })
            .collect();
        for name in ["a", "b", "c", "a/a", "a/b", "c/a", "a/b/a", "b/c/a", "c/c/c", "a/a/a/a", "$presence/a", "$x/a"] {
            let mut found = Vec::new();
            tree.matching(name, &mut found);
            for (filter, _, subscriber) in &added {
                let count = found.iter().filter(|other| Rc::ptr_eq(other, subscriber)).count();
                assert_eq!(count, usize::from(matches(filter, name)), "{filter} {name}");
            }
        }
        let mut all = Vec::new();
        tree.all(&mut all);
        assert_eq!(all.len(), added.len());
        for (filter, key, subscriber) in &added {
            let mut found = Vec::new();
            tree.of_filter(filter, &mut found);
            assert_eq!(found.iter().filter(|other| Rc::ptr_eq(other, subscriber)).count(), 1, "{filter}");
            tree.remove(filter, *key);
        }
        assert!(tree.is_empty());
    }
}
