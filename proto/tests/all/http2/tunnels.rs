//! HTTP/2 tunnels: CONNECT without a protocol (RFC 9113 section 8.5) and with one (RFC 8441), in both roles.

use crate::wire::{DATA, END, LARGE, RESET, Side};
use crate::wire::{exchange, frame, frames, headers, opening, settings, ways};
use highwire_proto::Role;
use highwire_proto::h2::{Bounds, Request};

#[test]
fn an_extended_connect_opens_a_tunnel() {
    let begin = |client: &mut Side| {
        client.receive(&settings(&[(8, 1)]));
        let (method, path, protocol) = ("CONNECT", "/chat", Some("websocket"));
        let request = Request { method, scheme: "https", authority: "h", path, protocol, ends: false };
        let stream = client.connection.send_request(request, &mut client.out, |_| {}).expect("the peer allows it");
        client.send(stream, b"ping", false);
    };
    let (mut client, mut server) = (Side::client(), Side::server());
    begin(&mut client);
    let (to_server, _) = exchange(&mut client, &mut server, usize::MAX);
    assert_eq!(client.words, ["1 200 Unknown"]);
    for way in ways(&to_server) {
        let mut server = Side::server();
        way.iter().for_each(|piece| server.receive(piece));
        assert_eq!(server.words, ["1 CONNECT /chat for websocket Unknown", "1 end ping"]);
        let tunnel = frames(&server.out).into_iter().rfind(|frame| frame.0 == DATA);
        assert_eq!(tunnel, Some((DATA, 0, 1, &b"hi"[..])), "our direction stays open");
    }
}

/// Returns a client's request for a tunnel.
fn tunnel(protocol: Option<&str>) -> Request<'_> {
    let path = if protocol.is_some() { "/chat" } else { "" };
    Request { method: "CONNECT", scheme: "https", authority: "h:1", path, protocol, ends: false }
}

#[test]
fn a_tunnel_has_data_both_ways_and_ends_on_each_side() {
    for (protocol, seen) in [(None, "1 CONNECT h:1 Unknown"), (Some("x"), "1 CONNECT /chat for x Unknown")] {
        let (mut client, mut server) = (Side::client(), Side::server());
        exchange(&mut client, &mut server, 1 << 20);
        let ours =
            client.connection.send_request(tunnel(protocol), &mut client.out, |_| {}).expect("the request is allowed");
        assert!(!client.connection.is_tunnel(ours));
        exchange(&mut client, &mut server, 1 << 20);
        let theirs = server.connection.streams().next().expect("the stream is open");
        assert!(client.connection.is_tunnel(ours) && server.connection.is_tunnel(theirs));
        // The body is larger than the windows of either side allow at once.
        server.send(theirs, &[b's'; LARGE], false);
        exchange(&mut client, &mut server, 1_000);
        client.send(ours, &[b'c'; LARGE], false);
        exchange(&mut client, &mut server, 1_000);
        assert_eq!(server.words, [seen.into(), format!("1 end <{LARGE} bytes>")]);
        assert_eq!(client.words, ["1 200 Unknown".into(), format!("1 end <{} bytes>", LARGE + 2)]);
        assert_eq!((client.connection.open_streams(), server.connection.open_streams()), (0, 0));
    }
}

#[test]
fn a_tunnel_has_no_length_and_no_trailers() {
    use highwire_proto::Error::{LengthMismatch, NotNow};
    let asks = [(":method", "CONNECT"), (":authority", "h:1")];
    let mut server = Side::server();
    server.receive(&[opening(), headers(0, 1, &asks)].concat());
    let stream = server.connection.streams().next().expect("the stream is open");
    assert_eq!(server.connection.send_trailers(stream, &mut server.out, |_| {}), Err(NotNow));
    server.receive(&headers(END, 1, &[("x", "y")]));
    assert_eq!(server.words, ["1 CONNECT h:1 Unknown", "1 reset Protocol"]);
    // This connection has no `Side`, which would respond automatically.
    let (mut head, mut fields, limits, mut out) =
        (highwire_proto::Head::default(), Vec::new(), server.limits.clone(), Vec::new());
    let mut connection = highwire_proto::h2::Connection::new(Role::Server, Bounds::default(), &limits, &mut out);
    let mut window = &[opening(), headers(0, 1, &asks)].concat()[..];
    let mut lent = highwire_proto::h2::Lent { head: &mut head, fields: &mut fields, out: &mut out, limits: &limits };
    let stream = loop {
        let received = connection.receive(window, &mut lent).expect("a request");
        window = &window[received.consumed..];
        if let highwire_proto::h2::Event::Head(stream, _) = received.event {
            break stream;
        }
    };
    assert_eq!(
        connection.send_response(stream, 200, highwire_proto::Length::Exact(0), &mut out, |_| {}),
        Err(LengthMismatch)
    );
    assert_eq!(connection.send_response(stream, 503, highwire_proto::Length::Exact(2), &mut out, |_| {}), Ok(()));
    assert!(!connection.is_tunnel(stream));
    assert_eq!(connection.send_data(stream, b"no", true, &mut out), Ok(2));

    // A client must not send trailers before the response either, because a 2xx may be on its way.
    let mut client = Side::client();
    let stream = client.connection.send_request(tunnel(None), &mut client.out, |_| {}).expect("the request is allowed");
    assert_eq!(client.connection.send_trailers(stream, &mut client.out, |_| {}), Err(NotNow));

    for (answer, then, seen) in [
        (headers(0, 1, &[(":status", "200"), ("content-length", "1")]), frame(DATA, END, 1, b"abc"), "1 end abc"),
        (headers(0, 1, &[(":status", "204")]), frame(DATA, END, 1, b"abc"), "1 end abc"),
        (headers(0, 1, &[(":status", "200")]), headers(END, 1, &[("x", "y")]), "1 reset Protocol"),
        (headers(0, 1, &[(":status", "200")]), frame(RESET, 0, 1, &[0, 0, 0, 10]), "1 reset Connect"),
        (headers(0, 1, &[(":status", "404")]), headers(END, 1, &[("x", "y")]), "1 end  x=y"),
        (
            headers(0, 1, &[(":status", "404"), ("content-length", "1")]),
            frame(DATA, END, 1, b"abc"),
            "1 reset Protocol",
        ),
    ] {
        for way in ways(&then) {
            let mut client = Side::client();
            client.connection.send_request(tunnel(None), &mut client.out, |_| {}).expect("the request is allowed");
            client.receive(&[settings(&[]), answer.clone()].concat());
            way.iter().for_each(|piece| client.receive(piece));
            assert_eq!(client.words.last().map(String::as_str), Some(seen));
        }
    }
}

#[test]
fn a_request_whose_parts_do_not_fit_is_not_sent() {
    let mut client = Side::client();
    client.receive(&settings(&[(8, 1)]));
    let before = client.out.len();
    for (method, path, protocol) in
        [("GET", "", None), ("GET", "/", Some("x")), ("CONNECT", "/", None), ("CONNECT", "", Some("x"))]
    {
        let request = Request { method, scheme: "https", authority: "h:1", path, protocol, ends: false };
        let sent = client.connection.send_request(request, &mut client.out, |_| {});
        assert_eq!(sent, Err(highwire_proto::Error::InvalidRequest), "{request:?}");
    }
    for protocol in [None, Some("x")] {
        let request = Request { ends: true, path: protocol.map_or("", |_| "/"), ..tunnel(protocol) };
        let sent = client.connection.send_request(request, &mut client.out, |_| {});
        assert_eq!(sent, Err(highwire_proto::Error::InvalidRequest), "{request:?}");
    }
    assert_eq!((client.out.len(), client.connection.open_streams()), (before, 0));
}

#[test]
fn a_protocol_is_asked_for_only_where_the_peer_knows_of_that() {
    let mut client = Side::client();
    let (method, path, protocol) = ("CONNECT", "/chat", Some("websocket"));
    let request = Request { method, scheme: "https", authority: "h", path, protocol, ends: false };
    for before in [settings(&[(8, 0)]), settings(&[])] {
        assert!(!client.connection.takes_protocols());
        assert_eq!(
            client.connection.send_request(request, &mut client.out, |_| {}),
            Err(highwire_proto::Error::NotNow)
        );
        client.receive(&before);
    }
    client.receive(&settings(&[(8, 1)]));
    assert!(client.connection.takes_protocols());
    assert!(client.connection.send_request(request, &mut client.out, |_| {}).is_ok());
}
