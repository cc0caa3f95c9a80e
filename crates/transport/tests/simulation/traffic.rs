//! The messages of the hosts to each other, and the judge of what arrives: every message carries its number.

use crossdock_sim::Rng;
use crossdock_transport::credit::charge;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::trace::PacketRun;
use crossdock_transport::{
    ControlMessage, Cut, Follows, Header, Joiner, Lengths, MAX_MESSAGE_BYTES, MAX_SUPER_BYTES, Origin, PacketKind,
    Request, SuperPacket, TrafficClass,
};
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// A unit of a sender: what leaves at once.
pub(crate) enum Outgoing {
    /// Records of one stream and format.
    Data { packed: SuperPacket<Vec<u8>>, stream: u32, numbers: std::ops::Range<u64> },
    /// Datagrams.
    Datagrams(SuperPacket<Vec<u8>>),
    /// Packets of a control message or of a long record, from packet `from` on.
    Message { message: Rc<[u8]>, cut: Cut, from: u32, template: Header, number: u64 },
}

/// A unit as it is queued.
pub(crate) struct Unit {
    pub(crate) outgoing: Outgoing,
    pub(crate) lengths: Lengths,
    pub(crate) class: TrafficClass,
    pub(crate) droppable: bool,
}

/// A run of packets as it lies in the frame that brought it.
#[derive(Clone)]
pub(crate) struct Packets {
    pub(crate) frame: Rc<Vec<u8>>,
    pub(crate) spans: Vec<PayloadSpan>,
    pub(crate) header: Header,
    /// Bytes of each packet but the last, and of the last, as they came.
    pub(crate) longest_bytes: usize,
    pub(crate) last_bytes: usize,
}

impl Packets {
    /// The packets, for a trace.
    pub(crate) fn run(&self) -> PacketRun {
        PacketRun {
            kind: self.header.kind,
            first_seq: self.header.seq,
            packets: self.spans.len() as u32,
            each_bytes: self.longest_bytes as u64,
            last_bytes: self.last_bytes as u64,
            stream: Some(self.header.stream),
        }
    }

    /// Bytes of a packet as it came.
    fn bytes(&self, index: usize) -> usize {
        if index + 1 == self.spans.len() { self.last_bytes } else { self.longest_bytes }
    }
}

/// How much a host sends, and how.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlan {
    /// Records and control messages in all.
    pub(crate) messages: u64,
    /// Record length, in 8-byte words.
    pub(crate) record_words: RangeInclusive<usize>,
    /// Records that leave together, as far as a super-packet holds them.
    pub(crate) unit_records: RangeInclusive<usize>,
    /// Share of control messages.
    pub(crate) control: f64,
    /// Share of messages that take several packets, and the most packets of one.
    pub(crate) long: (f64, usize),
    /// Time between units, in ns; 0 for as fast as the backlog allows.
    pub(crate) interval_ns: u64,
    /// Backlog up to which units are added, in bytes.
    pub(crate) backlog_bytes: u64,
    /// Whether the oldest unsent units are dropped at that bound, instead of holding the source.
    pub(crate) drops: bool,
    /// Most bytes of a unit.
    pub(crate) unit_bytes: usize,
}

impl SourcePlan {
    /// Full super-packets of 304-byte records, as fast as they go.
    pub(crate) fn bulk(messages: u64) -> SourcePlan {
        SourcePlan {
            messages,
            record_words: 38..=38,
            unit_records: 1000..=1000,
            control: 0.0,
            long: (0.0, 1),
            interval_ns: 0,
            backlog_bytes: 1 << 20,
            drops: false,
            unit_bytes: crossdock_transport::MAX_SUPER_BYTES,
        }
    }

    /// About how many packets all its messages are, one by one.
    pub(crate) fn packets(&self) -> u64 {
        let (share, packets) = self.long;
        (self.messages as f64 * (1.0 + share * packets as f64)) as u64
    }

    /// The most bytes that may be queued and under way: the bound, and one unit or long message on top.
    pub(crate) fn most_backlog_bytes(&self, packet_bytes: usize) -> u64 {
        let (share, packets) = self.long;
        // With the headers of its packets; a control message has its places and its JSON on top.
        let long = if share > 0.0 { (packets + 1) * packet_bytes * 9 / 8 } else { 0 };
        self.backlog_bytes + long.max(crossdock_transport::MAX_SUPER_BYTES) as u64
    }

    pub(crate) fn nothing() -> SourcePlan {
        SourcePlan::bulk(0)
    }

    /// Anything.
    pub(crate) fn any(rng: &mut Rng, messages: u64) -> SourcePlan {
        let words = [2, 8, 40, 200][rng.usize(..4)];
        SourcePlan {
            messages,
            record_words: 2..=words,
            unit_records: 1..=[1, 4, 100, 1000][rng.usize(..4)],
            control: [0.0, 0.02, 0.3][rng.usize(..3)],
            long: ([0.0, 0.1][rng.usize(..2)], [2, 10, 200][rng.usize(..3)]),
            interval_ns: [0, 0, 20_000, 2_000_000][rng.usize(..4)],
            backlog_bytes: [1, 50_000, 1 << 20][rng.usize(..3)],
            drops: false,
            unit_bytes: [2048, 16_384, 65_504][rng.usize(..3)],
        }
    }
}

/// The application that sends.
pub(crate) struct TrafficSource {
    pub(crate) plan: SourcePlan,
    rng: Rng,
    /// The next record's number, and the next control message's.
    next: u64,
    next_control: u64,
    /// Behind the last record of each stream.
    ends: [u64; 3],
    next_ns: u64,
    /// Numbers that [`SourcePlan::drops`] took back.
    pub(crate) dropped: Vec<u64>,
}

impl TrafficSource {
    pub(crate) fn new(plan: SourcePlan, rng: Rng) -> TrafficSource {
        TrafficSource { plan, rng, next: 0, next_control: 0, ends: [0; 3], next_ns: 0, dropped: Vec::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.messages() == self.plan.messages
    }

    fn messages(&self) -> u64 {
        self.next + self.next_control
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u64 {
        self.next
    }

    /// When it has something next, in ns.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        (!self.is_done() && self.plan.interval_ns > 0).then_some(self.next_ns)
    }

    /// The next units, when some are due: one, or those of a long message.
    pub(crate) fn units(&mut self, now_ns: u64, packet_bytes: usize) -> Vec<Unit> {
        if self.is_done() || now_ns < self.next_ns {
            return Vec::new();
        }
        if self.plan.interval_ns > 0 {
            self.next_ns = now_ns + self.plan.interval_ns;
        }
        let (share, most_packets) = self.plan.long;
        let long =
            if share > 0.0 && self.rng.f64() < share { self.rng.usize(1..=most_packets) * packet_bytes } else { 0 };
        if self.rng.f64() < self.plan.control {
            let class = self.any_control();
            return self.control(class, packet_bytes, long);
        }
        let first = self.next;
        let stream = (first % 3) as u32;
        let class = TrafficClass::Data(Origin::Stream(stream));
        let template = Header { stream, format: 77, records: 1, ..Header::new(PacketKind::Data, 0) };
        // Some leave as one packet, which goes in parts; the smallest queue of a path holds it.
        let fits = long <= 24 << 10;
        if long > packet_bytes {
            self.next += 1;
            self.ends[stream as usize] = self.next;
            let record = record(first, long / 8);
            if fits && self.rng.bool() {
                return vec![alone(&record, packet_bytes, stream, first)];
            }
            return message(&record.into(), packet_bytes, template, first, class);
        }
        let wanted = self.rng.usize(self.plan.unit_records.clone()) as u64;
        let mut packed = SuperPacket::new(vec![0; self.plan.unit_bytes], packet_bytes);
        while self.messages() < self.plan.messages && self.next < first + wanted {
            let words = self.rng.usize(self.plan.record_words.clone());
            if !packed.push(&record(self.next, words)) {
                break;
            }
            self.next += 1;
        }
        let lengths = packed.lengths();
        self.ends[stream as usize] = self.next;
        let outgoing = Outgoing::Data { packed, stream, numbers: first..self.next };
        vec![Unit { outgoing, lengths, class, droppable: true }]
    }

    pub(crate) fn any_below(&mut self, bound: usize) -> usize {
        self.rng.usize(..bound)
    }

    pub(crate) fn any_control(&mut self) -> TrafficClass {
        let stream = Origin::Stream(self.rng.u32(..3));
        let follows = [Follows::Nothing, Follows::Origin(stream), Follows::Everything][self.rng.usize(..3)];
        if self.rng.bool() { TrafficClass::Exchange(follows) } else { TrafficClass::Notice(follows) }
    }

    /// A control message of at least `long` bytes that says between which records it may arrive.
    pub(crate) fn control(&mut self, class: TrafficClass, packet_bytes: usize, long: usize) -> Vec<Unit> {
        use TrafficClass::{Exchange, Notice};
        let after = match class {
            Exchange(Follows::Origin(Origin::Stream(stream))) | Notice(Follows::Origin(Origin::Stream(stream))) => {
                self.ends[stream as usize]
            }
            Exchange(Follows::Everything) | Notice(Follows::Everything) => self.next,
            _ => 0,
        };
        let number = self.next_control;
        let order = if let Exchange(_) = class { "an exchange".to_owned() } else { format!("{class:?}") };
        let places = [order, after.to_string(), self.next.to_string()].join("/");
        let format = "x".repeat(long);
        let request = Request::Announce {
            id: number as u32,
            stream: 0,
            name: places,
            format,
            publication: None,
            key: Vec::new(),
        };
        let payload = ControlMessage::from(request).encode();
        self.next_control += 1;
        message(&payload.into(), packet_bytes, Header::new(PacketKind::Control, 0), number, class)
    }
}

/// The units of a message.
fn message(message: &Rc<[u8]>, packet_bytes: usize, template: Header, number: u64, class: TrafficClass) -> Vec<Unit> {
    let cut = Cut::new(message.len(), packet_bytes);
    let unit = |range: std::ops::Range<u32>| Unit {
        lengths: cut.lengths(range.clone()),
        class,
        droppable: false,
        outgoing: Outgoing::Message { message: message.clone(), cut, from: range.start, template, number },
    };
    cut.units().map(unit).collect()
}

/// A record that is longer than a packet of the path, as one packet.
fn alone(record: &[u8], packet_bytes: usize, stream: u32, number: u64) -> Unit {
    let mut packed = SuperPacket::new(vec![0; MAX_SUPER_BYTES], packet_bytes);
    assert!(packed.push(record));
    let lengths = packed.lengths();
    let outgoing = Outgoing::Data { packed, stream, numbers: number..number + 1 };
    let class = TrafficClass::Data(Origin::Stream(stream));
    // One that is longer than the packet size is no more droppable than one in pieces.
    Unit { outgoing, lengths, class, droppable: false }
}

/// A record of `words` 8-byte words that says its length, its number, and fills the rest with what follows from it.
pub(crate) fn record(number: u64, words: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; words * 8];
    bytes[0..4].copy_from_slice(&(words as u32 * 8).to_le_bytes());
    bytes[4..8].copy_from_slice(&[0; 4]);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// How fast a host takes what arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct SinkPlan {
    /// Time that a packet takes, in ns; 0 for none.
    pub(crate) packet_ns: u64,
    /// When it takes nothing, in ns.
    pub(crate) stalls: Vec<std::ops::Range<u64>>,
    /// Whether numbers may be missing (the source drops).
    pub(crate) gaps: bool,
    /// Whether anything may come at all (the path spoils payloads too).
    pub(crate) unchecked: bool,
}

impl SinkPlan {
    /// Anything.
    pub(crate) fn any(rng: &mut Rng) -> SinkPlan {
        let stalls = if rng.u8(..4) == 0 {
            let start = rng.u64(..500_000_000);
            vec![start..start + rng.u64(..2_000_000_000)]
        } else {
            Vec::new()
        };
        SinkPlan { packet_ns: [0, 0, 1000, 100_000][rng.usize(..4)], stalls, ..SinkPlan::default() }
    }
}

/// The application that receives: checks that each message comes once, in order and unspoilt.
pub(crate) struct Sink {
    plan: SinkPlan,
    free_ns: u64,
    /// The next record's number that may come.
    pub(crate) next: u64,
    /// Behind the last control message that came, by the order that they keep.
    control: HashMap<String, u32>,
    /// Control messages that came, and the packets of all control messages.
    pub(crate) controls: u64,
    pub(crate) control_packets: u64,
    /// Messages that came.
    pub(crate) messages: u64,
    /// Numbers that never came, though later ones did.
    pub(crate) missing: Vec<u64>,
    /// The session's packet size in bytes, and its window in units.
    packet_bytes: usize,
    window: u32,
    /// The charges of data packets delivered and not yet taken; their sum, and that of those taken.
    waiting: VecDeque<u32>,
    pub(crate) waiting_units: u64,
    taken_units: u64,
    /// Bytes that came.
    pub(crate) bytes: u64,
    /// Long messages with pieces missing: control, and records.
    joining: [Joiner<Vec<u8>>; 2],
}

impl Sink {
    pub(crate) fn new(plan: SinkPlan, packet_bytes: usize, window: u32) -> Sink {
        Sink {
            plan,
            packet_bytes,
            window,
            waiting: VecDeque::new(),
            free_ns: 0,
            next: 0,
            control: HashMap::new(),
            controls: 0,
            control_packets: 0,
            messages: 0,
            missing: Vec::new(),
            waiting_units: 0,
            taken_units: 0,
            bytes: 0,
            joining: Default::default(),
        }
    }

    /// Takes what the receiver delivers: the packets of `packets` behind the first `skip`. Control is carried out at once, data
    /// waits to be consumed.
    pub(crate) fn deliver(&mut self, packets: &Packets, skip: u32) {
        assert!((skip as usize) < packets.spans.len(), "an empty delivery");
        for (index, span) in packets.spans.iter().enumerate().skip(skip as usize) {
            self.packet(packets, *span);
            let charge = charge(packets.bytes(index), self.packet_bytes, self.window);
            if packets.header.kind != PacketKind::Control {
                self.waiting.push_back(charge);
                self.waiting_units += u64::from(charge);
            }
        }
    }

    /// Consumes as much as the time allows; returns how many units of data were consumed so far.
    pub(crate) fn consume(&mut self, now_ns: u64) -> u64 {
        while let Some(&charge) = self.waiting.front() {
            let stalled = self.plan.stalls.iter().any(|stall| stall.contains(&now_ns));
            if now_ns < self.free_ns || stalled {
                break;
            }
            if self.plan.packet_ns > 0 {
                self.free_ns = now_ns + self.plan.packet_ns;
            }
            self.waiting.pop_front();
            self.waiting_units -= u64::from(charge);
            self.taken_units += u64::from(charge);
        }
        self.taken_units
    }

    /// When it can take more, in ns.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let stall = self.plan.stalls.iter().find(|stall| stall.contains(&now_ns));
        (!self.waiting.is_empty()).then(|| stall.map_or(self.free_ns, |stall| stall.end.max(self.free_ns)))
    }

    fn packet(&mut self, packets: &Packets, span: PayloadSpan) {
        let payload = &packets.frame[span.range()];
        self.bytes += payload.len() as u64;
        if self.plan.unchecked {
            return;
        }
        let is_control = packets.header.kind == PacketKind::Control;
        self.control_packets += u64::from(is_control);
        let joiner = &mut self.joining[usize::from(is_control)];
        let joined = joiner.take(packets.header.piece, payload, MAX_MESSAGE_BYTES).expect("pieces as they were sent");
        let Some(payload) = joined else { return };
        if is_control {
            let Ok(ControlMessage::Request(Request::Announce { id, name, .. })) = ControlMessage::decode(&payload)
            else {
                panic!("not what was sent: {}", String::from_utf8_lossy(&payload));
            };
            return self.control(id, &name);
        }
        let (mut at, mut records, mut first) = (0, 0, None);
        while at < payload.len() {
            let len = u32::from_le_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
            let number = u64::from_le_bytes(payload[at + 8..at + 16].try_into().unwrap());
            assert_eq!(&payload[at..at + len], record(number, len / 8), "a spoilt record");
            first.get_or_insert(number);
            self.number(number);
            (at, records) = (at + len, records + 1);
        }
        assert_eq!(records, span.records, "the header's count of records");
        assert_eq!(packets.header.format, 77, "the header's format");
        assert!(packets.header.stream < 3, "the header's stream");
    }

    /// Control comes once, requests in order, notices in order with those that follow the same, and all between the records
    /// that they name.
    fn control(&mut self, id: u32, places: &str) {
        let [order, after, before] = places.split('/').collect::<Vec<_>>()[..] else { panic!("{places}") };
        let last = self.control.insert(order.to_owned(), id + 1);
        assert!(last.is_none_or(|end| end <= id), "control {id} came behind {last:?}, {order}");
        assert!(self.next >= after.parse().unwrap() || self.plan.gaps, "{id} came before its records: {places}");
        assert!(self.next <= before.parse().unwrap(), "{id} came after record {}: {places}", self.next);
        self.controls += 1;
        self.messages += 1;
    }

    fn number(&mut self, number: u64) {
        if self.plan.gaps {
            assert!(number >= self.next, "message {number} came after {}", self.next);
            self.missing.extend(self.next..number);
        } else {
            assert_eq!(number, self.next, "the wrong message");
        }
        self.next = number + 1;
        self.messages += 1;
    }
}
