//! The chat of `highwire demo`, an example of topics: a page, a WebSocket, a history from which a client resumes, and
//! the members of a room. With a broker, several processes share the rooms.

use highwire::topics::{MessageId, SlowReader, Start, SubscribeError, Topic, Topics, TopicsBuilder};
use highwire::ws::{Error, Message, WebSocket, WebSocketSender, WebSocketUpgrade};
use highwire::{App, Query, Response, State};
use serde::{Deserialize, Serialize};
use std::future::poll_fn;

/// The number of messages that each room keeps, all of which a new member gets.
const HISTORY: usize = 100;

/// The most bytes of a message.
const MESSAGE_BYTES: u64 = 2000;

/// The most characters of a member's name, and of a room's.
const NAME_CHARACTERS: usize = 40;

/// The query with which the page opens the WebSocket.
#[derive(Deserialize)]
struct Entry {
    room: String,
    name: String,
    /// The last message that a client has received which connects again.
    after: Option<String>,
}

/// A message to the clients. `id` is missing when it is published.
#[derive(Serialize, Deserialize)]
struct Said {
    #[serde(default)]
    id: String,
    from: String,
    text: String,
}

#[derive(Serialize)]
struct Members<'n> {
    members: &'n [String],
}

/// A further part of a long list of members.
#[derive(Serialize)]
struct More<'n> {
    more: &'n [String],
}

/// The most members in a part of the list, and the most bytes of their names, unless a name is longer.
const LIST_MEMBERS: usize = 100;
const LIST_BYTES: usize = 4096;

/// Returns settings for the topics of the chat. A client that reads too slowly is disconnected; its page connects again
/// and resumes.
pub fn topics() -> TopicsBuilder {
    let rooms = Topic::new().history(HISTORY).slow_reader(SlowReader::Disconnect).format(with_id);
    Topics::builder().topic("chat/+", rooms)
}

/// Adds the ID to a message, so that clients can resume after it.
fn with_id(_: &str, id: MessageId, message: &Message) -> Message {
    let Message::Text(text) = message else { return message.clone() };
    match serde_json::from_str::<Said>(text) {
        Ok(said) => json(&Said { id: id.to_string(), ..said }),
        Err(_) => message.clone(),
    }
}

fn json(value: &impl Serialize) -> Message {
    Message::text(serde_json::to_string(value).unwrap_or_default())
}

/// Adds the chat to an app: its page at `/chat`.
pub fn add(app: App, topics: Topics) -> App {
    app.state(topics).get("/chat", || Response::html(include_str!("chat.html"))).get("/chat/ws", enter)
}

fn enter(upgrade: WebSocketUpgrade, Query(entry): Query<Entry>, State(topics): State<Topics>) -> Response {
    let is_name =
        |name: &str| (1..=NAME_CHARACTERS).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    let is_room = entry.room.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name(&entry.name) || !is_name(&entry.room) || !is_room {
        // A page does not see the status or text of a response that refuses a WebSocket, but it sees a Close frame.
        return upgrade.on_upgrade(async |mut socket: WebSocket| {
            let _ = socket.close(4001, "names have 1 to 40 characters; rooms, of letters, digits and hyphens").await;
            while let Some(Ok(_)) = socket.recv().await {}
        });
    }
    upgrade.max_message_size(MESSAGE_BYTES).on_upgrade(move |socket| chat(socket, entry, Topics::clone(&topics)))
}

async fn chat(socket: WebSocket, entry: Entry, topics: Topics) {
    let (mut sender, mut receiver) = socket.split();
    let room = format!("chat/{}", entry.room);
    let last = entry.after.and_then(|id| id.parse().ok());
    let Ok(_membership) = topics.join(&room, &entry.name, "") else {
        let _ = sender.close(4000, "the room is full").await;
        return;
    };
    if let Err(error) = subscribe(&sender, &topics, &room, last) {
        let _ = sender.close(4002, &error.to_string()).await;
        return;
    }
    if send_members(&sender, &topics, &room).await.is_err() {
        return;
    }
    while let Some(Ok(message)) = receiver.recv().await {
        let Message::Text(text) = message else { continue };
        let said = Said { id: String::new(), from: entry.name.clone(), text: text.to_string() };
        if let Err(error) = topics.publish(&room, json(&said))
            && sender.send(json(&serde_json::json!({ "error": error.to_string() }))).await.is_err()
        {
            return;
        }
    }
}

/// Sends the members of a room: a message with `members`, and further parts of a long list with `more`. Each part is made
/// when there is room for it, so that a client that does not read holds only one, and so that the changes that it gets
/// meanwhile fit the list.
async fn send_members(sender: &WebSocketSender, topics: &Topics, room: &str) -> Result<(), Error> {
    let mut last: Option<String> = None;
    loop {
        poll_fn(|cx| sender.poll_ready(cx)).await?;
        let next = topics.members_after(room, last.as_deref(), LIST_MEMBERS);
        let names: Vec<String> = next.into_iter().map(|member| member.name).collect();
        let part = part(&names);
        let is_last = part.len() == names.len() && names.len() < LIST_MEMBERS;
        sender.try_send(if last.is_none() { json(&Members { members: part }) } else { json(&More { more: part }) })?;
        if is_last {
            return Ok(());
        }
        last = part.last().cloned();
    }
}

/// Returns the first part of a list.
fn part(names: &[String]) -> &[String] {
    let mut bytes = 0;
    let fits = names.iter().take_while(|name| {
        bytes += name.len();
        bytes <= LIST_BYTES
    });
    &names[..fits.count().max(1).min(names.len())]
}

fn subscribe(
    socket: &WebSocketSender,
    topics: &Topics,
    room: &str,
    last: Option<MessageId>,
) -> Result<(), SubscribeError> {
    socket.subscribe(topics, &format!("$presence/{room}"), Start::Next)?;
    socket.subscribe(topics, room, last.map_or(Start::Last(HISTORY), Start::After))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_members_goes_in_parts() {
        let names: Vec<String> = (0..5).map(|number| number.to_string().repeat(LIST_BYTES / 2)).collect();
        assert_eq!(part(&names), &names[..2]);
        assert_eq!(part(&names[3..]), &names[3..]);
        assert_eq!(part(&[]), &[] as &[String]);
        let long = ["x".repeat(2 * LIST_BYTES), "y".to_string()];
        assert_eq!(part(&long), &long[..1]);
    }
}
