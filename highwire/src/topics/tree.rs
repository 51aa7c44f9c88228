//! The subscribers of a worker, by their filters.

use super::subscriber::Subscriber;
use slab::Slab;
use std::collections::HashMap;
use std::rc::Rc;

/// A level of the tree of filters.
#[derive(Default)]
pub(super) struct Tree {
    levels: HashMap<Box<str>, Tree>,
    /// The filters with `+` at this level.
    any: Option<Box<Tree>>,
    /// The subscribers whose filter ends here.
    here: Slab<Rc<Subscriber>>,
    /// The subscribers whose filter ends with `#` at this level.
    rest: Slab<Rc<Subscriber>>,
}

/// The number of a subscriber at the end of its filter.
pub(super) type Key = usize;

impl Tree {
    /// Adds a subscriber at the end of a valid filter.
    pub(super) fn add(&mut self, filter: &str, subscriber: Rc<Subscriber>) -> Key {
        let mut tree = self;
        for level in filter.split('/') {
            tree = match level {
                "#" => return tree.rest.insert(subscriber),
                "+" => tree.any.get_or_insert_default(),
                _ => {
                    if !tree.levels.contains_key(level) {
                        tree.levels.insert(level.into(), Tree::default());
                    }
                    tree.levels.get_mut(level).expect("it was inserted above")
                }
            };
        }
        tree.here.insert(subscriber)
    }

    /// Removes a subscriber and the levels that are not needed without it.
    pub(super) fn remove(&mut self, filter: &str, key: Key) {
        let (level, further) = filter.split_once('/').map_or((filter, None), |(level, further)| (level, Some(further)));
        if level == "#" {
            self.rest.try_remove(key);
            return;
        }
        let next = if level == "+" { self.any.as_deref_mut() } else { self.levels.get_mut(level) };
        let Some(next) = next else { return };
        match further {
            Some(further) => next.remove(further, key),
            None => {
                next.here.try_remove(key);
            }
        }
        if next.is_empty() {
            if level == "+" {
                self.any = None;
            } else {
                self.levels.remove(level);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.levels.is_empty() && self.any.is_none() && self.here.is_empty() && self.rest.is_empty()
    }

    /// Calls a function with each subscriber whose filter matches the name of a topic.
    pub(super) fn matching(&self, name: &str, call: &mut impl FnMut(&Subscriber)) {
        self.matching_from(Some(name), !name.starts_with('$'), call);
    }

    fn matching_from(&self, name: Option<&str>, has_wildcards: bool, call: &mut impl FnMut(&Subscriber)) {
        if has_wildcards {
            self.rest.iter().for_each(|(_, subscriber)| call(subscriber));
        }
        let Some(name) = name else {
            return self.here.iter().for_each(|(_, subscriber)| call(subscriber));
        };
        let (level, further) = name.split_once('/').map_or((name, None), |(level, further)| (level, Some(further)));
        if let Some(next) = self.levels.get(level) {
            next.matching_from(further, true, call);
        }
        if let Some(next) = self.any.as_ref().filter(|_| has_wildcards) {
            next.matching_from(further, true, call);
        }
    }

    /// Calls a function with each subscriber of exactly this filter.
    pub(super) fn of_filter(&self, filter: &str, call: &mut impl FnMut(&Subscriber)) {
        let mut tree = self;
        for level in filter.split('/') {
            let next = match level {
                "#" => return tree.rest.iter().for_each(|(_, subscriber)| call(subscriber)),
                "+" => tree.any.as_deref(),
                _ => tree.levels.get(level),
            };
            let Some(next) = next else { return };
            tree = next;
        }
        tree.here.iter().for_each(|(_, subscriber)| call(subscriber));
    }

    /// Calls a function with every subscriber.
    pub(super) fn all(&self, call: &mut impl FnMut(&Subscriber)) {
        self.here.iter().chain(self.rest.iter()).for_each(|(_, subscriber)| call(subscriber));
        self.levels.values().chain(self.any.as_deref()).for_each(|tree| tree.all(call));
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::matches;
    use super::*;

    #[test]
    fn the_tree_finds_the_filters_that_match_one_by_one() {
        let levels = ["a", "b", "+", "#"];
        let mut filters: Vec<String> = vec!["#".into(), "$presence/a".into(), "$presence/#".into(), "+/a".into()];
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
                let subscriber = Rc::new(Subscriber::new(None));
                (filter, tree.add(filter, subscriber.clone()), subscriber)
            })
            .collect();
        for name in ["a", "b", "c", "a/a", "a/b", "c/a", "a/b/a", "b/c/a", "c/c/c", "a/a/a/a", "$presence/a", "$x/a"] {
            let mut found = Vec::new();
            tree.matching(name, &mut |subscriber| found.push(std::ptr::from_ref(subscriber)));
            for (filter, _, subscriber) in &added {
                let count = found.iter().filter(|&&pointer| std::ptr::eq(pointer, Rc::as_ptr(subscriber))).count();
                assert_eq!(count, usize::from(matches(filter, name)), "{filter} {name}");
            }
        }
        let mut count = 0;
        tree.all(&mut |_| count += 1);
        assert_eq!(count, added.len());
        for (filter, key, subscriber) in &added {
            let mut found = 0;
            tree.of_filter(filter, &mut |other| found += usize::from(std::ptr::eq(other, Rc::as_ptr(subscriber))));
            assert_eq!(found, 1, "{filter}");
            tree.remove(filter, *key);
        }
        assert!(tree.is_empty());
    }
}
