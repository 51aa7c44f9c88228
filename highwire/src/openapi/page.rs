//! The page that shows an OpenAPI document to people. It is one file that works without scripts; a script adds a form that sends
//! requests.

use crate::message::html::escape_html;
use serde_json::{Map, Value};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The policy of the page: nothing from elsewhere, only its own style and script. The script is named by its SHA-256, so that nothing
/// else runs even if a text of the document were not escaped.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-Yj54Goyj4lNIA8gdhrRXGPCM6+ULkt7oJuB2ot2HYuE='; connect-src *; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// How deep schemas are shown inside of others.
const MOST_DEPTH: usize = 6;

/// How deep the example of a body is.
const MOST_EXAMPLE_DEPTH: usize = 4;

/// The most members that the example of a body has, counted over all levels.
const MOST_EXAMPLE_VALUES: usize = 60;

/// Makes the page of a document, which `source` serves.
pub(super) fn page(document: &Value, source: &str) -> String {
    let (title, version) = (text(&document["info"]["title"]), text(&document["info"]["version"]));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
        <body>\n<header><h1>{title} <small>{version}</small></h1>\n{about}\
        <p><a href=\"{source}\">The OpenAPI document</a></p></header>\n",
        about = prose(&document["info"]["description"]),
        source = escaped(source),
    );
    let groups = groups(document);
    contents(&mut html, &groups);
    html.push_str("<main>\n");
    for group in &groups {
        if !group.name.is_empty() {
            add(&mut html, format_args!("<h2>{}</h2>\n{}", escaped(&group.name), prose(&group.description)));
        }
        for operation in &group.operations {
            show_operation(&mut html, document, operation);
        }
    }
    add(&mut html, format_args!("</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"));
    html
}

fn add(html: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = html.write_fmt(text);
}

struct Shown<'d> {
    method: &'d str,
    path: &'d str,
    operation: &'d Value,
}

struct Group<'d> {
    name: String,
    description: Value,
    operations: Vec<Shown<'d>>,
}

/// Returns the operations by their first tag, the tags in the document's order, those without a tag first.
fn groups(document: &Value) -> Vec<Group<'_>> {
    let group = |name: &str, description: &Value| Group {
        name: name.to_string(),
        description: description.clone(),
        operations: Vec::new(),
    };
    let mut groups = vec![group("", &Value::Null)];
    for tag in document["tags"].as_array().into_iter().flatten() {
        groups.push(group(tag["name"].as_str().unwrap_or_default(), &tag["description"]));
    }
    for (path, operations) in members(&document["paths"]) {
        for (method, operation) in members(operations) {
            let name = operation["tags"][0].as_str().unwrap_or_default();
            let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
                groups.push(group(name, &Value::Null));
                groups.len() - 1
            });
            groups[at].operations.push(Shown { method, path, operation });
        }
    }
    groups.retain(|group| !group.operations.is_empty());
    groups
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn contents(html: &mut String, groups: &[Group<'_>]) {
    html.push_str("<nav aria-label=\"Operations\">\n<ul>\n");
    for shown in groups.iter().flat_map(|group| &group.operations) {
        let Shown { method, path, operation } = shown;
        let (id, upper, path) = (text(&operation["operationId"]), method.to_uppercase(), escaped(path));
        add(html, format_args!("<li><a href=\"#{id}\"><b class=\"{method}\">{upper}</b> {path}</a></li>\n"));
    }
    html.push_str("</ul>\n</nav>\n");
}

fn show_operation(html: &mut String, document: &Value, shown: &Shown<'_>) {
    let Shown { method, path, operation } = shown;
    let (id, upper) = (text(&operation["operationId"]), method.to_uppercase());
    let server =
        [&operation["servers"][0]["url"], &document["servers"][0]["url"]].into_iter().find(|url| url.is_string());
    let server = server.unwrap_or(&Value::Null);
    let old = if operation["deprecated"] == true { " <em>deprecated</em>" } else { "" };
    add(
        html,
        format_args!(
            "<section id=\"{id}\" data-method=\"{upper}\" data-path=\"{path}\" data-server=\"{server}\">\n<h3><b class=\"{method}\">{upper}</b> <code>{path}</code>{old}</h3>\n",
            path = escaped(path),
            server = text(server),
        ),
    );
    if operation["summary"].is_string() {
        add(html, format_args!("<p class=\"summary\">{}</p>\n", text(&operation["summary"])));
    }
    html.push_str(&prose(&operation["description"]));
    for set in operation["security"].as_array().into_iter().flatten() {
        let names: Vec<String> = members(set).map(|(name, _)| format!("<code>{}</code>", escaped(name))).collect();
        let names = if names.is_empty() { "nothing".to_string() } else { names.join(" and ") };
        let word =
            if operation["security"].as_array().is_some_and(|sets| sets.len() > 1) { "Can need" } else { "Needs" };
        add(html, format_args!("<p>{word} {names}.</p>\n"));
    }
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters {
        html.push_str("<h4>Parameters</h4>\n<dl>\n");
        for parameter in parameters {
            let needed = if parameter["required"] == true { " <em>required</em>" } else { "" };
            add(
                html,
                format_args!(
                    "<dt data-in=\"{place}\" data-name=\"{name}\"><code>{name}</code> <small>{place}</small> {kind}{needed}</dt>\n<dd>{about}</dd>\n",
                    place = text(&parameter["in"]),
                    name = text(&parameter["name"]),
                    kind = kind(document, &parameter["schema"]),
                    about = prose(&parameter["description"]),
                ),
            );
        }
        html.push_str("</dl>\n");
    }
    for (media_type, content) in members(&operation["requestBody"]["content"]) {
        add(html, format_args!("<h4>Body <small>{}</small></h4>\n", escaped(media_type)));
        show_schema(html, document, &content["schema"], 0);
    }
    html.push_str("<h4>Responses</h4>\n");
    for (status, response) in members(&operation["responses"]) {
        add(
            html,
            format_args!(
                "<div class=\"response\"><p><b>{}</b> {}</p>\n",
                escaped(status),
                text(&response["description"])
            ),
        );
        for (media_type, content) in members(&response["content"]) {
            add(
                html,
                format_args!(
                    "<details><summary>{} {}</summary>\n",
                    escaped(media_type),
                    kind(document, &content["schema"])
                ),
            );
            show_schema(html, document, &content["schema"], 0);
            html.push_str("</details>\n");
        }
        html.push_str("</div>\n");
    }
    let contents = &operation["requestBody"]["content"];
    // A form has fields, which the script writes as the media type wants; JSON is what people read best.
    let chosen = members(contents).find(|(media_type, _)| *media_type == "application/json");
    let body = chosen.or_else(|| members(contents).next()).map(|(media_type, content)| {
        let example = example(document, &content["schema"], &mut MOST_EXAMPLE_VALUES.clone(), 0);
        let written = match &example.unwrap_or_default() {
            example @ (Value::Object(_) | Value::Array(_)) => serde_json::to_string_pretty(example).unwrap_or_default(),
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        format!("<template data-media=\"{}\">{}</template>\n", escaped(media_type), escaped(&written))
    });
    html.push_str(&body.unwrap_or_default());
    html.push_str("</section>\n");
}

/// Follows a reference.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    let name = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"));
    name.map_or(schema, |name| &document["components"]["schemas"][name])
}

/// Returns what a value is, in a word: `string`, `User`, `array of User`.
fn kind(document: &Value, schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        let is_list = resolved(document, schema)["enum"].is_array();
        let values = if is_list { format!(" {}", kind(document, resolved(document, schema))) } else { String::new() };
        return format!("<i>{}</i>{values}", escaped(name));
    }
    let alternatives = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
    if let Some(alternatives) = alternatives {
        let kinds: Vec<String> = alternatives.iter().map(|schema| kind(document, schema)).collect();
        return kinds.join(" or ");
    }
    let named = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema["const"] != Value::Null => return format!("<i>{}</i>", escaped(&schema["const"].to_string())),
        _ => vec!["any value"],
    };
    let mut word = match named.as_slice() {
        ["array"] => format!("array of {}", kind(document, &schema["items"])),
        names => escaped(&names.join(" or ")),
    };
    if let Some(format) = schema["format"].as_str() {
        word = format!("{word} <small>{}</small>", escaped(format));
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().map(|value| format!("<code>{}</code>", escaped(&value.to_string()))).collect();
        word = format!("{word}: {}", values.join(", "));
    }
    for (least, most, unit) in
        [("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " elements")]
    {
        let bound = |name: &str| schema.get(name).map(|bound| format!("<code>{}</code>", escaped(&bound.to_string())));
        let bounds = match (bound(least), bound(most)) {
            (Some(least), Some(most)) => format!(", {least} to {most}{unit}"),
            (Some(least), None) => format!(", at least {least}{unit}"),
            (None, Some(most)) => format!(", at most {most}{unit}"),
            (None, None) => String::new(),
        };
        word.push_str(&bounds);
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let _ = write!(word, ", as <code>{}</code>", escaped(pattern));
    }
    if schema.get("default").is_some() {
        let _ = write!(word, ", default <code>{}</code>", escaped(&schema["default"].to_string()));
    }
    word
}

/// Shows the members of a schema, and theirs.
fn show_schema(html: &mut String, document: &Value, schema: &Value, depth: usize) {
    let whole = resolved(document, schema);
    if depth == 0 && whole["description"].is_string() {
        html.push_str(&prose(&whole["description"]));
    }
    if depth == MOST_DEPTH {
        return;
    }
    let alternatives = whole["oneOf"].as_array().or_else(|| whole["anyOf"].as_array());
    if let Some(alternatives) = alternatives {
        add(html, format_args!("<p>{}</p>\n", kind(document, whole)));
        for alternative in alternatives.iter().filter(|one| resolved(document, one)["properties"].is_object()) {
            show_schema(html, document, alternative, depth + 1);
        }
        return;
    }
    if whole["items"].is_object() {
        if depth == 0 {
            add(html, format_args!("<p>{}</p>\n", kind(document, whole)));
        }
        show_schema(html, document, &whole["items"], depth + 1);
        return;
    }
    let Some(properties) = whole["properties"].as_object() else {
        if depth == 0 {
            add(html, format_args!("<p>{}</p>\n", kind(document, whole)));
        }
        return;
    };
    html.push_str("<dl>\n");
    for (name, member) in properties {
        let needed = if is_required(whole, name) { " <em>required</em>" } else { "" };
        add(
            html,
            format_args!(
                "<dt><code>{}</code> {}{needed}</dt>\n<dd>{}",
                escaped(name),
                kind(document, member),
                prose(&member["description"]),
            ),
        );
        show_schema(html, document, member, depth + 1);
        html.push_str("</dd>\n");
    }
    html.push_str("</dl>\n");
}

/// Returns a value that fits a schema, for a form to begin with. `left` bounds its size. `None` if it would be too large or too deep;
/// members that are not required, and elements, are then left out.
fn example(document: &Value, schema: &Value, left: &mut usize, depth: usize) -> Option<Value> {
    let whole = resolved(document, schema);
    if *left == 0 || depth > MOST_EXAMPLE_DEPTH {
        return None;
    }
    *left -= 1;
    for given in [&whole["examples"][0], &whole["default"], &whole["const"], &whole["enum"][0]] {
        if !given.is_null() {
            return Some(given.clone());
        }
    }
    if let Some(first) = whole["oneOf"].get(0).or_else(|| whole["anyOf"].get(0)) {
        return example(document, first, left, depth + 1);
    }
    let kind = whole["type"].as_str().or_else(|| whole["type"][0].as_str()).unwrap_or_default();
    Some(match kind {
        "object" => {
            let mut filled = Map::new();
            for (name, member) in members(&whole["properties"]) {
                match example(document, member, left, depth + 1) {
                    Some(value) => _ = filled.insert(name.to_string(), value),
                    None if is_required(whole, name) => return None,
                    None => {}
                }
            }
            Value::Object(filled)
        }
        "array" => example(document, &whole["items"], left, depth + 1).into_iter().collect(),
        "integer" | "number" => whole.get("minimum").cloned().unwrap_or_else(|| 0.into()),
        "boolean" => false.into(),
        "string" => "".into(),
        _ => Value::Null,
    })
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
}

/// Escapes the text of a JSON string.
fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

/// Makes paragraphs of a text, with the words between backticks as code.
fn prose(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty());
    let paragraph = |paragraph: &str| {
        let pieces = paragraph.split('`').enumerate().map(|(at, piece)| match at % 2 {
            0 => escaped(piece),
            _ => format!("<code>{}</code>", escaped(piece)),
        });
        format!("<p>{}</p>\n", pieces.collect::<String>())
    };
    paragraphs.map(paragraph).collect()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    escape_html(text, &mut escaped);
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[cfg(any(feature = "tls", feature = "cookies"))]
    #[test]
    fn the_policy_names_the_script() {
        use base64::Engine as _;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, SCRIPT.as_bytes());
        let hash = base64::engine::general_purpose::STANDARD.encode(digest);
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "the hash of page.js is {hash}");
    }

    #[test]
    fn a_document_cannot_add_markup() {
        let evil = "</script><b onclick='x'>\"&";
        let document = json!({
            "info": {"title": evil, "version": evil, "description": evil},
            "servers": [{"url": evil}],
            "tags": [{"name": evil, "description": evil}],
            "paths": {evil: {"get": {
                "operationId": evil, "summary": evil, "description": evil, "tags": [evil], "security": [{evil: []}],
                "parameters": [{"name": evil, "in": evil, "description": evil, "schema": {"type": evil, "format": evil, "enum": [evil], "default": evil}}],
                "requestBody": {"content": {evil: {"schema": {"$ref": format!("#/components/schemas/{evil}")}}}},
                "responses": {evil: {"description": evil, "content": {evil: {"schema": {"const": evil}}}}},
            }}},
            "components": {"schemas": {evil: {"type": "object", "description": evil, "properties": {evil: {"pattern": evil, "description": evil, "examples": [evil]}}}}},
        });
        let shown = page(&document, evil).replace(SCRIPT, "");
        assert!(!shown.contains("<b onclick"), "{shown}");
        assert_eq!(shown.matches("</script>").count(), 1, "{shown}");
        assert!(!shown.contains("onclick='x'"), "{shown}");
    }

    #[test]
    fn examples_are_bounded_also_for_types_that_contain_themselves() {
        let document = json!({"components": {"schemas": {"Tree": {
            "type": "object",
            "properties": {"left": {"$ref": "#/components/schemas/Tree"}, "right": {"$ref": "#/components/schemas/Tree"}, "name": {"type": "string"}},
        }}}});
        let tree = json!({"$ref": "#/components/schemas/Tree"});
        let mut left = MOST_EXAMPLE_VALUES;
        let tree_example = example(&document, &tree, &mut left, 0).expect("an example");
        assert_eq!(tree_example["left"]["name"], "");
        let mut html = String::new();
        show_schema(&mut html, &document, &tree, 0);
        assert!(html.len() < 20_000, "{}", html.len());
    }
}
