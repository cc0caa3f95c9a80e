//! The library without waiting threads: streams, sinks and a descriptor, which the library's keeper wakes.

use crossdock_format::Format;
use crossdock_nectarine::{
    BatchStream, Error, Event, Publisher, Records, Subscriber, Transport, TypedSink, TypedStream,
};
use crossdock_runtime::{ContextConfig, ContextHandle};
use futures_core::Stream;
use futures_sink::Sink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Udp];

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Flight {
    number: u64,
    name: String,
}

fn flight(number: u64) -> Flight {
    Flight { number, name: format!("{number:0>200}") }
}

fn start(listen: SocketAddr, change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

fn anywhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn publisher(addr: &str, way: Transport) -> Publisher {
    Publisher::builder(addr).transport(way).stream("F").typed::<Flight>().connect().unwrap()
}

fn subscriber(addr: &str, way: Transport) -> Subscriber {
    Subscriber::builder(addr).transport(way).sql("SELECT * FROM F").wait_for_stream(PATIENCE).connect().unwrap()
}

/// The result of `act` on a thread of its own: one that waits without end fails the test.
fn within<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || give.send(act()));
    take.recv_timeout(PATIENCE).expect("an end within 20 s")
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

async fn all<T, S: Stream<Item = Result<T, Error>> + Unpin>(mut stream: S) -> Vec<T> {
    let mut items = Vec::new();
    while let Some(item) = next(&mut stream).await {
        items.push(item.unwrap());
    }
    items
}

async fn put<T, S: Sink<T, Error = Error> + Unpin>(sink: &mut S, item: T) {
    poll_fn(|context| Pin::new(&mut *sink).poll_ready(context)).await.unwrap();
    Pin::new(sink).start_send(item).unwrap();
}

async fn close<T, S: Sink<T, Error = Error> + Unpin>(sink: &mut S) {
    poll_fn(|context| Pin::new(&mut *sink).poll_flush(context)).await.unwrap();
    poll_fn(|context| Pin::new(&mut *sink).poll_close(context)).await.unwrap();
}

#[test]
fn records_into_a_sink_come_out_of_streams_that_end() {
    let (_context, addr) = start(anywhere(), |_| {});
    for way in TRANSPORTS {
        let publisher = publisher(&addr, way);
        let [mut records, batches, values] = [(); 3].map(|()| subscriber(&addr, way));
        // Nothing is there yet: the task waits, and is woken.
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut records).poll_next(&mut context).is_pending());
        let records = std::thread::spawn(|| pollster::block_on(all(records)));
        let batches = std::thread::spawn(|| pollster::block_on(all(BatchStream::new(batches))));
        let values = std::thread::spawn(|| pollster::block_on(all(TypedStream::<Flight, _>::new(values))));
        within(move || {
            pollster::block_on(async {
                let mut sink = TypedSink::new(publisher);
                for number in 0..5000 {
                    put(&mut sink, flight(number)).await;
                }
                close::<Flight, _>(&mut sink).await;
            });
        });
        let (records, batches, values) =
            within(move || (records.join().unwrap(), batches.join().unwrap(), values.join().unwrap()));
        assert_eq!(values, (0..5000).map(flight).collect::<Vec<_>>(), "{way}");
        assert_eq!(records.len(), 5000, "{way}");
        assert_eq!(batches.iter().map(Records::len).sum::<usize>(), 5000, "{way}");
    }
}

#[test]
fn a_sink_waits_for_credit_and_loses_nothing() {
    let (_context, addr) = start(anywhere(), |config| config.queue_bytes = 1 << 20);
    for way in TRANSPORTS {
        let (mut publisher, subscriber) = (publisher(&addr, way), subscriber(&addr, way));
        let mut writer = crossdock_format::typed::RecordWriter::new(&Format::of::<Flight>().unwrap());
        // Nobody takes anything, so that at some number the sink is not ready.
        let mut context = Context::from_waker(Waker::noop());
        let mut count = 0;
        while let Poll::Ready(ready) = Sink::<Vec<u8>>::poll_ready(Pin::new(&mut publisher), &mut context) {
            ready.unwrap();
            let record = writer.write(&flight(count)).unwrap().to_vec();
            Pin::new(&mut publisher).start_send(record).unwrap();
            count += 1;
            assert!(count < 10_000_000, "the sink is ready without end");
        }
        let refused = Pin::new(&mut publisher).start_send(writer.write(&flight(count)).unwrap().to_vec()).unwrap_err();
        assert!(refused.to_string().contains("ready"), "{refused}");
        let values = std::thread::spawn(|| pollster::block_on(all(TypedStream::<Flight, _>::new(subscriber))));
        let last = flight(count);
        within(move || {
            pollster::block_on(async {
                let mut sink = TypedSink::new(&mut publisher);
                put(&mut sink, last).await;
                close::<Flight, _>(&mut sink).await;
                assert_eq!(publisher.finish().unwrap().records, count + 1);
            });
        });
        let values = within(move || values.join().unwrap());
        assert!(values.into_iter().eq((0..=count).map(flight)), "{way}");
    }
}

#[test]
fn a_task_that_waits_is_woken_by_a_daemon_that_comes_back() {
    for way in TRANSPORTS {
        let (context, addr) = start(anywhere(), |_| {});
        let listen = context.local_addr();
        // It does not come back: the stream would end with it.
        let builder = Publisher::builder(&addr).transport(way).stream("F").typed::<Flight>().reconnect(false);
        let (_first, mut subscriber) = (builder.connect().unwrap(), subscriber(&addr, way));
        let (give, events) = mpsc::channel();
        subscriber.on_event(move |event| give.send(event).unwrap());
        assert!(Pin::new(&mut subscriber).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let waiting = std::thread::spawn(|| pollster::block_on(all(TypedStream::<Flight, _>::new(subscriber))));
        context.stop().unwrap();
        let (again, addr) = start(listen, |_| {});
        let event = events.recv_timeout(PATIENCE);
        assert!(matches!(event, Ok(Event::Reconnected)), "{way}: {event:?}");
        let again = within(move || {
            while again.subscriptions().unwrap().is_empty() {
                std::thread::yield_now();
            }
            again
        });
        let mut second = publisher(&addr, way);
        second.send(&flight(7)).unwrap();
        second.finish().unwrap();
        assert_eq!(within(move || waiting.join().unwrap()), [flight(7)], "{way}");
        again.stop().unwrap();
    }
}

#[test]
fn the_error_that_ends_a_stream_is_its_last_item() {
    let (context, addr) = start(anywhere(), |_| {});
    let _publisher = publisher(&addr, Transport::Udp);
    let builder = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM F").reconnect(false);
    let mut subscriber = builder.connect().unwrap();
    assert!(Pin::new(&mut subscriber).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    let ended = std::thread::spawn(move || {
        pollster::block_on(async {
            let error = next(&mut subscriber).await.unwrap().map(drop).unwrap_err();
            (error, next(&mut subscriber).await.is_none())
        })
    });
    context.stop().unwrap();
    let ended = within(move || ended.join().unwrap());
    assert!(matches!(ended, (Error::Closed(_) | Error::Lost { .. }, true)), "{ended:?}");
}

/// Ends a link when it is woken.
struct Ends(Mutex<Option<Subscriber>>, mpsc::Sender<()>);

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take().unwrap());
        self.1.send(()).unwrap();
    }
}

#[test]
fn a_task_may_end_its_link_when_it_is_woken() {
    let (_context, addr) = start(anywhere(), |_| {});
    for way in TRANSPORTS {
        let (mut publisher, mut subscriber) = (publisher(&addr, way), subscriber(&addr, way));
        let (give, ended) = mpsc::channel();
        let ends = Arc::new(Ends(Mutex::new(None), give));
        let waker = Waker::from(Arc::clone(&ends));
        // Once more, as a task does that has moved to another executor: only the last waker is woken.
        assert!(Pin::new(&mut subscriber).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(Pin::new(&mut subscriber).poll_next(&mut Context::from_waker(&waker)).is_pending());
        *ends.0.lock().unwrap() = Some(subscriber);
        publisher.send(&flight(1)).unwrap();
        publisher.flush().unwrap();
        ended.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn a_descriptor_is_readable_when_there_is_something_to_be_taken() {
    let (_context, addr) = start(anywhere(), |_| {});
    for way in TRANSPORTS {
        let (mut publisher, mut subscriber) = (publisher(&addr, way), subscriber(&addr, way));
        assert!(subscriber.try_next_event().unwrap().is_none());
        let descriptor = subscriber.descriptor().unwrap();
        let wait = |timeout: Duration| {
            let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 };
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
        };
        assert!(wait(PATIENCE), "a thread that has not looked yet looks first");
        assert!(subscriber.try_next_event().unwrap().is_none());
        let mut found = Vec::new();
        for round in 0..3 {
            publisher.send(&flight(round)).unwrap();
            publisher.flush().unwrap();
            while found.len() as u64 <= round {
                assert!(wait(PATIENCE), "{way}: {} records", found.len());
                while let Some(event) = subscriber.try_next_event().unwrap() {
                    if let Event::Records(records) = event {
                        found.extend(records.iter().map(|record| format!("{:?}", record.get(0))));
                    }
                }
            }
        }
        assert_eq!(found, ["Uint(0)", "Uint(1)", "Uint(2)"], "{way}");
        // A caller that waits on a thread after that is heard as well.
        publisher.send(&flight(3)).unwrap();
        publisher.finish().unwrap();
        let rest = within(move || subscriber.typed::<Flight>().collect::<Result<Vec<_>, _>>().unwrap());
        assert_eq!(rest, [flight(3)], "{way}");
    }
}
