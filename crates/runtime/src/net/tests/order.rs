//! The order in which control and records leave, over either carrier.

use super::*;

/// The packets that a peer receives, in order, if packets of one, two and three records wait (the second is droppable) before
/// `control` is sent. The first packet is left out.
fn order_of<R: Rig>(control: &[(&str, TrafficClass)]) -> Vec<String> {
    let mut rig = R::new();
    let (carrier, mut wire) = rig.parts();
    carrier.bound_queue(&mut wire, 64);
    // The first may be with the peer at once.
    send(&mut rig, KEPT, &records(1, 8));
    send(&mut rig, DROPPABLE, &records(2, 64));
    send(&mut rig, KEPT, &records(3, 64));
    for (text, class) in control {
        let (carrier, mut wire) = rig.parts();
        carrier.send_control(&mut wire, text.as_bytes(), *class);
    }
    rig.receive().iter().map(name_of).filter(|name| name != "1").collect()
}

/// Control by its text, records by their number.
pub(super) fn name_of(packet: &Received) -> String {
    match packet.kind {
        PacketKind::Control => String::from_utf8(packet.payload.clone()).unwrap(),
        _ => packet.records.to_string(),
    }
}

const OF_DROPPABLE: Follows = Follows::Origin(Origin::Stream(DROPPABLE.subscription));

pub(super) fn control_leaves_before_waiting_records_unless_it_follows_them<R: Rig>() {
    let order = order_of::<R>(&[
        ("after two", TrafficClass::Notice(OF_DROPPABLE)),
        ("first", TrafficClass::Exchange(Follows::Nothing)),
        ("last", TrafficClass::Notice(Follows::Everything)),
        ("after that", TrafficClass::Notice(OF_DROPPABLE)),
    ]);
    assert_eq!(order, ["first", "2", "after two", "after that", "3", "last"]);
}

pub(super) fn replies_leave_in_order_and_notices_do_not_wait_for_them<R: Rig>() {
    let order = order_of::<R>(&[
        ("after two", TrafficClass::Exchange(OF_DROPPABLE)),
        ("next", TrafficClass::Exchange(Follows::Nothing)),
        ("first", TrafficClass::Notice(Follows::Nothing)),
    ]);
    assert_eq!(order, ["first", "2", "after two", "next", "3"]);
}
