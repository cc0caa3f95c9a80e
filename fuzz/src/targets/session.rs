//! A session whose peer and whose owner do anything: what is released was acknowledged and comes once, what is delivered
//! comes once and in order, a refused ack changes nothing, memory stays within the window, and nothing that is due is left.
use arbitrary::{Arbitrary, Unstructured};
use crossdock_transport::credit::{CONTROL_WINDOW_PACKETS, charge, units};
use crossdock_transport::receiver::{Ack, Arriving, MAX_ACK_BYTES};
use crossdock_transport::{Follows, Limits, Origin, Session, Traffic, TrafficClass};
use std::collections::VecDeque;

const PACKET_BYTES: u32 = 1472;

/// The next event.
#[derive(Arbitrary, Debug)]
enum SessionEvent {
    /// The owner queues a unit.
    Enqueue {
        packets: u8,
        bytes: u16,
        droppable: bool,
    },
    /// The owner queues a control message: a reply or a notice, which follows nothing, the data or all.
    Control {
        bytes: u16,
        class: u8,
    },
    /// The owner sends what is due, unless the device is full after this number of transmissions.
    Send {
        most: u8,
    },
    /// The owner drops what has waited longest.
    DropOldest,
    /// An ack near what was sent: cumulative, and ranges as gaps and lengths.
    Ack {
        next: u16,
        credit: u16,
        control: u16,
        delay_us: u32,
        ranges: Vec<(u8, u8)>,
    },
    /// An ack of any bytes.
    AckBytes(Vec<u8>),
    /// A run of packets, near what is expected or anywhere.
    Arrive {
        control: bool,
        ahead: i16,
        packets: u8,
        longest_bytes: u16,
        last_bytes: u16,
    },
    ArriveAnywhere {
        control: bool,
        first_seq: u64,
        packets: u32,
        longest_bytes: u16,
    },
    /// The application has consumed up to so much less than was delivered.
    Consume {
        but: u8,
    },
    /// The owner has carried out all control.
    CarryOut,
    /// A packet of the peer that asks for an ack.
    Ping,
    /// Time.
    Wait {
        us: u32,
    },
}

/// The owner's view of what it queued.
#[derive(Default)]
struct Model {
    /// In the order of queueing: number, bytes, packets and class.
    queued: VecDeque<(u64, u64, u32, TrafficClass)>,
    next_unit: u64,
    /// Packets delivered, and the units of data among them.
    delivered: u64,
    delivered_data: u64,
    sent: u64,
    /// The windows in units: this side's of data, and the peer's of data and of control.
    window: u32,
    theirs: [u32; 2],
    /// Units sent and allowed, of data and of control.
    used: [u64; 2],
    limit: [u64; 2],
}

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok((window, theirs)) = input.arbitrary::<(u8, u8)>() else { return };
    let (window_bytes, theirs_bytes) = (u32::from(window) * PACKET_BYTES, u32::from(theirs) * PACKET_BYTES);
    let limits = Limits::new(window_bytes, 3_000_000_000);
    let mut session: Session<u64, Arriving> = Session::new(7, PACKET_BYTES, theirs_bytes, limits, 0);
    let (window, theirs) =
        (units(window_bytes, PACKET_BYTES), [units(theirs_bytes, PACKET_BYTES), CONTROL_WINDOW_PACKETS]);
    let mut model = Model { window, theirs, limit: theirs.map(u64::from), ..Model::default() };
    let mut now_ns = 0;
    while let Ok(step) = input.arbitrary::<SessionEvent>() {
        if input.is_empty() {
            break;
        }
        take(&mut session, &mut model, &mut now_ns, step);
        let waiting: u64 = model.queued.iter().map(|(_, bytes, ..)| bytes).sum();
        assert_eq!(session.sender.backlog_bytes(), waiting);
        assert_eq!(session.sender.is_idle(), model.queued.is_empty());
        assert!(session.receiver.held() <= (window + CONTROL_WINDOW_PACKETS) as usize);
        assert_eq!(session.receiver.next_seq(), model.delivered);
    }
}

fn take(session: &mut Session<u64, Arriving>, model: &mut Model, now_ns: &mut u64, step: SessionEvent) {
    match step {
        SessionEvent::Enqueue { packets, bytes, droppable } => {
            let packets = u32::from(packets % 64) + 1;
            let class = TrafficClass::Data(Origin::Stream(1));
            session.sender.enqueue(model.next_unit, packets, bytes.into(), class, droppable);
            model.queued.push_back((model.next_unit, bytes.into(), packets, class));
            model.next_unit += 1;
        }
        SessionEvent::Control { bytes, class } => {
            let stream = Follows::Origin(Origin::Stream(1));
            let follows = [Follows::Nothing, stream, Follows::Everything][usize::from(class >> 1) % 3];
            let class = if class & 1 == 0 { TrafficClass::Exchange(follows) } else { TrafficClass::Notice(follows) };
            session.sender.enqueue(model.next_unit, 1, bytes.into(), class, false);
            model.queued.push_back((model.next_unit, bytes.into(), 1, class));
            model.next_unit += 1;
        }
        SessionEvent::Send { most } => send(session, model, *now_ns, most),
        SessionEvent::DropOldest => {
            if let Some(unit) = session.sender.drop_oldest() {
                model.queued.retain(|(queued, ..)| *queued != unit);
            }
        }
        SessionEvent::Ack { next, credit, control, delay_us, ranges } => {
            let next = u64::from(next);
            let mut end = next;
            let ranges = ranges.into_iter().map(|(missing, arrived)| {
                let start = end + u64::from(missing);
                end = start + u64::from(arrived) + 1;
                start..end
            });
            let mut ack = Ack::new(next, next + u64::from(credit)).with_ranges(ranges);
            ack.delay_us = delay_us;
            ack.control_limit = next + u64::from(control);
            let mut payload = [0; MAX_ACK_BYTES];
            let len = ack.encode(&mut payload);
            on_ack(session, model, *now_ns, &payload[..len]);
        }
        SessionEvent::AckBytes(payload) => on_ack(session, model, *now_ns, &payload),
        SessionEvent::Arrive { control, ahead, packets, longest_bytes, last_bytes } => {
            let first_seq = session.receiver.next_seq().saturating_add_signed(ahead.into());
            let (traffic, packets) = (traffic_of(control), packets.into());
            let (longest_bytes, last_bytes) = (longest_bytes.into(), last_bytes.into());
            arrive(session, model, *now_ns, Arriving { traffic, first_seq, packets, longest_bytes, last_bytes });
        }
        SessionEvent::ArriveAnywhere { control, first_seq, packets, longest_bytes } => {
            let (traffic, longest_bytes) = (traffic_of(control), usize::from(longest_bytes));
            let run = Arriving { traffic, first_seq, packets, longest_bytes, last_bytes: longest_bytes };
            arrive(session, model, *now_ns, run);
        }
        SessionEvent::Consume { but } => session.receiver.consumed_to(model.delivered_data.saturating_sub(but.into())),
        SessionEvent::CarryOut => session.receiver.control_consumed(),
        SessionEvent::Ping => {
            session.heard(*now_ns);
            session.receiver.ack_soon();
        }
        SessionEvent::Wait { us } => {
            *now_ns += u64::from(us) * 1000;
            session.on_timer(*now_ns);
        }
    }
}

fn send(session: &mut Session<u64, Arriving>, model: &mut Model, now_ns: u64, most: u8) {
    let alive = session.on_timer(now_ns);
    let mut left = most;
    while let Some(transmit) = session.sender.poll() {
        let (unit, packets) = (*transmit.payload, transmit.packets.clone());
        assert!(packets.start < packets.end && packets.end <= 64);
        let found = model.queued.iter().find(|(queued, ..)| *queued == unit);
        let &(_, bytes, of, class) = found.expect("it was not released");
        let traffic = class.traffic() as usize;
        let charge = |bytes| u64::from(charge(bytes as usize, PACKET_BYTES as usize, model.theirs[traffic]));
        let stride = bytes.div_ceil(of.into());
        let of_packet = |at| {
            let last = bytes.saturating_sub(u64::from(of - 1) * stride);
            charge(if at + 1 == of { last } else { stride })
        };
        let end = transmit.first_seq + u64::from(packets.end);
        let count: u64 = if transmit.resend { 0 } else { packets.clone().map(of_packet).sum() };
        assert!(model.used[traffic] + count <= model.limit[traffic], "beyond the credit");
        assert!(transmit.resend || transmit.first_seq + u64::from(packets.start) == model.sent);
        if left == 0 {
            return;
        }
        left -= 1;
        model.sent = model.sent.max(end);
        model.used[traffic] += count;
        session.sender.transmitted(now_ns);
    }
    while let Some(short) = session.poll_short(now_ns) {
        assert!(short.bytes().len() <= 32 + MAX_ACK_BYTES);
    }
    assert!(!alive || session.deadline_ns() > now_ns, "something is still due");
}

fn on_ack(session: &mut Session<u64, Arriving>, model: &mut Model, now_ns: u64, payload: &[u8]) {
    let before = format!("{:?}", session.sender);
    let mut released = Vec::new();
    match session.on_ack(payload, now_ns, |unit| released.push(unit)) {
        Ok(()) => {
            let ack = Ack::decode(payload).expect("it was taken");
            assert!(ack.next_seq <= model.sent);
            let [data, control] = &mut model.limit;
            (*data, *control) = ((*data).max(ack.data_limit), (*control).max(ack.control_limit));
        }
        Err(_) => assert_eq!((format!("{:?}", session.sender), released.len()), (before, 0)),
    }
    for unit in released {
        let at = model.queued.iter().position(|(queued, ..)| *queued == unit).expect("released twice");
        let (.., class) = model.queued[at];
        assert!(!model.queued.range(..at).any(|earlier| class.follows(earlier.3)), "released out of order");
        model.queued.remove(at);
    }
}

fn arrive(session: &mut Session<u64, Arriving>, model: &mut Model, now_ns: u64, run: Arriving) {
    let (delivered, data, window) = (&mut model.delivered, &mut model.delivered_data, model.window);
    session.receiver.arrive(run, run, now_ns, |run, skip| {
        let Arriving { traffic, first_seq, packets, longest_bytes, last_bytes } = run;
        assert!(skip < packets, "an empty delivery");
        assert_eq!(first_seq + u64::from(skip), *delivered, "not the next packet");
        *delivered = first_seq + u64::from(packets);
        let charge = |bytes| u64::from(charge(bytes, PACKET_BYTES as usize, window));
        let units = u64::from(packets - skip - 1) * charge(longest_bytes) + charge(last_bytes);
        *data += if traffic == Traffic::Data { units } else { 0 };
    });
}

fn traffic_of(control: bool) -> Traffic {
    if control { Traffic::Control } else { Traffic::Data }
}
