//! The schemas of an OpenAPI document: those of requests and those of responses, which differ for one type if serde reads it
//! otherwise than it writes it.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where the references of each generator lead before [`Schemas::finish`] joins both.
const REQUESTS: &str = "#/components/requests/";
const RESPONSES: &str = "#/components/responses-of/";
const JOINED: &str = "#/components/schemas/";

/// A member of a struct.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) schema: Value,
    pub(super) is_required: bool,
}

pub(super) struct Schemas {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
    /// True if the app makes the responses to rejected requests itself.
    pub(super) words_refusals: bool,
}

impl Schemas {
    pub(super) fn new(words_refusals: bool) -> Schemas {
        let settings = |place: &'static str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = place.trim_end_matches('/').into();
                settings.meta_schema = None;
            })
        };
        let requests = settings(REQUESTS).for_deserialize().into_generator();
        let responses = settings(RESPONSES).for_serialize().into_generator();
        Schemas { requests, responses, words_refusals }
    }

    pub(super) fn of_request<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    pub(super) fn of_response<T: JsonSchema>(&mut self) -> Value {
        self.responses.subschema_for::<T>().to_value()
    }

    /// Returns the schema of a type that requests have, without a reference to it, and the members that it lists.
    pub(super) fn members<T: JsonSchema>(&mut self) -> (Value, Vec<Member>) {
        let schema = T::json_schema(&mut self.requests);
        let whole = self.resolved(schema);
        let required = |name: &str| {
            let names = whole.get("required").and_then(Value::as_array);
            names.is_some_and(|names| names.iter().any(|known| known == name))
        };
        let members = whole.get("properties").and_then(Value::as_object).into_iter().flatten();
        let members = members
            .map(|(name, schema)| Member { name: name.clone(), schema: schema.clone(), is_required: required(name) })
            .collect();
        (whole, members)
    }

    /// Follows a schema that is only a reference.
    fn resolved(&self, schema: Schema) -> Value {
        let schema = schema.to_value();
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(REQUESTS));
        let known = self.requests.definitions().iter().find(|(known, _)| name == Some(&encoded(known)));
        known.map_or(schema.clone(), |(_, schema)| schema.clone())
    }

    /// Returns the schemas of the document by name. Rewrites the references in `document`. A type whose two schemas
    /// differ, or refer to such a type, has that of requests under its name with `Input` behind it.
    pub(super) fn finish(mut self, document: &mut Value) -> Map<String, Value> {
        let requests = self.requests.take_definitions(true);
        let responses = self.responses.take_definitions(true);
        let mut differ = BTreeSet::new();
        loop {
            let before = differ.len();
            for (name, schema) in &requests {
                let Some(other) = responses.get(name) else { continue };
                let comparable = |schema: &Value| {
                    let mut schema = schema.clone();
                    let joined = |reference: &str, place: &str| {
                        reference.strip_prefix(place).map(|name| format!("{JOINED}{name}"))
                    };
                    rewrite(&mut schema, &|reference| {
                        joined(reference, REQUESTS).or_else(|| joined(reference, RESPONSES))
                    });
                    schema
                };
                if comparable(schema) != comparable(other) || refers_to(schema, &differ) {
                    differ.insert(name.clone());
                }
            }
            if differ.len() == before {
                break;
            }
        }
        let mut names = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (place, all) in [(RESPONSES, &responses), (REQUESTS, &requests)] {
            for name in all.keys() {
                let is_shared = place == REQUESTS && responses.contains_key(name) && !differ.contains(name);
                let other = names.get(&format!("{RESPONSES}{}", encoded(name))).cloned();
                let chosen = match (is_shared, other) {
                    (true, Some(other)) => other,
                    _ => {
                        let end = if place == REQUESTS && differ.contains(name) { "Input" } else { "" };
                        unused(&format!("{}{end}", permitted(name)), &mut taken)
                    }
                };
                names.insert(format!("{place}{}", encoded(name)), chosen);
            }
        }
        let renamed = |reference: &str| names.get(reference).map(|name| format!("{JOINED}{name}"));
        let mut joined = Map::new();
        for (place, all) in [(REQUESTS, requests), (RESPONSES, responses)] {
            for (name, mut schema) in all {
                rewrite(&mut schema, &renamed);
                if let Some(name) = names.get(&format!("{place}{}", encoded(&name))) {
                    joined.insert(name.clone(), schema);
                }
            }
        }
        rewrite(document, &renamed);
        add_bounds(document);
        joined.values_mut().for_each(add_bounds);
        joined
    }
}

/// Returns a name as OpenAPI permits it for components.
fn permitted(name: &str) -> String {
    let permitted = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    name.chars().map(|letter| if permitted(letter) { letter } else { '_' }).collect()
}

fn unused(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut candidates = std::iter::once(name.to_string()).chain((2..).map(|number| format!("{name}{number}")));
    let found = candidates.find(|candidate| !taken.contains(candidate)).unwrap_or_default();
    taken.insert(found.clone());
    found
}

/// Returns a name as schemars writes it in references: a JSON pointer in a URI fragment (RFC 6901 section 6).
fn encoded(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'~' => encoded.push_str("~0"),
            b'/' => encoded.push_str("~1"),
            b'!' | b'$' | b'&'..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:2X}")),
        }
    }
    encoded
}

/// Replaces the references in a schema or document for which `renamed` has another.
fn rewrite(value: &mut Value, renamed: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(other) = renamed(reference)
            {
                *reference = other;
            }
            members.values_mut().for_each(|member| rewrite(member, renamed));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| rewrite(element, renamed)),
        _ => {}
    }
}

/// Adds the bounds of integers, which schemars writes for some sizes and leaves to the format for others. A client that takes the
/// document at its word may send any integer otherwise.
fn add_bounds(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let (least, most): (Value, Value) = match members.get("format").and_then(Value::as_str) {
                Some("uint32") => (u32::MIN.into(), u32::MAX.into()),
                Some("uint64" | "uint") => (u64::MIN.into(), u64::MAX.into()),
                Some("int32") => (i32::MIN.into(), i32::MAX.into()),
                Some("int64" | "int") => (i64::MIN.into(), i64::MAX.into()),
                _ => (Value::Null, Value::Null),
            };
            for (name, bound) in [("minimum", least), ("maximum", most)] {
                if !bound.is_null() && !members.contains_key(name) {
                    members.insert(name.to_string(), bound);
                }
            }
            members.values_mut().for_each(add_bounds);
        }
        Value::Array(elements) => elements.iter_mut().for_each(add_bounds),
        _ => {}
    }
}

fn refers_to(value: &Value, names: &BTreeSet<String>) -> bool {
    match value {
        Value::Object(members) => {
            let reference =
                members.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix(REQUESTS));
            names.iter().any(|name| reference == Some(&encoded(name)))
                || members.values().any(|member| refers_to(member, names))
        }
        Value::Array(elements) => elements.iter().any(|element| refers_to(element, names)),
        _ => false,
    }
}
