//! The sessions of a context as the nodes that end in them see them, and what follows when such a node has run: the
//! queue's bound, reports to the subscriber, ends of streams.

use crate::context::Context;
use crate::graph::Graph;
use crate::graph::edge::Queued;
use crate::graph::node::Event;
use crate::graph::run::Outcome;
use crate::graph::session::{Egress, Room, Sent, SessionRun, SessionStep};
use crate::graph::spill::Spill;
use crate::managers::request::EventKind;
use crate::net::Net;
use crate::net::queues::MOST_PACKETS;
use crate::net::sink::SessionSink;
use crate::streams::Streams;
use crate::subscriptions::Subscriptions;
use crossdock_engine::Sink;
use crossdock_mailbox::host::HostInterface;
use crossdock_transport::handshake::Close;
use crossdock_transport::{ControlMessage, MAX_MESSAGE_BYTES, Notice};

/// The parts of a context that have to do with its sessions' queues.
pub(crate) struct Sessions<'a> {
    /// The subscriptions, with their open packets.
    pub(crate) subscriptions: &'a mut Subscriptions,
    /// The peers, with their queues.
    pub(crate) net: &'a mut Net,
    /// The memory that attached clients share.
    pub(crate) host: &'a mut HostInterface,
}

/// A session that is to end because of the queue of one of its subscriptions.
pub(crate) struct QueueEnd {
    /// Its peer.
    pub(crate) peer: usize,
    /// The reason that it is sent.
    pub(crate) close: Close,
}

impl Egress for Sessions<'_> {
    #[inline]
    fn room(&mut self, key: usize, bytes: usize) -> Room {
        let found = self.subscriptions.present(key);
        let room = found.and_then(|s| self.net.room((s.peer(), s.stream()), s.waits_for_room(), bytes, self.host));
        room.unwrap_or(Room::Packets(MOST_PACKETS))
    }

    #[inline]
    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        let (batch, format, longest) = (run.batch, run.format, run.longest);
        let mut is_shared = false;
        let mut sent = self.send(key, (format, longest), spill, |sink| {
            let outcome = run.into_sink(sink);
            is_shared = outcome == Outcome::Whole && sink.take_whole(batch);
            outcome
        });
        if is_shared {
            sent.records += self.pass_whole(key, batch);
        }
        sent
    }

    #[cold]
    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent {
        self.send(key, (rows.format, MAX_MESSAGE_BYTES), again, |sink| {
            rows.rows().for_each(|row| sink.push(row));
            Outcome::Made
        })
    }
}

impl Sessions<'_> {
    /// Sends what `push` puts into a subscription's sink, which takes records of a format and a longest length.
    #[inline]
    fn send(
        &mut self,
        key: usize,
        of: (u64, usize),
        spill: &mut Spill,
        push: impl FnOnce(&mut SessionSink<'_>) -> Outcome,
    ) -> Sent {
        let nothing = Sent { outcome: Outcome::Made, records: 0, bytes: 0, no_buffer: 0, too_long: 0 };
        let Some(subscription) = self.subscriptions.present_mut(key) else { return nothing };
        let (was_open, to) = (subscription.opened_ns().is_some(), subscription.recipient());
        let (peer, output) = (subscription.peer(), subscription.packet());
        let Some(mut sink) = self.net.sink(peer, to, output, of, spill, self.host) else { return nothing };
        let outcome = push(&mut sink);
        let SessionSink { taken: records, bytes, no_buffer, too_long, .. } = sink;
        if !was_open && subscription.opened_ns().is_some() {
            self.subscriptions.note_opened(key);
        }
        self.net.note_sent(peer, records);
        Sent { outcome, records, bytes, no_buffer, too_long }
    }

    /// A whole batch joins the queue of a subscription over packets by reference; its records.
    fn pass_whole(&mut self, key: usize, batch: &Queued) -> u64 {
        let Some(subscription) = self.subscriptions.present(key) else { return 0 };
        self.net.pass_whole(subscription.peer(), batch.shared(), subscription.recipient())
    }
}

impl Context {
    /// The queues of its sessions, with the streams and the graph.
    #[inline]
    pub(crate) fn sessions(&mut self) -> (Sessions<'_>, &Streams, &mut Graph) {
        let Context { subscriptions, net, host, streams, graph, .. } = self;
        (Sessions { subscriptions, net, host: host.interface_mut() }, streams, graph)
    }

    /// Lets the nodes of sessions run, as far as their sessions and the buffers have room for what comes of it.
    pub(crate) fn serve_sessions(&mut self) {
        loop {
            // The graph's findings about records that are to be converted.
            while let Some(event) = self.graph.next_event() {
                match event {
                    Event::Unroutable { key, format } => self.note_missed(key, format),
                    Event::Lost { key } => self.check_queue(key),
                }
            }
            let now_ns = self.net.now_ns();
            let mut sessions = Sessions {
                subscriptions: &mut self.subscriptions,
                net: &mut self.net,
                host: self.host.interface_mut(),
            };
            // From here on subscriptions may end.
            match self.graph.next_session(now_ns, &mut sessions, &mut self.workspace) {
                Some(SessionStep::Ran(key)) => self.check_queue(key),
                Some(SessionStep::Failed(key)) => self.fail_query(key),
                Some(SessionStep::Ended(key, publishers, lost)) => self.report_end(key, publishers, lost),
                Some(SessionStep::StateLost(key, loss)) => self.end_reading(key, loss),
                Some(SessionStep::Converted { stream, chain, lost, has_failed }) => {
                    let converted = (chain, lost, has_failed);
                    self.streams.note_converted(stream as usize, converted, &mut self.net, &self.to_managers);
                }
                None => return,
            }
        }
    }

    /// A subscription's query has panicked, which is a flaw of the daemon: it sees no more records, and nobody else
    /// notices.
    #[cold]
    pub(crate) fn fail_query(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        let message = "the query failed on a record because of a bug in the daemon: its records are dropped".to_owned();
        let text = format!("the query `{}`: {message}", subscription.select().sql());
        self.send_control(peer, &Notice::Unreadable { subscription: number, message }.into());
        self.note_event(Some((EventKind::Failed, text)));
        self.check_queue(key);
    }

    /// Notifies a subscription that a publisher has stopped, after the records that came.
    pub(crate) fn report_end(&mut self, key: usize, publishers: u32, lost: u32) {
        let (mut sessions, streams, graph) = self.sessions();
        sessions.flush(key);
        if let Some(QueueEnd { peer, close }) = sessions.settle_queue(key, graph) {
            return self.remove_peer(peer, "queue_full", Some(close));
        }
        sessions.note_losses(key);
        sessions.report_dropped(key, true);
        sessions.report_position(key, true, streams);
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        let notice = Notice::StreamEnded { subscription: number, publishers, lost };
        self.send_control(peer, &ControlMessage::Notice(notice));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use crate::graph::node::Instance;
    use crate::{ContextConfig, ContextHandle};
    use crossdock_engine::{Handler, HandlerCounters, Sink, Verdict};
    use crossdock_format::{Format, RecordBuilder, Value};
    use crossdock_mailbox::{Batch, Selection};
    use crossdock_nectarine::{DropCause, Event, Publisher, Subscriber, Transport};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::panic::resume_unwind;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);
    /// The number of the record at which [`Flawed`] panics.
    const AT: i64 = 500;
    const FLAWED: &str = "SELECT * FROM N WHERE n >= 0";

    /// In place of a query that takes all records: one with a flaw of the daemon's.
    #[derive(Default)]
    struct Flawed(HandlerCounters);

    impl Handler for Flawed {
        fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
            self.0.records_in += selection.len() as u64;
            let is_it = |index| batch.record(index)[8..16] == AT.to_le_bytes();
            if selection.into_iter().any(is_it) {
                // Without a message.
                resume_unwind(Box::new("as the test wants"));
            }
            self.0.passed += selection.len() as u64;
            Verdict::Forward
        }

        fn counters(&self) -> HandlerCounters {
            self.0
        }
    }

    fn publisher_of(addr: &str, format: &Format) -> Publisher {
        Publisher::builder(addr).transport(Transport::Udp).stream("N").format(format).connect().unwrap()
    }

    fn publish(publisher: &mut Publisher, numbers: std::ops::Range<i64>) {
        let mut row = RecordBuilder::new(publisher.format());
        for number in numbers {
            row.clear();
            row.set(0, Value::Int(number)).unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
        }
        publisher.flush().unwrap();
    }

    /// The events that a subscriber got up to the end of its stream.
    #[derive(Default)]
    struct Got {
        numbers: Vec<i64>,
        failed: u64,
        unreadable: Vec<String>,
    }

    impl Got {
        /// Takes one more event. Whether the stream has ended with it.
        fn take(&mut self, subscriber: &mut Subscriber) -> bool {
            match subscriber.next_event(Some(PATIENCE)).unwrap().expect("an event within 20 s") {
                Event::Records(records) => self.numbers.extend(records.iter().map(|record| match record.get(0) {
                    Value::Int(number) => number,
                    other => panic!("{other:?}"),
                })),
                Event::Dropped { records, cause, reason } => {
                    assert_eq!(cause, DropCause::QueryFailed, "{reason}");
                    self.failed += records;
                }
                Event::Unreadable { message } => self.unreadable.push(message),
                Event::StreamEnded { publishers_left: 0, .. } => return true,
                _ => {}
            }
            false
        }
    }

    /// Has a handler that panics run in the place of a subscription's: the oldest with its query.
    fn spoil(context: &ContextHandle, format: &Format) {
        let id = format.id().0;
        let spoilt = context.inside().0[0].run(move |context| {
            let found = context.subscriptions.iter().find(|(_, one)| one.asked().sql() == FLAWED);
            let key = found.map(|(key, _)| key)?;
            let handler = Some(Box::<Flawed>::default() as Box<dyn Handler>);
            let flawed = Instance { stream: None, format: id, handler, output: id };
            context.graph.update_session(key, &mut vec![flawed], |_| true);
            Some(())
        });
        assert_eq!(spoilt.unwrap(), Some(()));
    }

    #[test]
    fn a_subscriptions_query_that_panics_takes_that_subscription_and_nothing_else() {
        let mut config =
            ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
        config.platform.contexts.clear();
        let (context, format) = (ContextHandle::start(config).unwrap(), Format::parse_schema("n i64").unwrap());
        let addr = context.local_addr().to_string();
        let mut publisher = publisher_of(&addr, &format);
        let subscribe = |sql: &str| Subscriber::builder(&addr).transport(Transport::Udp).sql(sql).connect().unwrap();
        // Those of the same text have nodes of their own.
        let mut flawed = subscribe(FLAWED);
        let others = ["SELECT * FROM N", FLAWED, "SELECT n FROM N WHERE n < 2000", FLAWED].map(subscribe);
        let readers = others.map(|mut other| {
            std::thread::spawn(move || {
                let mut got = Got::default();
                while !got.take(&mut other) {}
                got
            })
        });
        let mut got = Got::default();
        publish(&mut publisher, 0..100);
        while got.numbers.len() < 100 {
            assert!(!got.take(&mut flawed));
        }
        spoil(&context, &format);
        publish(&mut publisher, 100..1000);
        // Its subscriber is notified at once, not at the end.
        while got.unreadable.is_empty() {
            assert!(!got.take(&mut flawed));
        }
        publish(&mut publisher, 1000..2000);
        publisher.finish().unwrap();
        while !got.take(&mut flawed) {}
        for reader in readers {
            let Got { numbers, failed, unreadable } = reader.join().unwrap();
            assert!(numbers.iter().copied().eq(0..2000), "{} records", numbers.len());
            assert_eq!((failed, unreadable.len()), (0, 0));
        }
        // The batches before the one with the record came, and of all others there is an account.
        let Got { numbers, failed, unreadable } = got;
        assert!(numbers.iter().copied().eq(0..numbers.len() as i64) && numbers.len() as i64 <= AT, "{numbers:?}");
        assert_eq!(numbers.len() as u64 + failed, 2000);
        assert!(unreadable.len() == 1 && unreadable[0].contains("because of a bug in the daemon"), "{unreadable:?}");
        let faults = |context: &mut crate::context::Context| -> Vec<u64> {
            context
                .subscriptions
                .iter()
                .map(|(_, one)| one.gauges().faults.get())
                .filter(|faults| *faults > 0)
                .collect()
        };
        // The other subscribers have gone, or are going.
        assert_eq!(context.inside().0[0].run(faults).unwrap(), [1]);
        let info = context.subscriptions().unwrap().into_iter().find(|info| info.dropped > 0).unwrap();
        assert_eq!((info.sql.as_str(), info.dropped_by), (FLAWED, vec![("query_failed".to_owned(), failed)]));
        let events = || context.manager().events(0).unwrap();
        while !events().iter().any(|event| event.kind == "failed" && event.text.contains(FLAWED)) {
            std::thread::yield_now();
        }
        // A handler's panic is none of its context's.
        assert_eq!((context.manager().contexts().unwrap()[0].panics, context.has_ended()), (0, false));
        // Another subscription with the same query is another chance.
        let (mut publisher, mut again) = (publisher_of(&addr, &format), subscribe(FLAWED));
        publish(&mut publisher, 0..2000);
        let mut got = Got::default();
        while got.numbers.len() < 2000 {
            assert!(!got.take(&mut again));
        }
        context.stop().unwrap();
    }
}
