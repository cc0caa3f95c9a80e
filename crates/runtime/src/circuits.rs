//! The requests for circuits: reserved buffers and credit of a session ([`crate::net::circuits`]).

use crate::admission::QueryCostModel;
use crate::context::Context;
use crate::net::circuits::Circuit;
use crate::refusal::refuse;
use crossdock_transport::Reply;
use crossdock_transport::control::RefusalCode;

impl Context {
    /// Opens a circuit of `bytes` for a peer, for as long as its session lasts. Its memory is mapped on another thread.
    pub(crate) fn open_circuit(&mut self, key: usize, id: u32, bytes: u64) {
        let bytes = match self.net.admit_circuit(key, bytes) {
            Ok(bytes) => bytes,
            Err(refusal) => return self.send_control(key, &Reply::Refused { id, refusal }.into()),
        };
        let Some(pending) = self.pause(key, id) else { return };
        let work = move |_: &QueryCostModel| Circuit::new(bytes);
        self.plan(work, move |context, made| {
            let made = match made {
                Ok(made) => made.map_err(|error| format!("the system has no memory for the circuit: {error}")),
                Err(panicked) => Err(panicked.to_string()),
            };
            let made = made.map_err(|reason| refuse(RefusalCode::Limit, reason));
            let opened = made.and_then(|circuit| match context.net.still_there(pending.peer()) {
                Some(key) => context.net.open_circuit(key, circuit),
                None => Ok(()),
            });
            context.answer(&pending, opened);
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use crate::config::ContextConfig;
    use crate::handle::ContextHandle;
    use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
    use crossdock_nectarine::{Error, Event, Publisher, PublisherBuilder, Subscriber, Transport};
    use crossdock_transport::MAX_SUPER_BYTES;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(20);
    const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Shm];

    fn start(max_circuit_bytes: u64) -> (ContextHandle, String) {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = ContextConfig { listen, max_circuit_bytes, window_bytes: 256 << 10, ..ContextConfig::default() };
        let daemon = ContextHandle::start(config).unwrap();
        let addr = daemon.local_addr().to_string();
        (daemon, addr)
    }

    fn publisher(addr: &str, way: Transport, stream: &str, circuit: Option<u64>) -> Result<Publisher, Error> {
        let format = Format::natural([FieldSpec::new("number", FieldType::U64)]).unwrap();
        let builder = Publisher::builder(addr).transport(way).stream(stream).format(&format);
        circuit.into_iter().fold(builder, PublisherBuilder::circuit).connect()
    }

    fn publish(publisher: &mut Publisher, number: u64) {
        let mut row = RecordBuilder::new(publisher.format());
        row.set(0, Value::Uint(number)).unwrap();
        let record = row.finish().unwrap();
        publisher.publish(record).unwrap();
    }

    /// Records are copied for it, since it does not take all.
    fn subscriber(addr: &str, stream: &str) -> Subscriber {
        let sql = format!("SELECT * FROM {stream} WHERE number < 1000000");
        Subscriber::builder(addr).transport(Transport::Shm).sql(sql).connect().unwrap()
    }

    /// How many records come within a time, `most` at most.
    fn take(subscriber: &mut Subscriber, most: usize, timeout: Duration) -> usize {
        let (mut found, until) = (0, Instant::now() + timeout);
        while found < most {
            match subscriber.next_event(Some(until.saturating_duration_since(Instant::now()))).unwrap() {
                Some(Event::Records(records)) => found += records.len(),
                Some(_) => {}
                None => break,
            }
        }
        found
    }

    #[test]
    fn a_circuit_goes_on_where_other_traffic_has_all_buffers() {
        let (daemon, addr) = start(4 << 20);
        let (inboxes, _) = daemon.inside();
        for (way, streams) in TRANSPORTS.into_iter().zip([["A", "B"], ["C", "D"]]) {
            let mut circuit = publisher(&addr, way, streams[0], Some(1 << 20)).unwrap();
            let mut other = publisher(&addr, way, streams[1], None).unwrap();
            let (mut of_circuit, mut of_other) = (subscriber(&addr, streams[0]), subscriber(&addr, streams[1]));
            // Some are left, in which packets arrive.
            let taken = inboxes[0].run(|context| {
                let mut taken: Vec<_> = std::iter::from_fn(|| context.net.pool_mut().alloc(MAX_SUPER_BYTES)).collect();
                taken.truncate(taken.len() - 4);
                taken
            });
            let taken = taken.unwrap();
            publish(&mut other, 1);
            other.flush().unwrap();
            for number in 0..500 {
                publish(&mut circuit, number);
                circuit.flush().unwrap();
            }
            assert_eq!(take(&mut of_circuit, 500, PATIENCE), 500, "{way}");
            assert_eq!(take(&mut of_other, 1, Duration::ZERO), 0, "{way}");
            drop(taken);
            assert_eq!(take(&mut of_other, 1, PATIENCE), 1, "{way}");
        }
        daemon.stop().unwrap();
    }

    #[test]
    fn circuits_have_a_bound_are_shown_and_end_with_their_sessions() {
        for way in TRANSPORTS {
            let (daemon, addr) = start(1 << 20);
            let first = publisher(&addr, way, "A", Some(768 << 10)).unwrap();
            let error = publisher(&addr, way, "B", Some(512 << 10)).map(drop).unwrap_err().to_string();
            let said = "a circuit of 524288 bytes, and 262144 of 1048576 are left for circuits";
            assert!(error.contains(said) && error.contains("max_circuit_bytes"), "{error}");
            // The smallest there is.
            let second = publisher(&addr, way, "C", Some(1)).unwrap();
            let mut shown: Vec<u64> = daemon.sessions().unwrap().iter().map(|session| session.circuit_bytes).collect();
            shown.extend(daemon.clients().unwrap().iter().map(|client| client.circuit_bytes));
            shown.retain(|bytes| *bytes > 0);
            shown.sort_unstable();
            assert_eq!(shown, [256 << 10, 768 << 10], "{way}");
            drop((first, second));
            let until = Instant::now() + PATIENCE;
            while let Err(error) = publisher(&addr, way, "D", Some(1 << 20)) {
                assert!(Instant::now() < until, "{error}");
            }
            daemon.stop().unwrap();
        }
    }

    #[test]
    fn a_circuit_beside_a_flood_carries_all_its_records() {
        let (daemon, addr) = start(4 << 20);
        for (way, streams) in TRANSPORTS.into_iter().zip([["A", "B"], ["C", "D"]]) {
            let mut circuit = publisher(&addr, way, streams[0], Some(1 << 20)).unwrap();
            let mut of_circuit = subscriber(&addr, streams[0]);
            let mut flood = publisher(&addr, way, streams[1], None).unwrap();
            // It takes nothing, so its stream's publisher is held back in the end.
            let stuck = subscriber(&addr, streams[1]);
            let interrupter = flood.interrupter();
            let is_over = Arc::new(AtomicBool::new(false));
            let is_over_there = Arc::clone(&is_over);
            let flooding = std::thread::spawn(move || {
                let format = flood.format().clone();
                let mut row = RecordBuilder::new(&format);
                row.set(0, Value::Uint(1)).unwrap();
                let record = row.finish().unwrap();
                while !is_over_there.load(Ordering::Relaxed) && flood.publish(record).is_ok() {}
            });
            for round in 0..50 {
                (0..1000).for_each(|number| publish(&mut circuit, number));
                circuit.flush().unwrap();
                assert_eq!(take(&mut of_circuit, 1000, PATIENCE), 1000, "{way}, round {round}");
            }
            // Whether it waits for its subscriber or not.
            is_over.store(true, Ordering::Relaxed);
            interrupter.interrupt();
            flooding.join().unwrap();
            drop(stuck);
        }
        daemon.stop().unwrap();
    }
}
