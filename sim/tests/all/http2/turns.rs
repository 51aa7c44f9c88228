//! Handlers of one HTTP/2 connection that take long, in virtual time: how they share the turns of their worker.

use crate::peer::{Play, SECOND, Weather, in_all_weathers};
use highwire::{App, Body};
use highwire_proto::h2::Bounds;
use std::cell::Cell;

fn play(app: App, weather: &Weather) -> Play {
    let mut play = Play::new(app, weather);
    play.connect(Bounds { stream_window: 1 << 22, connection_window: 1 << 23, ..Bounds::default() });
    play.settle();
    play
}

/// An app with a handler that is not woken.
fn app() -> App {
    App::new().get("/slow", async || {
        highwire::time::sleep(200 * SECOND).await;
        "slow"
    })
}

#[test]
fn handlers_that_are_woken_together_share_the_turns() {
    const HANDLERS: u32 = 100;
    thread_local! {
        static POLLS: Cell<u32> = const { Cell::new(0) };
    }
    in_all_weathers(|weather| {
        let app = app().get("/works", async || {
            for second in 1..3 {
                highwire::time::sleep(second * SECOND).await;
                POLLS.set(POLLS.get() + 1);
                // More than a turn's allowance.
                highwire_io::sim::work(100_000);
            }
            "worked"
        });
        POLLS.set(0);
        let mut play = play(app, weather);
        // Polls of these take no time.
        for _ in 0..21 {
            play.peers[0].get("/slow");
        }
        let streams: Vec<_> = (0..HANDLERS).map(|_| play.peers[0].get("/works")).collect();
        play.settle();
        for _ in 1..3 {
            play.network.advance(2 * SECOND);
            let mut turns = 0;
            let before = POLLS.get();
            while POLLS.get() < before + HANDLERS {
                let polled = POLLS.get();
                play.worker.turn(Some(play.network.now())).expect("a turn");
                turns += 1;
                // Ten of them take a millisecond, the time for the tasks of a turn.
                assert!(POLLS.get() - polled <= 20, "{} handlers ran in one turn", POLLS.get() - polled);
                assert!(turns < 100 * HANDLERS, "{} handlers have run", POLLS.get() - before);
            }
            play.settle();
        }
        assert_eq!(POLLS.get(), 2 * HANDLERS);
        for stream in streams {
            assert_eq!(play.peers[0].answer(stream).whole(), (200, "worked".to_string()));
        }
        play.end();
    });
}

#[test]
fn a_handler_is_polled_beside_an_upload_that_uses_up_every_turn() {
    in_all_weathers(|weather| {
        let app = app()
            .get("/soon", async || {
                highwire::time::sleep(SECOND).await;
                "soon"
            })
            .post("/works", async |mut body: Body| {
                while let Some(Ok(_)) = body.next().await {
                    // More than a turn's allowance and its reserve.
                    highwire_io::sim::work(300_000);
                }
                "worked"
            });
        let mut play = play(app, weather);
        let soon: Vec<_> = (0..3).map(|_| play.peers[0].get("/soon")).collect();
        let upload = play.peers[0].ask("POST", "/works", &[], false);
        play.settle();
        play.peers[0].push(upload, vec![b'u'; 100_000_000], false);
        for turn in 0..3000 {
            play.peers[0].act();
            play.worker.turn(Some(play.network.now())).expect("a turn");
            if turn == 1000 {
                play.network.advance(2 * SECOND);
            }
        }
        let unsent = play.peers[0].unsent();
        assert!(unsent > 0, "the upload has ended");
        for stream in soon {
            assert_eq!(play.peers[0].answer(stream).whole(), (200, "soon".to_string()));
        }
    });
}
