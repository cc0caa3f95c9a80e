//! The duties of only one of the carriers, or does in another way.

use super::*;

#[test]
fn the_end_of_a_session_over_packets_reaches_its_peer() {
    let mut rig = Packets::new();
    let (carrier, mut wire) = rig.parts();
    carrier.end(&mut wire, "closed", None);
    assert!(rig.receive().is_empty());
    let (carrier, mut wire) = rig.parts();
    carrier.end(&mut wire, "closed", Some(Close { again: true, reason: "enough".to_owned() }));
    let mut frames = Vec::new();
    assert_eq!(rig.far.receive(&mut rig.far_pool, &mut frames, 8).unwrap(), 1);
    let close = Close::decode(&frames[0].buffer[HEADER_BYTES..frames[0].len]);
    assert_eq!((close.again, close.reason.as_str()), (true, "enough"));
}

#[test]
fn control_keeps_its_order_while_the_inbox_is_full() {
    let mut rig = Memory::new();
    let mut drafts = Vec::new();
    for bytes in [64 << 10, 4 << 10, 512, 64, 1] {
        while let Ok(draft) = rig.world.host.begin_send(rig.attached.client, bytes) {
            drafts.push(draft);
        }
    }
    send(&mut rig, KEPT, &records(1, 8));
    let of_kept = Follows::Origin(Origin::Stream(KEPT.subscription));
    for (text, class) in [
        ("after the record", TrafficClass::Exchange(of_kept)),
        ("next", TrafficClass::Exchange(Follows::Nothing)),
        ("first", TrafficClass::Notice(Follows::Nothing)),
    ] {
        let (carrier, mut wire) = rig.parts();
        carrier.send_control(&mut wire, text.as_bytes(), class);
    }
    assert!(rig.client.next(DOWN).is_none() && rig.attached.is_behind());
    drop(drafts);
    let received = rig.receive();
    let order: Vec<String> = received.iter().map(name_of).collect();
    assert_eq!(order, ["first", "1", "after the record", "next"]);
}

#[test]
fn an_attached_client_that_has_gone_is_sent_nothing_and_holds_nothing() {
    let (mut rig, mut output) = (Memory::new(), Output::default());
    push(&mut rig, &mut output, KEPT, 7, &records(20_000, 160));
    let Memory { world, attached, .. } = &mut rig;
    assert!(!attached.leaves());
    attached.leave(&mut world.host, &mut world.poller);
    assert!(attached.leaves());
    attached.send_control(&mut world.wire(), b"too late", IN_PLACE);
    assert_eq!(attached.untaken_control_bytes(&world.host), 0);
    attached.end(&mut world.wire(), "gone", None);
    drop(output);
    rig.take();
    assert_eq!(rig.held_bytes(), 0);
    assert_eq!(rig.world.counters.detached(), [("gone".to_owned(), 1)]);
}

#[test]
fn only_an_attached_client_has_ports_and_short_subscription_numbers() {
    let (mut packets, mut memory) = (Packets::new(), Memory::new());
    let (carrier, mut wire) = packets.parts();
    assert!(carrier.open_port(&mut wire, "none", Side::Read, PortOptions::default()).is_none());
    assert!(carrier.close_port(&mut wire, 0).is_none());
    assert!(carrier.subscription_numbers().contains(&0) && carrier.subscription_numbers().contains(&u32::MAX));
    let (carrier, mut wire) = memory.parts();
    assert!(carrier.open_port(&mut wire, "none", Side::Read, PortOptions::default()).is_some_and(|o| o.is_err()));
    assert_eq!(carrier.close_port(&mut wire, 0), Some(false));
    assert_eq!(carrier.subscription_numbers(), 1..=32767);
}
