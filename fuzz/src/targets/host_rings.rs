//! A hostile client on raw rings, beside an honest one of the same domain: nothing panics, the honest one's messages come whole
//! and in order, who breaks the protocol is detached, and when all are gone every buffer is accounted for.
use crate::raw_side::{AnySignal, Bytes, Entry, Lane};
use arbitrary::{Arbitrary, Unstructured};
use crossdock_mailbox::host::raw::{RawClient, RawDescriptor};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, Hold, HostConfig, HostInterface, Implementation, MailboxOptions, Owner,
    PortOptions, Side,
};
use crossdock_mailbox::{DoorbellPage, HugePages};
use std::sync::Arc;

const GRANT: u8 = 1;
const PUT: u8 = 1;
const FREE: u8 = 2;

/// The next event.
#[derive(Arbitrary, Debug)]
enum HostEvent {
    Entry(Entry),
    /// An entry that is nearly right: a slot number and a generation that may be held.
    Near {
        port: u8,
        op: u8,
        slot: u8,
        generation: u8,
        target: u8,
        offset: u32,
        len: u32,
    },
    Pass(Lane),
    /// A message that it was given, back over its lane, in order.
    PassBack {
        port: u8,
        op: u8,
        target: u8,
    },
    /// It takes what was passed to it.
    TakePassed,
    Signal(AnySignal),
    /// A signal that is nearly right.
    NearSignal {
        op: u8,
        slot: u8,
        generation: u8,
        target: u8,
        len: u16,
        a: u8,
        b: u8,
    },
    /// A message that it was given, back by some operation, with a part of it changed.
    Back {
        port: u8,
        op: u8,
        target: u8,
        shift: i8,
        longer: i8,
    },
    Scribble(Bytes),
    /// It opens a side of a mailbox, or tries to.
    Open {
        read: bool,
        rings: bool,
    },
    Close {
        number: u8,
    },
    /// The core sends it something.
    Send {
        len: u16,
    },
    /// The core withholds its buffers, or gives them.
    Hold {
        held: bool,
    },
    /// The honest client puts a message.
    Honest,
    /// The core looks at the rings that brought something lately.
    Look,
    /// The core's turn.
    Turn,
}

struct World {
    host: HostInterface,
    bell: DoorbellPage,
    domain: Arc<DomainSegments>,
    hostile: RawClient,
    key: ClientKey,
    honest: RawClient,
    honest_key: ClientKey,
    put_port: u16,
    get_port: u16,
    granted: Vec<RawDescriptor>,
    sent: u64,
    seen: u64,
}

impl World {
    fn new() -> Option<World> {
        let config = HostConfig {
            max_clients: 3,
            max_mailboxes: 8,
            shared_bytes: 2 << 20,
            inbox_bytes: 1 << 20,
            client_bytes: 1 << 20,
            bound_messages: 16,
            bound_bytes: 1 << 18,
            max_message_bytes: 1 << 18,
            direct_rings: true,
        };
        let (domain, bell) =
            (DomainSegments::new("one", 2 << 20, 1 << 20, HugePages::None).ok()?, DoorbellPage::new().ok()?);
        let domain = Arc::new(domain);
        let mut host = HostInterface::new(config, DoorbellPage::new().ok()?).ok()?;
        for (name, implementation) in [
            ("honest", Implementation::Rings),
            ("queue", Implementation::SignalQueue),
            ("rings", Implementation::Rings),
        ] {
            host.create(Owner::Daemon, name, MailboxOptions { implementation, ..Default::default() }).ok()?;
        }
        let (mut honest, prepared) = RawClient::new(&domain, &bell).ok()?;
        let honest_key = host.admit(prepared, 0).ok()?;
        let put_port = host.open(honest_key, "honest", Side::Write, PortOptions::default()).ok()?.port?;
        let get_port = host.open(honest_key, "honest", Side::Read, PortOptions::default()).ok()?.port?;
        honest.begin_port(put_port);
        honest.begin_port(get_port);
        let (hostile, prepared) = RawClient::new(&domain, &bell).ok()?;
        let key = host.admit(prepared, 0).ok()?;
        let (granted, sent, seen) = (Vec::new(), 0, 0);
        let world =
            World { host, bell, domain, hostile, key, honest, honest_key, put_port, get_port, granted, sent, seen };
        Some(world)
    }

    fn step(&mut self, step: HostEvent) {
        if self.host.client_info(self.key).is_none() {
            let Ok((client, prepared)) = RawClient::new(&self.domain, &self.bell) else { return };
            (self.hostile, self.key) = (client, self.host.admit(prepared, 0).expect("there is room for it"));
        }
        match step {
            HostEvent::Entry(entry) => entry.push(&mut self.hostile),
            HostEvent::Near { port, op, slot, generation, target, offset, len } => {
                let low = |byte: u8| u16::from(byte % 4);
                let entry = (op % 6, slot.into(), low(generation), low(target), offset % (2 << 20), len % 70_000);
                self.hostile.push(u16::from(port % 5), entry);
            }
            HostEvent::Pass(entry) => entry.pass(&mut self.hostile, 0),
            HostEvent::PassBack { port, op, target } => {
                if let Some((port, entry)) = self.back(port, op, target) {
                    self.hostile.pass(port, self.hostile.pushed(port), entry, 0, 0);
                }
            }
            HostEvent::TakePassed => drop(self.hostile.take_passed()),
            HostEvent::Signal(signal) => signal.push(&mut self.hostile),
            HostEvent::NearSignal { op, slot, generation, target, len, a, b } => {
                let low = |byte: u8| u16::from(byte % 4);
                let head = (16 + op % 10, low(slot), low(generation), low(target), 0, len.into());
                self.hostile.push_signal(head, a.into(), b.into());
            }
            HostEvent::Back { port, op, target, shift, longer } => {
                if let Some((port, mut entry)) = self.back(port, op, target) {
                    entry.4 = entry.4.wrapping_add_signed(shift.into());
                    entry.5 = entry.5.wrapping_add_signed(longer.into());
                    self.hostile.push(port, entry);
                }
            }
            HostEvent::Scribble(bytes) => bytes.scribble(&mut self.hostile),
            HostEvent::Open { read, rings } => {
                let (name, side) = (if rings { "rings" } else { "queue" }, if read { Side::Read } else { Side::Write });
                let _refused = self.host.open(self.key, name, side, PortOptions::default());
            }
            HostEvent::Close { number } => drop(self.host.close(self.key, u16::from(number % 8))),
            HostEvent::Send { len } => {
                if let Ok(draft) = self.host.begin_send(self.key, len.into()) {
                    self.host.send(self.key, draft.finish(usize::MAX));
                }
            }
            HostEvent::Hold { held } => self.host.hold(self.key, if held { Hold::All } else { Hold::Nothing }),
            HostEvent::Honest => self.honest_put(),
            HostEvent::Look => match self.host.poll_active() {
                Some(arrival) => self.take(arrival),
                None => {
                    self.host.end_look();
                }
            },
            HostEvent::Turn => self.turn(),
        }
    }

    /// A message that the hostile one was given over a port, as an entry that gives it back by some operation.
    fn back(&mut self, port: u8, op: u8, target: u8) -> Option<(u16, RawDescriptor)> {
        let port = u16::from(port % 5);
        let (_, slot, generation, _, offset, len) = self.hostile.pop(port)?;
        Some((port, (op % 5, slot, generation, u16::from(target % 4), offset, len)))
    }

    fn honest_put(&mut self) {
        let port = self.put_port;
        self.granted.extend(std::iter::from_fn(|| self.honest.pop(port)).filter(|entry| entry.0 == GRANT));
        if let Some((_, slot, generation, _, offset, _)) = self.granted.pop() {
            assert!(self.honest.write(offset, &self.sent.to_le_bytes()));
            let entry = (PUT, slot, generation, 0, offset, 8);
            if !self.honest.pass(port, self.honest.pushed(port), entry, 0, 0) {
                self.honest.push(port, entry);
            }
            self.sent += 1;
        }
    }

    fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Session { message, .. } | Arrival::Upcall { message, .. } => {
                let mut bytes = vec![0; message.len()];
                assert!(self.host.read(&message, 0, &mut bytes));
                self.host.free(message);
            }
            Arrival::Upcalls { .. } => {
                let burst = self.host.take_burst();
                for message in &burst {
                    let mut bytes = vec![0; message.len()];
                    assert!(self.host.read(message, 0, &mut bytes));
                }
                self.host.keep_burst(burst);
            }
            // It may be reported when the next hostile one is there already.
            Arrival::Violation { client, .. } => {
                assert_ne!(client, self.honest_key, "the honest one keeps the protocol")
            }
            Arrival::Call { result, .. } => self.host.write_sync(result, 1),
            Arrival::Returned { .. } => {}
        }
    }

    /// The next arrival, until the rings are empty.
    fn next_arrival(&mut self) -> Option<Arrival> {
        loop {
            match self.host.poll() {
                None if !self.host.is_quiet() => {}
                arrival => return arrival,
            }
        }
    }

    fn turn(&mut self) {
        while let Some(arrival) = self.next_arrival() {
            self.take(arrival);
        }
        self.host.end_turn();
        let port = self.get_port;
        while let Some((_, slot, generation, _, offset, len)) = self.honest.next(port) {
            let mut bytes = [0; 8];
            assert!(len == 8 && self.honest.read(false, offset, &mut bytes));
            assert_eq!(u64::from_le_bytes(bytes), self.seen);
            self.seen += 1;
            self.honest.push(port, (FREE, slot, generation, 0, 0, 0));
        }
    }

    fn end(mut self) {
        self.turn();
        self.turn();
        assert_eq!(self.sent, self.seen);
        for client in self.host.clients() {
            self.host.detach(client.key);
        }
        for name in ["honest", "queue", "rings"] {
            self.host.delete(Owner::Daemon, name).expect("it is the daemon's");
        }
        while self.next_arrival().is_some() {}
        for domain in self.host.domains() {
            assert_eq!((domain.shared, domain.inbox), ((0, 0), (0, 0)), "{}", domain.name);
        }
    }
}

/// Takes one input.
pub fn fuzz(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Some(mut world) = World::new() else { return };
    while !bytes.is_empty() {
        let Ok(step) = HostEvent::arbitrary(&mut bytes) else { break };
        world.step(step);
    }
    world.end();
}
