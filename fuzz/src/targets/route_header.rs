//! A frame of routed packets at a node: it is cut into runs or refused, byte by byte once, whatever is read is written alike, and no step
//! leads out of the route. The first byte is the stride, in steps of eight bytes; the second says which node the frame is at, and from
//! which it comes.
use crossdock_transport::route::{
    Course, MAX_REFUSAL_BYTES, MAX_ROUTE_HEADER_BYTES, NodeId, RouteHeader, RouteRefusal, RouteStep, SourceRoute,
    next_run, take_headers_off,
};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [stride, place, frame @ ..] = input else { return };
    let stride = usize::from(*stride) * 8;
    let mut at = 0;
    while let Some(run) = next_run(frame, stride, at) {
        let next = match run {
            Ok(run) => {
                assert_eq!(run.start, at);
                step(&run.header, &frame[run.start..run.end], *place);
                payloads(&run.header, &frame[run.start..run.end], stride);
                run.end
            }
            Err(end) => end,
        };
        assert!(next > at && next <= frame.len());
        at = next;
    }
    assert_eq!(at, frame.len());
    if let Some((_, place)) = RouteHeader::refusal_in(frame) {
        let header = RouteHeader::read(frame).expect("a refusal has a header");
        assert!(usize::from(place) < header.route.nodes().len());
    }
}

/// The step of packets with this header, at a node of the route.
fn step(header: &RouteHeader, packets: &[u8], place: u8) {
    let mut room = [0; MAX_ROUTE_HEADER_BYTES];
    assert!(packets.starts_with(header.write(&mut room)));
    let nodes = header.route.nodes();
    let node = |place: u8| nodes[usize::from(place) % nodes.len()];
    let (own, from): (NodeId, Option<NodeId>) = (node(place & 15), (place & 16 == 0).then(|| node(place >> 5)));
    match header.step(own, from) {
        Ok(step) => {
            assert_eq!(own, nodes[usize::from(header.place)]);
            assert!(SourceRoute::new(nodes).is_ok(), "a loop goes no further");
            if let RouteStep::To(next) = step {
                assert_eq!(next.abs_diff(header.place), 1);
                assert_eq!(next > header.place, header.course == Course::Forward);
                assert!(usize::from(next) < nodes.len());
            }
        }
        Err(why) => {
            let mut out = [0; MAX_REFUSAL_BYTES];
            match header.refuse(why, &mut out) {
                Some(refusal) => assert_eq!(RouteHeader::refusal_in(refusal), Some((why, header.place))),
                None => assert_ne!(header.course, Course::Forward),
            }
            assert_eq!(
                why == RouteRefusal::Loop,
                own == nodes[usize::from(header.place)] && SourceRoute::new(nodes).is_err()
            );
        }
    }
}

/// The payloads of a run, one behind the other.
fn payloads(header: &RouteHeader, packets: &[u8], stride: usize) {
    let mut run = packets.to_vec();
    let bytes = take_headers_off(&mut run, stride, header.bytes());
    let each = packets.chunks(stride.max(1)).flat_map(|packet| &packet[header.bytes().min(packet.len())..]);
    assert!(run[..bytes].iter().eq(each));
}
