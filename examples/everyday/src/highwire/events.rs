//! Events for any number of readers, who resume after a lost connection.

use highwire::sse::LastEventId;
use highwire::topics::{PublishError, Start, Topic, Topics};
use highwire::{App, IntoResponse, State};

fn publish(topics: State<Topics>, text: String) -> Result<(), PublishError> {
    topics.publish("news", text).map(drop)
}

fn news(topics: State<Topics>, last: LastEventId) -> impl IntoResponse {
    topics.events("news", Start::Next, last)
}

pub fn app() -> App {
    let topics = Topics::builder().topic("news", Topic::new().history(100)).build();
    App::new().get("/news", news).post("/news", publish).state(topics)
}
