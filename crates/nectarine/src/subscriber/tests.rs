//! The subscriber's treatment of arrivals.

use super::*;
use crossdock_format::{FieldSpec, FieldType};
use std::net::UdpSocket;

fn activity(publishers: u32, records: u64) -> Activity {
    Activity { publishers: Some(publishers), records, latest_ms_ago: None }
}

/// The events after a lost connection.
fn events_after(subscriber: &mut Subscriber, activity: Activity) -> Vec<Event> {
    let format = Format::natural([FieldSpec::new("a", FieldType::U64)]).unwrap().describe();
    let inbox = [Incoming::Reconnected, Incoming::Subscribed { format, activity, position: None, number: Some(4) }];
    subscriber.client.shared.lock().link.inbox.extend(inbox);
    std::iter::from_fn(|| subscriber.next_event(Some(Duration::ZERO)).unwrap()).collect()
}

#[test]
fn an_end_that_was_reached_while_the_connection_was_lost_is_reported() {
    // Nobody answers there, so nothing but what the test brings comes.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let settings = Settings { transport: Transport::Udp, ..Settings::new(addr) };
    let subscriber = |then| {
        let mut subscriber = Subscriber::new(Client::new(settings.clone()).unwrap());
        subscriber.activity = then;
        events_after(&mut subscriber, activity(1, 7));
        subscriber.activity = then;
        subscriber
    };
    let is_end = |event: &Event| matches!(event, Event::StreamEnded { publishers_left: 0, finished: false, .. });
    for (then, now) in [(activity(1, 0), activity(0, 0)), (activity(0, 5), activity(0, 6))] {
        let mut subscriber = subscriber(then);
        let events = events_after(&mut subscriber, now);
        assert!(
            matches!(&events[..], [Event::Reconnected, Event::Missed { records: None, .. }, end] if is_end(end)),
            "{events:?}"
        );
        // Once: the stream has ended.
        let events = events_after(&mut subscriber, now);
        assert!(matches!(&events[..], [Event::Reconnected, Event::Missed { records: None, .. }]), "{events:?}");
    }
    // There is a publisher; or the first one is still waited for.
    for (then, now) in [(activity(1, 0), activity(1, 0)), (activity(0, 5), activity(0, 5))] {
        let events = events_after(&mut subscriber(then), now);
        assert!(matches!(&events[..], [Event::Reconnected, Event::Missed { records: None, .. }]), "{events:?}");
    }
}
