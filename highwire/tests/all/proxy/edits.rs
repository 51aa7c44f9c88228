//! What a proxy changes in requests and responses.

use crate::served::{serve, stop};
use highwire::client::{Client, Error, block_on};
use highwire::middleware::RequestIds;
use highwire::proxy::Proxy;
use highwire::{App, HeaderName, HeaderValue, Request, Response, StatusCode, header};

/// Answers with the target and the fields, and has fields that the proxy changes.
fn show(request: &Request<'_>) -> Response {
    let mut text = format!("{}\n", request.target());
    for (name, value) in request.headers() {
        text += &format!("{}: {}\n", name.to_ascii_lowercase(), String::from_utf8_lossy(value));
    }
    Response::text(text)
        .with_header(HeaderName::from_static("x-powered-by"), HeaderValue::from_static("upstream"))
        .with_header(HeaderName::from_static("x-request-id"), HeaderValue::from_static("of-the-upstream"))
}

#[test]
fn fields_and_paths_change_on_the_way() {
    let (upstream, url) = serve(App::new().any("/{*rest}", show));
    let name = HeaderName::from_static;
    let proxy = Proxy::to([&*url])
        .expect("a proxy")
        .set_header(name("x-from"), HeaderValue::from_static("proxy"))
        .set_header(header::HOST, HeaderValue::from_static("inner.example"))
        .remove_header(header::COOKIE)
        .set_response_header(name("x-served-by"), HeaderValue::from_static("highwire"))
        .remove_response_header(name("x-powered-by"))
        .on_request(|request| {
            if request.client_path() == "/secret" {
                return Err(Response::error(StatusCode::FORBIDDEN, "no\n"));
            }
            let path = format!("/v2{}", request.path_and_query());
            request.set_path_and_query(path);
            Ok(())
        })
        .on_response(|response| {
            response.add_header(HeaderName::from_static("x-seen"), HeaderValue::from_static("yes"))
        });
    let (front, url) = serve(App::new().proxy("/", proxy).with(RequestIds::new()));
    let asked = block_on(async {
        let client = Client::new();
        let request = client.get(&format!("{url}/a?b=c")).header("cookie", "id=1").header("x-from", "client");
        let response = request.header("x-request-id", "of-the-client").send().await?;
        let all = |name: &str| response.headers().get_all(name).iter().cloned().collect::<Vec<_>>();
        let id = all("x-request-id");
        assert_eq!(id.len(), 1, "{id:?}");
        let id = id[0].to_str().expect("text").to_string();
        assert_eq!((response.header("x-served-by"), response.header("x-seen")), (Some("highwire"), Some("yes")));
        assert_eq!(response.header("x-powered-by"), None);
        let text = response.text().await?;
        assert!(text.starts_with("/v2/a?b=c\n"), "{text}");
        for line in ["host: inner.example", "x-from: proxy", &format!("x-request-id: {id}")] {
            assert_eq!(text.lines().filter(|its| *its == line).count(), 1, "{line} in {text}");
        }
        assert!(!text.contains("cookie:") && !text.contains("of-the-client"), "{text}");
        let refused = client.get(&format!("{url}/secret")).send().await?;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([front, upstream]);
}

#[test]
fn a_changed_target_cannot_split_the_request() {
    let (upstream, url) = serve(App::new().any("/{*rest}", show));
    let proxy = Proxy::to([&*url]).expect("a proxy").on_request(|request| {
        request.set_path_and_query("/ HTTP/1.1\r\nX: y\r\n\r\nGET /second");
        Ok(())
    });
    let (front, url) = serve(App::new().proxy("/", proxy));
    let asked =
        block_on(async { Client::new().get(&format!("{url}/")).send().await.map(|response| response.status()) });
    assert_eq!(asked.expect("a worker").expect("a response"), StatusCode::BAD_REQUEST);
    stop([front, upstream]);
}
