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
        out::say("nothing has happened");
    }
    out::print(events.iter().map(text).collect::<String>())
}

/// An event in a line.
fn text(event: &EventInfo) -> String {
    // A text of several lines in one, without what would play tricks on the terminal.
    let plain = |text: &str| {
        text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let about = match (&event.handler, &event.context) {
        (Some(handler), Some(context)) => format!(" {} @{}", plain(handler), plain(context)),
        (Some(handler), None) => format!(" {}", plain(handler)),
        (None, Some(context)) => format!(" {}", plain(context)),
        (None, None) => String::new(),
    };
    format!("{} #{} {}{}: {}\n", time(event.at_ms), event.number, event.kind, about, plain(&event.text))
}

/// `2026-11-22T13:08:01.123Z`.
fn time(at_ms: u64) -> String {
    let time = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| at_ms.to_string(), |time| format!("{time:.3}"))
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
        (event.handler, event.context, event.at_ms) = (None, None, u64::MAX);
        assert_eq!(text(&event), format!("{} #7 moved: c-core-0 has lost its headroom\n", u64::MAX));
    }
}
