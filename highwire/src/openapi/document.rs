//! The document as a whole.

use super::description::Description;
use super::documented::{Documentation, Documented};
use super::schemas::Schemas;
use super::{OpenApi, SecurityScheme};
use crate::router::MethodFilter;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A route, with what the document says of it.
pub(crate) struct Described {
    pub(crate) host: Option<String>,
    pub(crate) filter: MethodFilter,
    pub(crate) path: String,
    pub(crate) documentation: Documentation,
}

/// The methods that a document can describe.
const METHODS: [&str; 8] = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"];

/// Makes the document. The error lists everything that is wrong.
pub(super) fn document(settings: &OpenApi, routes: &[Described], words_refusals: bool) -> Result<Value, String> {
    let mut schemas = Schemas::new(words_refusals);
    let mut schemes: BTreeMap<String, SecurityScheme> = settings.schemes.iter().cloned().collect();
    let mut faults = Vec::new();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    // OpenAPI takes two paths for the same one if they differ in the names of parameters only. The first route of each.
    let mut spellings: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut demanded = Vec::new();
    let ids = ids(routes, &mut faults);
    for (route, id) in routes.iter().zip(ids) {
        let called = format!("{} {}{}", route.filter, route.host.as_deref().unwrap_or_default(), route.path);
        let documented = match &route.documentation {
            Documentation::Hidden => continue,
            Documentation::Missing(handler) => {
                let handler = handler.replace("::{{closure}}", "::{closure}");
                faults.push(format!("{called}: the handler `{handler}` has no description; register `operation(handler)` from `highwire::openapi`, or `hidden(handler)` to leave it out"));
                continue;
            }
            Documentation::Operation(documented) => documented,
        };
        let method = match &route.filter {
            MethodFilter::One(method) if METHODS.contains(&method.as_str()) => method.as_str().to_ascii_lowercase(),
            _ => {
                faults.push(format!("{called}: OpenAPI cannot describe this method; register `hidden(handler)`"));
                continue;
            }
        };
        let (path, names) = template(&route.path);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut description = Description::new(&mut schemas, &names, &mut schemes);
        documented.describe(&mut description);
        documented.about.security.iter().for_each(|scheme| description.require(scheme));
        demanded.extend(documented.about.security.iter().map(|scheme| (called.clone(), *scheme)));
        faults.extend(description.faults.drain(..).map(|fault| format!("{called}: {fault}")));
        let mut operation = description.finish();
        if operation["responses"].as_object().is_none_or(Map::is_empty) {
            faults.push(format!("{called}: the handler's result describes no response"));
        }
        add_texts(&mut operation, documented, id);
        if let Some(host) = &route.host {
            operation.insert("servers".to_string(), json!([{"url": format!("//{host}")}]));
        }
        let (spelling, first) = spellings.entry(without_names(&path)).or_insert_with(|| (path.clone(), called.clone()));
        if *spelling != path {
            faults.push(format!("{called}: for OpenAPI this is the path of {first}; give the parameters the same names, or register `hidden(handler)`"));
        } else if paths.entry(path).or_default().insert(method, operation.into()).is_some() {
            faults.push(format!("{called}: for OpenAPI this is {first}, which has a description; register `hidden(handler)` for one of them"));
        }
    }
    for (called, scheme) in demanded.iter().filter(|(_, scheme)| !schemes.contains_key(*scheme)) {
        faults.push(format!(
            "{called}: the security scheme `{scheme}` is unknown; declare it by `OpenApi::security_scheme`"
        ));
    }
    let is_permitted = |name: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    };
    for name in schemes.keys().filter(|name| !is_permitted(name)) {
        faults.push(format!("the security scheme `{name}` has a name that OpenAPI does not permit: only letters, digits, `.`, `-` and `_`"));
    }
    if !faults.is_empty() {
        return Err(format!("the OpenAPI document cannot be made:\n{}", faults.join("\n")));
    }
    Ok(assemble(settings, paths, schemas, schemes))
}

fn add_texts(operation: &mut Map<String, Value>, documented: &Documented, id: String) {
    let about = &documented.about;
    operation.insert("operationId".to_string(), id.into());
    for (name, text) in [("summary", &about.summary), ("description", &about.description)] {
        operation.extend(text.as_ref().map(|text| (name.to_string(), text.as_str().into())));
    }
    if !about.tags.is_empty() {
        operation.insert("tags".to_string(), json!(about.tags));
    }
    if about.is_deprecated {
        operation.insert("deprecated".to_string(), true.into());
    }
}

fn assemble(
    settings: &OpenApi,
    paths: BTreeMap<String, Map<String, Value>>,
    schemas: Schemas,
    schemes: BTreeMap<String, SecurityScheme>,
) -> Value {
    let mut document = json!({
        "openapi": "3.1.1",
        "info": {"title": settings.title, "version": settings.version},
        "paths": paths,
    });
    if let Some(text) = &settings.description {
        document["info"]["description"] = json!(text);
    }
    if !settings.servers.is_empty() {
        document["servers"] = settings.servers.iter().map(|url| json!({"url": url})).collect();
    }
    if !settings.tags.is_empty() {
        let tag = |(name, text): &(String, String)| json!({"name": name, "description": text});
        document["tags"] = settings.tags.iter().map(tag).collect();
    }
    let joined = schemas.finish(&mut document);
    let schemes: Map<String, Value> = schemes.into_iter().map(|(name, scheme)| (name, scheme.to_json())).collect();
    for (name, members) in [("schemas", joined), ("securitySchemes", schemes)] {
        if !members.is_empty() {
            document["components"][name] = members.into();
        }
    }
    document
}

impl SecurityScheme {
    fn to_json(&self) -> Value {
        match self {
            SecurityScheme::Basic => json!({"type": "http", "scheme": "basic"}),
            SecurityScheme::Bearer => json!({"type": "http", "scheme": "bearer"}),
            SecurityScheme::Header(name) => json!({"type": "apiKey", "in": "header", "name": name}),
            SecurityScheme::Cookie(name) => json!({"type": "apiKey", "in": "cookie", "name": name}),
        }
    }
}

/// Returns a path as OpenAPI writes it, and the names of its parameters. `{*rest}` becomes `{rest}`; OpenAPI has no parameter that
/// holds slashes.
fn template(path: &str) -> (String, Vec<String>) {
    let (mut written, mut names, mut rest) = (String::new(), Vec::new(), path);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        let name = name.trim_start_matches('*');
        written.push_str(&format!("{before}{{{name}}}"));
        names.push(name.to_string());
        rest = behind;
    }
    written.push_str(rest);
    (written, names)
}

/// Returns a path with `{}` for each parameter.
fn without_names(path: &str) -> String {
    let mut blank = String::new();
    for piece in path.split_inclusive('}') {
        blank.push_str(piece.split_once('{').map_or(piece, |(before, _)| before));
        if piece.contains('{') {
            blank.push_str("{}");
        }
    }
    blank
}

/// Returns the id of each route's operation: the one that the program has set, or the handler's name, or the method and the path.
fn ids(routes: &[Described], faults: &mut Vec<String>) -> Vec<String> {
    let documented = |route: &Described| match &route.documentation {
        Documentation::Operation(documented) => Some((documented.about.id, documented.handler)),
        _ => None,
    };
    let name_of = |handler: &'static str| {
        let name = handler.rsplit("::").next().unwrap_or(handler);
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        is_name.then_some(name)
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, handler) in routes.iter().filter_map(documented) {
        *counts.entry(name_of(handler).unwrap_or_default()).or_default() += 1;
    }
    let mut taken = BTreeSet::new();
    let ids = routes.iter().map(|route| {
        let Some((set, handler)) = documented(route) else { return String::new() };
        let named = name_of(handler).filter(|name| counts.get(name) == Some(&1));
        let id = match (set, named) {
            (Some(id), _) => id.to_string(),
            (None, Some(name)) => name.to_string(),
            (None, None) => {
                let words =
                    route.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
                let method = route.filter.to_string().to_ascii_lowercase();
                std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
            }
        };
        if !taken.insert(id.clone()) {
            faults.push(format!(
                "{} {}: two operations have the id `{id}`; set another by `Operation::id`",
                route.filter, route.path
            ));
        }
        id
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_in_openapi() {
        for (path, expected, parameters) in [
            ("/", "/", &[][..]),
            ("/users/{id}", "/users/{id}", &["id"]),
            ("/a/{b}/c/{*rest}", "/a/{b}/c/{rest}", &["b", "rest"]),
        ] {
            assert_eq!(template(path), (expected.to_string(), parameters.iter().map(ToString::to_string).collect()));
        }
    }
    #[test]
    fn paths_are_compared_without_names() {
        for (path, expected) in
            [("/", "/"), ("/users/{id}", "/users/{}"), ("/a/{b}/c/{rest}", "/a/{}/c/{}"), ("/a{b}c", "/a{}c")]
        {
            assert_eq!(without_names(path), expected);
        }
    }
}
