//! Presence: the members of topics, here and on other machines.

use crate::message::problem::write_text;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// The time after which the members of a silent machine count as gone.
const SILENCE: Duration = Duration::from_secs(30);

/// The most members of a topic on one machine.
pub(super) const MEMBERS: usize = 1000;

/// The most bytes of a member's name, and of its information.
pub(super) const MEMBER_BYTES: usize = 256;

/// The most other machines that have members in a topic.
const NODES: usize = 256;

/// A member of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Member {
    /// The name under which it joined.
    pub name: String,
    /// The information that it gave when it joined.
    pub info: String,
}

/// A change of a topic's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Joined(Member),
    Left(String),
}

/// The members of all topics.
#[derive(Default)]
pub(super) struct Presence {
    topics: HashMap<Arc<str>, Members>,
}

#[derive(Default)]
struct Members {
    /// The members here, and how often each of them has joined.
    here: BTreeMap<String, (usize, String)>,
    /// The members on other machines, and the moment at which each machine was heard from last.
    elsewhere: HashMap<u64, (Duration, BTreeMap<String, String>)>,
}

impl Members {
    fn info(&self, name: &str) -> Option<&str> {
        let here = self.here.get(name).map(|(_, info)| &info[..]);
        here.or_else(|| self.elsewhere.values().find_map(|(_, members)| members.get(name)).map(|info| &info[..]))
    }
}

impl Presence {
    /// Adds a member here. Returns the change, if it was not present before, or an error if the topic has too many
    /// members.
    pub(super) fn join(&mut self, topic: &Arc<str>, member: &Member) -> Result<Option<Change>, ()> {
        let members = self.topics.entry(topic.clone()).or_default();
        let was_present = members.info(&member.name).is_some();
        if members.here.len() >= MEMBERS && !members.here.contains_key(&member.name) {
            return Err(());
        }
        let (count, info) = members.here.entry(member.name.clone()).or_default();
        *count += 1;
        info.clone_from(&member.info);
        Ok((!was_present).then(|| Change::Joined(member.clone())))
    }

    /// Removes a member here. Returns the change, if it is not present any more.
    pub(super) fn leave(&mut self, topic: &str, name: &str) -> Option<Change> {
        let members = self.topics.get_mut(topic)?;
        let (count, _) = members.here.get_mut(name)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        members.here.remove(name);
        let is_gone = members.info(name).is_none();
        self.forget_if_empty(topic);
        is_gone.then(|| Change::Left(name.into()))
    }

    /// Replaces the members of another machine. Returns the changes.
    pub(super) fn hear(&mut self, topic: &Arc<str>, node: u64, list: Vec<Member>, now: Duration) -> Vec<Change> {
        let members = self.topics.entry(topic.clone()).or_default();
        if members.elsewhere.len() >= NODES && !members.elsewhere.contains_key(&node) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for member in &list {
            if members.info(&member.name).is_none() {
                changes.push(Change::Joined(member.clone()));
            }
        }
        let list: BTreeMap<_, _> = list.into_iter().map(|member| (member.name, member.info)).collect();
        let previous = match list.is_empty() {
            true => members.elsewhere.remove(&node),
            false => members.elsewhere.insert(node, (now, list)),
        };
        for name in previous.into_iter().flat_map(|(_, previous)| previous.into_keys()) {
            if members.info(&name).is_none() {
                changes.push(Change::Left(name));
            }
        }
        self.forget_if_empty(topic);
        changes
    }

    /// Removes the members of machines that were not heard from for 30 seconds. Returns the changes with their topics.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<(Arc<str>, Change)> {
        let silent: Vec<_> = self
            .topics
            .iter()
            .flat_map(|(topic, members)| members.elsewhere.iter().map(move |(node, (heard, _))| (topic, *node, *heard)))
            .filter(|(_, _, heard)| *heard + SILENCE <= now)
            .map(|(topic, node, _)| (topic.clone(), node))
            .collect();
        let mut changes = Vec::new();
        for (topic, node) in silent {
            let gone = self.hear(&topic, node, Vec::new(), now);
            changes.extend(gone.into_iter().map(|change| (topic.clone(), change)));
        }
        changes
    }

    /// Forgets the members of other machines. The hub calls this when the topic's last listener here has left.
    pub(super) fn forget_others(&mut self, topic: &str) {
        if let Some(members) = self.topics.get_mut(topic) {
            members.elsewhere.clear();
            self.forget_if_empty(topic);
        }
    }

    fn forget_if_empty(&mut self, topic: &str) {
        if self.topics.get(topic).is_some_and(|members| members.here.is_empty() && members.elsewhere.is_empty()) {
            self.topics.remove(topic);
        }
    }

    /// Returns the first members of a topic after a name, at most `most`, in the order of their names.
    pub(super) fn members_after(&self, topic: &str, name: Option<&str>, most: usize) -> Vec<Member> {
        let Some(members) = self.topics.get(topic) else { return Vec::new() };
        let behind = (name.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        // Each of these names is among the first ones of its own machine.
        for (_, elsewhere) in members.elsewhere.values() {
            let elsewhere = elsewhere.range::<str, _>(behind).take(most);
            first.extend(elsewhere.map(|(name, info)| (&name[..], &info[..])));
        }
        let here = members.here.range::<str, _>(behind).take(most);
        first.extend(here.map(|(name, (_, info))| (&name[..], &info[..])));
        let first = first.into_iter().take(most);
        first.map(|(name, info)| Member { name: name.into(), info: info.into() }).collect()
    }

    /// Returns the members here, for other machines.
    pub(super) fn here(&self, topic: &str) -> Vec<Member> {
        let Some(members) = self.topics.get(topic) else { return Vec::new() };
        let here = members.here.iter();
        here.map(|(name, (_, info))| Member { name: name.clone(), info: info.clone() }).collect()
    }

    /// Returns the topics that have members here.
    pub(super) fn topics_here(&self) -> Vec<Arc<str>> {
        let topics = self.topics.iter().filter(|(_, members)| !members.here.is_empty());
        topics.map(|(topic, _)| topic.clone()).collect()
    }
}

impl Change {
    /// Returns the change as the JSON text of a message.
    pub(super) fn to_json(&self) -> String {
        let mut json = String::new();
        match self {
            Change::Joined(member) => {
                json.push_str("{\"joined\":");
                write_text(&mut json, &member.name);
                json.push_str(",\"info\":");
                write_text(&mut json, &member.info);
            }
            Change::Left(name) => {
                json.push_str("{\"left\":");
                write_text(&mut json, name);
            }
        }
        json.push('}');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member { name: name.into(), info: format!("info of {name}") }
    }

    fn names(presence: &Presence) -> Vec<String> {
        presence.members_after("a", None, usize::MAX).into_iter().map(|member| member.name).collect()
    }

    #[test]
    fn a_member_is_present_until_it_has_left_everywhere() {
        let (mut presence, topic) = (Presence::default(), Arc::from("a"));
        let at = Duration::from_secs;
        assert_eq!(presence.join(&topic, &member("ann")), Ok(Some(Change::Joined(member("ann")))));
        assert_eq!(presence.join(&topic, &member("ann")), Ok(None), "a second window");
        let changes = presence.hear(&topic, 7, vec![member("ann"), member("bob")], at(0));
        assert_eq!(changes, [Change::Joined(member("bob"))]);
        assert_eq!(names(&presence), ["ann", "bob"]);
        assert_eq!(presence.leave("a", "ann"), None);
        assert_eq!(presence.leave("a", "ann"), None, "it is still elsewhere");
        assert_eq!(presence.leave("a", "ann"), None, "it is not here");
        let changes = presence.hear(&topic, 7, vec![member("bob")], at(10));
        assert_eq!(changes, [Change::Left("ann".into())]);
        assert!(presence.expire(at(39)).is_empty());
        assert_eq!(presence.expire(at(40)), [(topic, Change::Left("bob".into()))]);
        assert!(presence.topics.is_empty());
    }

    #[test]
    fn members_come_in_parts() {
        let (mut presence, topic) = (Presence::default(), Arc::from("a"));
        for name in ["b", "d", "f"] {
            assert!(presence.join(&topic, &member(name)).is_ok());
        }
        for (node, list) in [(7, ["a", "d"]), (8, ["c", "e"])] {
            presence.hear(&topic, node, list.map(member).to_vec(), Duration::ZERO);
        }
        let all = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(names(&presence), all);
        for most in 1..=7 {
            let (mut found, mut last): (Vec<String>, Option<String>) = Default::default();
            loop {
                let part = presence.members_after("a", last.as_deref(), most);
                assert!(part.len() <= most);
                let Some(member) = part.last() else { break };
                last = Some(member.name.clone());
                found.extend(part.into_iter().map(|member| member.name));
            }
            assert_eq!(found, all, "at most {most}");
        }
        assert!(presence.members_after("b", None, 9).is_empty(), "another topic");
    }

    #[test]
    fn members_are_bounded() {
        let (mut presence, topic) = (Presence::default(), Arc::from("a"));
        for number in 0..MEMBERS {
            assert!(presence.join(&topic, &member(&number.to_string())).is_ok());
        }
        assert_eq!(presence.join(&topic, &member("one more")), Err(()));
        assert_eq!(presence.join(&topic, &member("0")), Ok(None));
        for node in 0..NODES as u64 + 5 {
            presence.hear(&topic, node, vec![member(&format!("on {node}"))], Duration::ZERO);
        }
        assert_eq!(names(&presence).len(), MEMBERS + NODES);
    }

    #[test]
    fn changes_are_json() {
        let text = Change::Joined(Member { name: "a\"\\\n".into(), info: "é".into() }).to_json();
        assert_eq!(text, r#"{"joined":"a\"\\\u000a","info":"é"}"#);
        assert_eq!(Change::Left("b".into()).to_json(), r#"{"left":"b"}"#);
    }
}
