//! `crossdock events`: what happened on the platform, and as it happens.

use crossdock_runtime::info::EventInfo;

use crate::cli::Events;
use crate::failure::{Failure, Outcome};
use crate::lists::{client, objects};
use crate::signals::Interrupt;
use crate::{http, out};

/// `crossdock events`.
pub(crate) fn run(arguments: &Events) -> Outcome {
    let Events { follow, after, list } = arguments;
    if *follow {
        let interrupt = Interrupt::install()?;
        interrupt.arm();
        let json = list.json;
        return client(list)?.follow(&format!("/v1/events?after={after}&follow=true"), &interrupt, move |line| {
            let event: EventInfo = serde_json::from_slice(line)
                .map_err(|error| Failure::failed(format!("an event cannot be read: {error}")))?;
            if json { out::print_json(&event) } else { out::print(text(&event)) }
        });
    }
    let http::Events { events } = client(list)?.get(&format!("/v1/events?after={after}"))?;
    if list.json {
        return objects(&events);
    }
    if events.is_empty() {
        out::say("no events");
    }
    out::print(events.iter().map(text).collect::<String>())
}

/// An event in a line, with its number and when it was.
fn text(event: &EventInfo) -> String {
    format!("{} #{} {}\n", time(event.at_ms, "%Y-%m-%dT%H:%M:%S%.3fZ"), event.number, what(event))
}

/// An event in a line, for a reader of those before it: of the time only that of the day.
pub(crate) fn brief(event: &EventInfo) -> String {
    format!("{} {}", time(event.at_ms, "%H:%M:%S"), what(event))
}

fn what(event: &EventInfo) -> String {
    let about = match (&event.handler, &event.context) {
        (Some(handler), Some(context)) => format!(" {handler} @{context}"),
        (Some(handler), None) => format!(" {handler}"),
        (None, Some(context)) => format!(" {context}"),
        (None, None) => String::new(),
    };
    let text = format!("{}{about}: {}", event.kind, event.text);
    // Several lines in one, without what would play tricks on the terminal.
    let words = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// A time of the world's clock (UTC), as a pattern says.
pub(crate) fn time(at_ms: u64, pattern: &str) -> String {
    let time = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| at_ms.to_string(), |time| time.strftime(pattern).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_that_plays_no_tricks() {
        let mut event = EventInfo {
            number: 7,
            at_ms: 1_700_000_000_123,
            kind: "moved".into(),
            handler: Some("late\u{1b}".into()),
            context: Some("g-core-0".into()),
            text: "c-core-0 has lost\n   its headroom".into(),
        };
        let wanted = "2023-11-14T22:13:20.123Z #7 moved late @g-core-0: c-core-0 has lost its headroom\n";
        assert_eq!(text(&event), wanted);
        assert_eq!(brief(&event), "22:13:20 moved late @g-core-0: c-core-0 has lost its headroom");
        (event.handler, event.context, event.at_ms) = (None, None, u64::MAX);
        assert_eq!(text(&event), format!("{} #7 moved: c-core-0 has lost its headroom\n", u64::MAX));
    }
}
