#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use proptest::prelude::*;

fn id(name: &str) -> NodeId {
    NodeId::of_name(name)
}

fn route(names: &[&str]) -> SourceRoute {
    SourceRoute::new(&names.iter().map(|name| id(name)).collect::<Vec<_>>()).unwrap()
}

fn packet(header: &RouteHeader, payload: &[u8]) -> Vec<u8> {
    let mut room = [0; MAX_ROUTE_HEADER_BYTES];
    [header.write(&mut room), payload].concat()
}

/// The path of a packet from node to node: each step's outcome.
fn walk(mut header: RouteHeader, mut from: Option<&'static str>, names: &[&'static str]) -> Vec<RouteStep> {
    let mut steps = Vec::new();
    loop {
        let own = names[usize::from(header.place)];
        let step = header.step(id(own), from.map(id)).unwrap();
        steps.push(step);
        let RouteStep::To(place) = step else { return steps };
        (header.place, from) = (place, Some(own));
    }
}

#[test]
fn a_packet_goes_to_the_last_node_and_its_answer_to_the_client() {
    let names = ["a", "b", "c", "d"];
    let header = RouteHeader::of_client(route(&names));
    let forward = [RouteStep::To(1), RouteStep::To(2), RouteStep::To(3), RouteStep::Arrived];
    assert_eq!(walk(header, None, &names), forward);
    let arrived = RouteHeader { place: 3, origin: 7, ..header };
    let answer = arrived.answer();
    assert_eq!((answer.course, answer.place, answer.origin), (Course::Backward, 2, 7));
    assert_eq!(walk(answer, Some("d"), &names), [RouteStep::To(1), RouteStep::To(0), RouteStep::ToClient]);
}

#[test]
fn a_route_has_two_to_eight_nodes_and_each_once() {
    let nodes: Vec<NodeId> = (0..9).map(|at| id(&format!("n{at}"))).collect();
    for len in [0, 1, 9] {
        assert_eq!(SourceRoute::new(&nodes[..len]), Err(RouteError::Length(len)));
    }
    assert_eq!(SourceRoute::new(&nodes[..8]).unwrap().nodes(), &nodes[..8]);
    assert_eq!(SourceRoute::new(&[nodes[0], nodes[1], nodes[0]]), Err(RouteError::Loop(2)));
    assert!(RouteError::Loop(2).to_string().contains("node 3 is in it twice"));
}

#[test]
fn loops_and_packets_out_of_place_go_no_further() {
    let looped = SourceRoute::unchecked(&[id("a"), id("b"), id("a")]).unwrap();
    let header = RouteHeader::of_client(looped);
    assert_eq!(header.step(id("a"), None), Err(RouteRefusal::Loop));
    assert_eq!(RouteHeader { place: 1, ..header }.step(id("b"), Some(id("a"))), Err(RouteRefusal::Loop));
    let header = RouteHeader::of_client(route(&["a", "b", "c"]));
    let misplaced = Err(RouteRefusal::Misplaced);
    assert_eq!(header.step(id("b"), None), misplaced, "this is not the first node");
    let second = RouteHeader { place: 1, ..header };
    for from in [None, Some(id("c")), Some(id("b")), Some(id("x"))] {
        assert_eq!(second.step(id("b"), from), misplaced, "it came from another than the node before");
    }
    let back = RouteHeader { course: Course::Backward, ..second };
    assert_eq!(back.step(id("b"), Some(id("c"))), Ok(RouteStep::To(0)));
    for from in [None, Some(id("a"))] {
        assert_eq!(back.step(id("b"), from), misplaced);
    }
    assert_eq!(RouteHeader { place: 2, ..back }.step(id("c"), Some(id("b"))), misplaced, "an answer to the last node");
}

#[test]
fn a_refusal_goes_back_with_its_reason_and_place() {
    let names = ["a", "b", "c"];
    let header = RouteHeader { place: 1, origin: 5, ..RouteHeader::of_client(route(&names)) };
    let mut room = [0; MAX_REFUSAL_BYTES];
    let refusal = header.refuse(RouteRefusal::UnknownHop, &mut room).unwrap();
    assert_eq!(RouteHeader::refusal_in(refusal), Some((RouteRefusal::UnknownHop, 1)));
    let back = RouteHeader::read(refusal).unwrap();
    assert_eq!((back.course, back.place, back.origin), (Course::Refusal, 0, 5));
    assert_eq!(walk(back, Some("b"), &names), [RouteStep::ToClient]);
    assert_eq!(
        back.refuse(RouteRefusal::Loop, &mut [0; MAX_REFUSAL_BYTES]),
        None,
        "nothing on its way back is refused"
    );
    let mut spoilt = refusal.to_vec();
    let at = spoilt.len() - REFUSAL_BYTES;
    spoilt[at] = 9;
    assert_eq!(RouteHeader::refusal_in(&spoilt), None);
    assert_eq!(RouteHeader::refusal_in(&refusal[..refusal.len() - 1]), None);
}

#[test]
fn a_frame_is_cut_into_runs_of_equal_headers() {
    let (one, other) = (RouteHeader::of_client(route(&["a", "b"])), RouteHeader::of_client(route(&["a", "c"])));
    let mut frame: Vec<u8> = [&one, &one, &other, &one].iter().flat_map(|header| packet(header, b"12345678")).collect();
    let stride = one.bytes() + 8;
    frame.truncate(frame.len() - 3);
    frame[2 * stride + 1] = 9;
    let runs = |frame: &[u8]| {
        let (mut at, mut runs) = (0, Vec::new());
        while let Some(run) = next_run(frame, stride, at) {
            at = run.map_or_else(|end| end, |run| run.end);
            runs.push(run.map(|run| (run.header.route == one.route, run.start..run.end)));
        }
        runs
    };
    let bytes = frame.len();
    assert_eq!(runs(&frame), [Ok((true, 0..2 * stride)), Err(3 * stride), Ok((true, 3 * stride..bytes))]);
    frame[2 * stride + 1] = 1;
    assert_eq!(runs(&frame)[1], Ok((false, 2 * stride..3 * stride)));
    let mut run = frame[..2 * stride].to_vec();
    assert_eq!(take_headers_off(&mut run, stride, one.bytes()), 16);
    assert_eq!(run[..16], *b"1234567812345678");
}

fn any_header() -> impl Strategy<Value = RouteHeader> {
    let nodes = prop::collection::vec(any::<[u8; ID_BYTES]>().prop_map(NodeId), LEAST_NODES..=MAX_NODES);
    (nodes, any::<u8>(), any::<u32>(), 0..3usize).prop_map(|(nodes, place, origin, course)| RouteHeader {
        course: [Course::Forward, Course::Backward, Course::Refusal][course],
        place: place % nodes.len() as u8,
        origin,
        route: SourceRoute::unchecked(&nodes).unwrap(),
    })
}

proptest! {
    #[test]
    fn a_header_reads_back_and_not_from_less(header in any_header(), payload in prop::collection::vec(any::<u8>(), 0..40)) {
        let packet = packet(&header, &payload);
        prop_assert_eq!(RouteHeader::read(&packet), Some(header));
        prop_assert_eq!(packet.len(), header.bytes() + payload.len());
        prop_assert_eq!(header.bytes() % 8, 0);
        for len in 0..header.bytes() {
            prop_assert_eq!(RouteHeader::read(&packet[..len]), None);
        }
        let mut redirected = packet.clone();
        RouteHeader::redirect(&mut redirected, 1, 77);
        prop_assert_eq!(RouteHeader::read(&redirected), Some(RouteHeader { place: 1, origin: 77, ..header }));
    }

    #[test]
    fn whatever_is_read_is_written_alike(mut bytes in prop::collection::vec(any::<u8>(), 0..100), course in 0..5u8, count in 0..10u8) {
        if let Some(fixed) = bytes.first_chunk_mut::<4>() {
            *fixed = [ROUTED, course, count, fixed[3] % 9];
        }
        if let Some(header) = RouteHeader::read(&bytes) {
            prop_assert!(bytes.starts_with(header.write(&mut [0; MAX_ROUTE_HEADER_BYTES])));
        }
    }

    /// Whatever a client writes as its route, a packet visits each node once at most and then stops.
    #[test]
    fn no_packet_goes_round(nodes in prop::collection::vec(0..4u8, LEAST_NODES..=MAX_NODES)) {
        let ids: Vec<NodeId> = nodes.iter().map(|node| NodeId([*node; ID_BYTES])).collect();
        let mut header = RouteHeader::of_client(SourceRoute::unchecked(&ids).unwrap());
        let (mut from, mut visited) = (None, Vec::new());
        while let Ok(RouteStep::To(place)) = header.step(ids[usize::from(header.place)], from) {
            let own = ids[usize::from(header.place)];
            prop_assert!(!visited.contains(&own));
            visited.push(own);
            (header.place, from) = (place, Some(own));
        }
        prop_assert!(visited.len() < ids.len());
    }
}
