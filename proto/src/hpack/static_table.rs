//! The static table (RFC 7541 appendix A), and look-ups of names and values in it.
//!
//! `ENTRIES` is the table as the RFC prints it. The compiler computes three more tables from it: all text in one piece,
//! so that a field is one copy; the place of each entry in this text; and a hash table of the 52 names, less than half
//! full, so that a look-up usually takes one comparison.

use super::Entry;

/// The number of entries of the static table; the dynamic table's first index is one more.
pub(crate) const STATIC_ENTRIES: usize = 61;

const ENTRIES: [(&str, &str); STATIC_ENTRIES] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

const TEXT_BYTES: usize = {
    let (mut bytes, mut index) = (0, 0);
    while index < ENTRIES.len() {
        bytes += ENTRIES[index].0.len() + ENTRIES[index].1.len();
        index += 1;
    }
    bytes
};

/// The names and values of all entries, one after the other.
static TEXT: [u8; TEXT_BYTES] = {
    let (mut text, mut at, mut index) = ([0; TEXT_BYTES], 0, 0);
    while index < ENTRIES.len() {
        let parts = [ENTRIES[index].0.as_bytes(), ENTRIES[index].1.as_bytes()];
        let mut part = 0;
        while part < parts.len() {
            let mut byte = 0;
            while byte < parts[part].len() {
                text[at] = parts[part][byte];
                at += 1;
                byte += 1;
            }
            part += 1;
        }
        index += 1;
    }
    text
};

/// The place of an entry in `TEXT`.
#[derive(Clone, Copy)]
struct Place {
    start: u16,
    end: u16,
    name_bytes: u8,
    name_index: u8,
}

/// The places by index, which counts from 1. The first and last places belong to no entry; the last one ends the search
/// for a name's values.
static PLACES: [Place; STATIC_ENTRIES + 2] = {
    let mut places = [Place { start: 0, end: 0, name_bytes: 0, name_index: 0 }; STATIC_ENTRIES + 2];
    let (mut start, mut index) = (0, 1);
    while index <= STATIC_ENTRIES {
        let (name, value) = ENTRIES[index - 1];
        let end = start + name.len() + value.len();
        places[index] = Place {
            start: start as u16,
            end: end as u16,
            name_bytes: name.len() as u8,
            name_index: name_index(name.as_bytes()),
        };
        start = end;
        index += 1;
    }
    places
};

/// Returns the entry at an index from 1 to `STATIC_ENTRIES`.
#[inline]
pub(super) fn entry(index: usize) -> Entry<'static> {
    let place = PLACES[index];
    Entry {
        text: &TEXT[usize::from(place.start)..usize::from(place.end)],
        name_bytes: usize::from(place.name_bytes),
        name_index: place.name_index,
    }
}

/// Returns the entry at an index from 1 to `STATIC_ENTRIES`, as the RFC prints it. Slow decoders in tests use it.
pub(crate) fn static_entry(index: usize) -> (&'static str, &'static str) {
    ENTRIES[index - 1]
}

/// Returns the name at an index of the static table, or an empty one if the table has no such index.
pub const fn static_name(index: u8) -> &'static [u8] {
    if index == 0 || index as usize > STATIC_ENTRIES { b"" } else { ENTRIES[index as usize - 1].0.as_bytes() }
}

/// Returns the first index of the static table with this name, or 0 if the table lacks the name, as in
/// [`FieldLine::name_index`](super::FieldLine::name_index). Compares name after name, which is fast enough for
/// constants.
pub const fn name_index(name: &[u8]) -> u8 {
    let mut index = 0;
    while index < ENTRIES.len() {
        if equal(name, ENTRIES[index].0.as_bytes()) {
            return index as u8 + 1;
        }
        index += 1;
    }
    0
}

/// Returns true if the slices are equal. Constant functions cannot compare slices by `==` yet.
const fn equal(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

/// The number of slots of the hash table of names: the smallest power of two above twice the number of names.
const SLOTS: usize = 128;

static SLOT_OF_NAME: [u8; SLOTS] = {
    let (mut slots, mut index) = ([0; SLOTS], 0);
    while index < ENTRIES.len() {
        let name = ENTRIES[index].0.as_bytes();
        index += 1;
        if name_index(name) as usize == index {
            let mut slot = first_slot(hash(name));
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = index as u8;
        }
    }
    slots
};

const fn first_slot(hash: u32) -> usize {
    (hash >> (u32::BITS - SLOTS.trailing_zeros())) as usize
}

/// Returns a hash of a name's first and last eight bytes and its length. The upper bits are spread best.
///
/// Names that differ only in between collide. Each user of the hash bounds its work, even if a peer sends many such
/// names.
#[inline]
pub(super) const fn hash(name: &[u8]) -> u32 {
    /// 2^64 divided by the golden ratio, the usual factor of multiplicative hashing.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (front, back) = if let (Some(front), Some(back)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from_le_bytes(*front), u64::from_le_bytes(*back))
    } else if let (Some(front), Some(back)) = (name.first_chunk(), name.last_chunk()) {
        (u32::from_le_bytes(*front) as u64, u32::from_le_bytes(*back) as u64)
    } else if let [first, .., last] = name {
        (*first as u64, (name[1] as u64) << 8 | *last as u64)
    } else if let [only] = name {
        (*only as u64, 0)
    } else {
        (0, 0)
    };
    let mixed = front ^ back.rotate_left(23) ^ (name.len() as u64) << 17;
    (mixed.wrapping_mul(FACTOR) >> 32) as u32
}

/// Returns the first index with this name, or 0. `hash` is the hash of the name.
#[inline]
pub(super) fn find_name(name: &[u8], hash: u32) -> u8 {
    let mut slot = first_slot(hash);
    loop {
        let index = SLOT_OF_NAME[slot];
        if index == 0 || entry(usize::from(index)).name() == name {
            return index;
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Returns the index of the entry with this value and with the name whose first index is `name_index`, or 0. The
/// entries of a name are adjacent.
#[inline]
pub(super) fn find_value(name_index: u8, value: &[u8]) -> u8 {
    let mut index = name_index;
    while index != 0 && PLACES[usize::from(index)].name_index == name_index {
        if entry(usize::from(index)).value() == value {
            return index;
        }
        index += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_rfc() {
        for (index, name, value) in [
            (1, ":authority", ""),
            (2, ":method", "GET"),
            (3, ":method", "POST"),
            (5, ":path", "/index.html"),
            (7, ":scheme", "https"),
            (8, ":status", "200"),
            (14, ":status", "500"),
            (16, "accept-encoding", "gzip, deflate"),
            (19, "accept", ""),
            (23, "authorization", ""),
            (28, "content-length", ""),
            (32, "cookie", ""),
            (38, "host", ""),
            (48, "proxy-authenticate", ""),
            (55, "set-cookie", ""),
            (58, "user-agent", ""),
            (61, "www-authenticate", ""),
        ] {
            assert_eq!(static_entry(index), (name, value));
        }
        // From `accept-charset` on, all names but `accept` are in strict alphabetical order, so no line is doubled. The
        // table's length shows that no line is lost.
        let tail = ENTRIES[14..].iter().filter(|(name, _)| *name != "accept");
        assert!(tail.clone().zip(tail.skip(1)).all(|(this, next)| this.0 < next.0));
    }

    #[test]
    fn places_and_slots_are_the_table() {
        for (number, (name, value)) in ENTRIES.iter().enumerate() {
            let entry = entry(number + 1);
            assert_eq!((entry.name(), entry.value()), (name.as_bytes(), value.as_bytes()));
            assert_eq!(static_name(number as u8 + 1), name.as_bytes());
            let first = find_name(name.as_bytes(), hash(name.as_bytes()));
            assert_eq!(entry.name_index, first);
            assert_eq!(name_index(name.as_bytes()), first);
            assert_eq!(ENTRIES.iter().position(|(other, _)| other == name), Some(usize::from(first) - 1));
            assert_eq!(usize::from(find_value(first, value.as_bytes())), number + 1);
            assert_eq!(find_value(first, b"another"), 0);
        }
    }

    #[test]
    fn other_names_are_not_in_it() {
        for name in
            ["", "a", "ab", "abc", "abcd", ":", ":metho", ":methods", "Accept", "x-request-id", "www-authenticatf"]
        {
            assert_eq!(find_name(name.as_bytes(), hash(name.as_bytes())), 0, "{name}");
            assert_eq!(name_index(name.as_bytes()), 0, "{name}");
        }
        assert_eq!((static_name(0), static_name(62), static_name(255)), (&b""[..], &b""[..], &b""[..]));
        assert_eq!(find_value(0, b""), 0);
    }

    #[test]
    fn a_look_up_is_short() {
        let steps = |name: &str| {
            let (first, index) = (first_slot(hash(name.as_bytes())), name_index(name.as_bytes()));
            (0..).find(|step| SLOT_OF_NAME[(first + step) % SLOTS] == index).expect("the name is in the table") + 1
        };
        assert!(ENTRIES.iter().all(|(name, _)| steps(name) <= 5));
    }
}
