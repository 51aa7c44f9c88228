//! Typed resources of a REST API.

use crate::served::{serve, stop};
use highwire::client::rest::Resource;
use highwire::client::{Client, Error, block_on};
use highwire::{App, Form, FromRequest, Json, Path, RawQuery, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    text: String,
}

/// Returns the value of `Authorization`.
struct Authorized(String);

impl FromRequest for Authorized {
    fn from_request(request: &mut Request<'_>) -> Result<Authorized, Response> {
        Ok(Authorized(String::from_utf8_lossy(request.header("authorization").unwrap_or_default()).into_owned()))
    }
}

fn note(text: &str) -> Note {
    Note { text: text.to_string() }
}

#[test]
fn resources_have_typed_values() {
    let app = App::new()
        .post("/v1/notes", |Json(note): Json<Note>| (StatusCode::CREATED, Json(note)))
        .post("/v1/forms", |Form(note): Form<Note>| Json(note))
        .get("/v1/notes", |RawQuery(query): RawQuery| Json(Note { text: query.to_string() }))
        .get("/v1/notes/{key}", |Path(key): Path<String>| match &*key {
            "gone" => Err(StatusCode::GONE),
            "broken" => Err(StatusCode::INTERNAL_SERVER_ERROR),
            _ => Ok(Json(Note { text: key })),
        })
        .put("/v1/notes/{key}", |Path(key): Path<String>, Json(note): Json<Note>| format!("{key}: {}", note.text))
        .patch("/v1/notes/{key}", |Json(note): Json<Note>| note.text)
        .delete("/v1/notes/{key}", || StatusCode::NO_CONTENT)
        .get("/v1/me", |Authorized(value): Authorized| Json(value));
    let (handle, url) = serve(app);
    let api = Resource::new(Client::new(), &format!("{url}/v1/"));
    let asked = block_on(async {
        let notes = api.at("notes");
        assert_eq!(notes.post::<Note>(&note("milk")).await?, note("milk"));
        assert_eq!(api.clone().as_forms().at("forms").post::<Note>(&note("a b&c")).await?, note("a b&c"));
        assert_eq!(notes.clone().query("page", 2).query("q", "a&b").get::<Note>().await?, note("page=2&q=a%26b"));
        for key in ["7", "a/b?c#d", "\u{e4} %2f", "..."] {
            assert_eq!(notes.at(key).get::<Note>().await?, note(key));
        }
        for key in ["", ".", ".."] {
            // Such a key must not lead to the collection.
            assert!(notes.at(key).delete().await.expect_err("another resource").is_builder(), "{key:?}");
        }
        assert_eq!(notes.at("gone").find::<Note>().await?, None);
        assert_eq!(notes.at(1).find::<Note>().await?, Some(note("1")));
        let broken = notes.at("broken").find::<Note>().await.expect_err("an error status");
        assert_eq!(broken.status(), Some(StatusCode::INTERNAL_SERVER_ERROR));
        assert!(notes.at(1).get::<u32>().await.expect_err("another type").is_decode());
        assert_eq!(notes.at(7).put(&note("x")).await?.text().await?, "7: x");
        assert_eq!(notes.at(7).patch(&note("y")).await?.text().await?, "y");
        assert_eq!(notes.at(7).delete().await?.status(), StatusCode::NO_CONTENT);
        assert_eq!(api.clone().bearer("t").at("me").get::<String>().await?, "Bearer t");
        assert_eq!(api.clone().basic_auth("u", Some("p")).at("me").get::<String>().await?, "Basic dTpw");
        assert!(!format!("{:?}", api.clone().bearer("secret")).contains("secret"));
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([handle]);
}
