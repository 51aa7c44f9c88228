//! What a worker keeps of the files that it has sent: entries by their paths, up to a bound of bytes.
//!
//! Only paths that lead to files are kept, so nobody fills it with spellings. Whoever is not asked for goes first, in about that
//! order: a hand goes round, takes a mark from those that were used since it came by, and throws out those without one.

use super::entry::Entry;
use io::Instant;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// How long an entry counts as what is in the folder. A file that was changed is seen after that at the latest.
const FRESH: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Cache {
    most_bytes: usize,
    bytes: usize,
    places: HashMap<Box<[u8]>, usize>,
    kept: Vec<Kept>,
    hand: usize,
}

struct Kept {
    path: Box<[u8]>,
    entry: Rc<Entry>,
    bytes: usize,
    was_used: bool,
    looked_at: Instant,
}

/// What the cache knows of a path.
pub(super) enum Known {
    Fresh(Rc<Entry>),
    /// To be looked at again: [`Cache::confirm`], [`Cache::remove`].
    Stale(Rc<Entry>),
    Nothing,
}

impl Cache {
    pub(super) fn new(most_bytes: usize) -> Cache {
        Cache { most_bytes, bytes: 0, places: HashMap::new(), kept: Vec::new(), hand: 0 }
    }

    pub(super) fn get(&mut self, path: &[u8], now: Instant) -> Known {
        let Some(&place) = self.places.get(path) else { return Known::Nothing };
        let kept = &mut self.kept[place];
        kept.was_used = true;
        match now.since(kept.looked_at) < FRESH {
            true => Known::Fresh(kept.entry.clone()),
            false => Known::Stale(kept.entry.clone()),
        }
    }

    /// The entry was looked at and is what is in the folder.
    pub(super) fn confirm(&mut self, path: &[u8], now: Instant) {
        if let Some(&place) = self.places.get(path) {
            self.kept[place].looked_at = now;
        }
    }

    pub(super) fn remove(&mut self, path: &[u8]) {
        let Some(place) = self.places.remove(path) else { return };
        self.bytes -= self.kept.swap_remove(place).bytes;
        if let Some(moved) = self.kept.get(place)
            && let Some(its) = self.places.get_mut(&moved.path)
        {
            *its = place;
        }
    }

    /// Keeps an entry, where it is not larger than a part of all that may be kept.
    pub(super) fn insert(&mut self, path: &[u8], entry: &Rc<Entry>, now: Instant) {
        self.remove(path);
        let bytes = entry.cost() + path.len();
        if bytes > self.most_bytes / 4 {
            return;
        }
        while self.bytes + bytes > self.most_bytes {
            self.throw_one_out();
        }
        self.bytes += bytes;
        self.places.insert(path.into(), self.kept.len());
        self.kept.push(Kept { path: path.into(), entry: entry.clone(), bytes, was_used: false, looked_at: now });
    }

    fn throw_one_out(&mut self) {
        loop {
            let place = if self.hand < self.kept.len() { self.hand } else { 0 };
            // Whichever moves into the place of one that goes came last, and has a round to be used in.
            self.hand = place + 1;
            let kept = &mut self.kept[place];
            if !std::mem::take(&mut kept.was_used) {
                let path = kept.path.clone();
                return self.remove(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Site;
    use crate::files::load::{Content, Part, Source};
    use std::time::UNIX_EPOCH;

    const NOW: Instant = Instant { nanoseconds: 0 };

    fn entry(length: usize) -> Rc<Entry> {
        let metadata = io::file::Metadata {
            is_folder: false,
            length: length as u64,
            modified: UNIX_EPOCH,
            changed: UNIX_EPOCH,
            number: 0,
        };
        let itself = Part { metadata, content: Content::Bytes(vec![0; length].into()) };
        let source = Source { path: b"a".to_vec(), itself, coded: [const { None }; 3], is_whole: true };
        let site = Site::open(crate::files::Files::new(std::env::temp_dir())).expect("a folder");
        Rc::new(Entry::new(source, &site))
    }

    fn has(cache: &mut Cache, path: &str) -> bool {
        !matches!(cache.get(path.as_bytes(), NOW), Known::Nothing)
    }

    #[test]
    fn an_entry_is_fresh_for_a_while_and_then_looked_at() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(b"a", &entry(10), NOW);
        assert!(matches!(cache.get(b"a", NOW + FRESH / 2), Known::Fresh(_)));
        assert!(matches!(cache.get(b"a", NOW + FRESH), Known::Stale(_)));
        cache.confirm(b"a", NOW + FRESH);
        assert!(matches!(cache.get(b"a", NOW + FRESH), Known::Fresh(_)));
        cache.remove(b"a");
        assert!(!has(&mut cache, "a"));
        assert_eq!(cache.bytes, 0);
    }

    #[test]
    fn the_bound_holds_and_what_is_asked_for_stays() {
        let mut cache = Cache::new(100_000);
        let (small, large) = (entry(9_000), entry(30_000));
        cache.insert(b"large", &large, NOW);
        assert!(!has(&mut cache, "large"), "it is more than a fourth of all");
        cache.insert(b"wanted", &small, NOW);
        for number in 0..100 {
            cache.insert(format!("{number}").as_bytes(), &small, NOW);
            assert!(cache.bytes <= 100_000 && has(&mut cache, "wanted"), "after {number}");
            assert_eq!(cache.bytes, cache.kept.iter().map(|kept| kept.bytes).sum::<usize>());
            assert!(cache.places.iter().all(|(path, &place)| cache.kept[place].path == *path));
        }
        let living = (0..100).filter(|number| has(&mut cache, &number.to_string())).count();
        assert!((1..10).contains(&living), "{living}");
    }
}
