//! Records that a publisher takes, whatever becomes of its connection.

use super::*;
#[cfg(feature = "futures")]
use crate::incoming::Answer;
use crossdock_format::{FieldSpec, FieldType, RecordBuilder, Value};
use crossdock_transport::handshake::{Hello, Welcome};
use crossdock_transport::receiver::{Arriving, MAX_ACK_BYTES, Receiver};
use crossdock_transport::{HEADER_BYTES, Header, PacketKind};
use std::net::UdpSocket;

/// A daemon that does nothing but take packets and acknowledge them, when the test asks it to.
struct Daemon {
    socket: UdpSocket,
    client: u32,
    receiver: Receiver<()>,
}

impl Daemon {
    const WINDOW_PACKETS: u32 = 64;

    /// Acknowledges what has come, each packet by itself.
    fn answer(&mut self) {
        let mut packet = [0; 4096];
        while let Ok(len) = self.socket.recv(&mut packet) {
            let header = Header::read(&packet[..len]).unwrap();
            if header.kind != PacketKind::Data {
                continue;
            }
            let (traffic, first_seq) = (header.kind.traffic(), header.seq);
            let run = Arriving { traffic, first_seq, packets: 1, longest_bytes: len, last_bytes: len };
            self.receiver.arrive(run, (), 0, |(), _| {});
            self.receiver.consumed_to(u64::MAX);
            self.receiver.ack_soon();
            let mut payload = [0; MAX_ACK_BYTES];
            let len = self.receiver.poll_ack(0).unwrap().encode(&mut payload);
            self.socket.send(&Header::new(PacketKind::Ack, self.client).packet(&payload[..len]).unwrap()).unwrap();
        }
    }
}

/// A publisher and its daemon, with a session between them, and a record.
fn connected() -> (Publisher, Daemon, Vec<u8>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let settings = Settings { transport: Transport::Udp, ..Settings::new(addr) };
    let mut client = Client::new(settings).unwrap();
    let mut packet = [0; 4096];
    let (len, from) = socket.recv_from(&mut packet).unwrap();
    let hello = Hello::decode(&packet[HEADER_BYTES..len]).unwrap();
    socket.connect(from).unwrap();
    let Hello { nonce, packet_bytes, .. } = hello;
    let window_bytes = Daemon::WINDOW_PACKETS * packet_bytes;
    let welcome = Welcome { nonce, session: 1, packet_bytes, window_bytes };
    socket.send(&welcome.packet(hello.session)).unwrap();
    socket.set_nonblocking(true).unwrap();
    client.wait(None, |inner| inner.link.is_up().then_some(())).unwrap();

    let format = Format::natural([FieldSpec::new("a", FieldType::U64)]).unwrap();
    let mut row = RecordBuilder::new(&format);
    row.set(0, Value::Uint(7)).unwrap();
    let record = row.finish().unwrap().to_vec();
    client.shared.lock().packing =
        Some(Packing::new(STREAM, format.id().0, DeliveryClass::Reliable, Duration::from_secs(1)));
    let publisher = Publisher::new(client, "N".to_owned(), format, DeliveryClass::Reliable);
    let receiver = Receiver::new(packet_bytes as usize, Daemon::WINDOW_PACKETS);
    (publisher, Daemon { socket, client: hello.session, receiver }, record)
}

#[test]
fn a_publisher_that_only_flushes_receives_acks() {
    let (mut publisher, mut daemon, record) = connected();
    for _ in 0..1000 {
        assert!(publisher.try_publish(&record).unwrap());
        publisher.flush().unwrap();
        let units = publisher.client.shared.lock().link.backlog_units();
        assert!(units <= UNACKNOWLEDGED, "{units} super-packets wait for acks that are there");
        daemon.answer();
    }
}

#[test]
fn units_that_wait_for_acks_leave_them_buffers() {
    let (mut publisher, mut daemon, record) = connected();
    let mut published = 0;
    while publisher.try_publish(&record).unwrap() {
        publisher.flush().unwrap();
        published += 1;
    }
    assert!(published > Daemon::WINDOW_PACKETS, "more is packed than the daemon gives credit for");
    let taken = (0..1000).any(|_| {
        daemon.answer();
        publisher.try_publish(&record).unwrap()
    });
    assert!(taken, "nothing could be published any more after {published} records");
}

#[cfg(feature = "futures")]
#[test]
fn a_publisher_that_could_not_finish_goes_on_and_may_finish_again() {
    let (mut publisher, _daemon, record) = connected();
    assert!(publisher.poll_finish(Waker::noop()).is_pending());
    let asked = publisher.finishing.unwrap();
    assert!(matches!(publisher.try_publish(&record), Err(Error::Finished)), "it is asked to finish");
    let refused = || Err(Error::Refused("a test".to_owned()));
    publisher.client.shared.lock().link.put_answer(asked, refused());
    assert!(matches!(publisher.poll_finish(Waker::noop()), Poll::Ready(Err(Error::Refused(_)))));
    assert!(publisher.try_publish(&record).unwrap(), "it has not finished");
    // The next request has an answer of its own.
    let client = publisher.client.join().unwrap();
    let (give, take) = std::sync::mpsc::channel();
    std::thread::spawn(move || give.send(publisher.finish().map(drop)));
    let again = asked + 1;
    client.shared.lock().link.put_answer(again, refused());
    let error = take.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(error, Err(Error::Refused(_))), "{error:?}");
}

#[cfg(feature = "futures")]
#[test]
fn a_publisher_that_has_finished_refuses_at_once() {
    let (mut publisher, _daemon, record) = connected();
    assert!(publisher.poll_finish(Waker::noop()).is_pending());
    let asked = publisher.finishing.unwrap();
    publisher.client.shared.lock().link.put_answer(asked, Ok(Answer::Done));
    assert!(matches!(publisher.poll_finish(Waker::noop()), Poll::Ready(Ok(()))));
    assert!(matches!(publisher.poll_finish(Waker::noop()), Poll::Ready(Ok(()))));
    let refused = [
        publisher.send(&7),
        publisher.publish(&record),
        publisher.publish_all([&record[..]]),
        publisher.try_publish(&record).map(drop),
        publisher.flush(),
        publisher.converter_wanted(None).map(drop),
        publisher.start(&record),
        publisher.start_value(&7),
    ];
    assert!(refused.iter().all(|error| matches!(error, Err(Error::Finished))), "{refused:?}");
    for poll in [Publisher::poll_room, Publisher::poll_settled] {
        assert!(matches!(poll(&mut publisher, Waker::noop()), Poll::Ready(Err(Error::Finished))));
    }
    assert_eq!(publisher.finish().unwrap().records, 0);
}
