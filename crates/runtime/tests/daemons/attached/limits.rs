//! Each resource that is used up is reported in its own words.

use super::session::{Session, numbers, patience, payloads, start};
use crossdock_mailbox::attach::AttachError;
use crossdock_mailbox::client::{Attachment, MailboxError};
use crossdock_runtime::{Allowed, ContextHandle};
use crossdock_transport::control::{Implementation, Overflow, RefusalCode, Side};
use crossdock_transport::{ControlMessage, FormatName, Header, PacketKind, Request, Unreadable};

fn refused(context: &ContextHandle) -> String {
    match Attachment::connect(context.attach_addr().unwrap()).unwrap_err() {
        AttachError::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn no_more_clients_than_there_may_be() {
    let (context, _) = start(|c| c.host.max_clients = 2);
    // They may use mailboxes, so all are for the home context. Each I/O context takes two.
    let contexts = 1 + crate::contexts::further().count();
    let one = Session::attach(&context);
    let _two = Session::attach(&context);
    let reason = refused(&context);
    assert!(reason.contains("all of its 2 attached clients in use") && reason.contains("max_clients"), "{reason}");
    drop(one);
    super::session::await_that("a place", || context.clients().unwrap().len() == 1);
    Session::attach(&context);
    assert_eq!(context.context().unwrap().max_clients as usize, 2 * contexts);
}

#[test]
fn a_process_that_may_not_attach_gets_the_reason() {
    let (context, _) = start(|c| c.attach.uids = Allowed::List(vec![4_000_000_000]));
    assert!(refused(&context).contains("`uids`"));
    let (context, _) = start(|c| c.attach.gids = Allowed::List(Vec::new()));
    assert!(refused(&context).contains("`gids`"));
    let (context, _) = start(|c| c.attach.enabled = false);
    assert_eq!(context.attach_addr(), None);
}

#[test]
fn no_more_mailboxes_than_there_may_be() {
    let (context, _) = start(|c| c.host.max_mailboxes = 1);
    let mut session = Session::attach(&context);
    session.create("a", Implementation::Rings);
    let implementation = Implementation::Rings;
    let (code, words) = session.refused(|id| Request::CreateMailbox {
        id,
        name: "b".into(),
        implementation,
        bound_messages: None,
        bound_bytes: None,
    });
    assert!(code == RefusalCode::Limit && words.contains("max_mailboxes"), "{words}");
    session.must(|id| Request::DeleteMailbox { id, name: "a".into() });
    session.create("b", implementation);
}

#[test]
fn no_more_memory_than_there_may_be() {
    let (context, _) = start(|c| {
        c.host.shared_bytes = 8 << 20;
        c.host.client_bytes = 64 << 20;
        c.host.max_message_bytes = 16 << 20;
    });
    let mut session = Session::attach(&context);
    for (name, implementation) in [("a", Implementation::Rings), ("b", Implementation::SignalQueue)] {
        session.create(name, implementation);
        let mut writer = session.open_writer(name);
        let mut held = Vec::new();
        let error = loop {
            match writer.try_begin_put(1 << 20) {
                Ok(Some(put)) => held.push(put),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            assert!(held.len() < 9, "more than there is");
        };
        assert!(matches!(error, None | Some(MailboxError::NoBuffers)), "{error:?}");
        let error = writer.begin_put((16 << 20) + 1, patience()).unwrap_err();
        assert!(matches!(error, MailboxError::TooLong { .. }), "{error}");
        // A resource that is given back can be had again.
        drop(held);
        let put = writer.begin_put(1 << 20, patience()).unwrap();
        drop(put);
    }
    let (context, _) = start(|c| c.host.client_bytes = 4 << 20);
    let mut session = Session::attach(&context);
    session.create("c", Implementation::SignalQueue);
    let mut writer = session.open_writer("c");
    let _held: Vec<_> = std::iter::from_fn(|| writer.try_begin_put(1 << 20).unwrap_or(None)).collect();
    let error = writer.try_begin_put(1 << 20).map(|put| put.is_some());
    assert!(matches!(error, Ok(false) | Err(MailboxError::Quota)), "{error:?}");
    let error = writer.begin_put(5 << 20, patience()).unwrap_err();
    assert!(matches!(error, MailboxError::Quota), "{error}");
}

/// Kinds of packets that a session over shared memory has no use for, or not in this place.
const STRAY: [PacketKind; 5] =
    [PacketKind::Hello, PacketKind::Ack, PacketKind::Ping, PacketKind::Message, PacketKind::Close];

/// One packet of a session that may say anything: its bytes, from the header on.
fn any_packet(random: &mut fastrand::Rng) -> Vec<u8> {
    let requests = [
        Request::Announce {
            id: 1,
            stream: random.u32(0..3),
            name: "R".into(),
            format: numbers().describe(),
            publication: None,
            key: Vec::new(),
        },
        Request::Subscribe {
            id: 2,
            subscription: random.u32(0..3),
            sql: ["SELECT * FROM R", "SELECT number FROM R WHERE grp < 3", "SELEKT"][random.usize(0..3)].into(),
            overflow: [None, Some(Overflow::DropOldest), Some(Overflow::Disconnect)][random.usize(0..3)],
            wait: random.bool(),
            accept: (0..random.u32(0..3)).map(FormatName::Version).collect(),
            unreadable: [None, Some(Unreadable::Hold), Some(Unreadable::Drop)][random.usize(0..3)],
            row_errors: Default::default(),
            positions: false,
            one_format: false,
        },
        Request::Unsubscribe { id: 3, subscription: random.u32(0..3) },
        Request::Finish { id: 4, stream: random.u32(0..3) },
        Request::OpenMailbox {
            id: 5,
            name: "m".into(),
            side: Side::Read,
            message_bytes: random.bool().then(|| random.u32(..)),
            ahead: None,
        },
        Request::OpenMailbox {
            id: 5,
            name: "m".into(),
            side: Side::Write,
            message_bytes: None,
            ahead: random.bool().then(|| random.u32(..)),
        },
        Request::CloseMailbox { id: 6, number: random.u16(0..4) },
        Request::GetMessages { number: random.u16(0..4), messages: random.u32(..), held: vec![random.u32(0..4)] },
        Request::DeleteMailbox { id: 7, name: "m".into() },
        Request::EndTask { id: 8, mailbox: "m".into() },
        Request::Terminate,
    ];
    let (kind, payload) = match random.u32(0..10) {
        0..6 => {
            (PacketKind::Control, ControlMessage::Request(requests[random.usize(..requests.len())].clone()).encode())
        }
        6..9 => (PacketKind::Data, payloads(0, random.u64(1..50), 4000).swap_remove(0).0),
        _ => (STRAY[random.usize(0..5)], vec![0; random.usize(0..100)]),
    };
    let header = Header {
        stream: random.u32(0..3),
        format: numbers().id().0,
        records: random.u16(0..30),
        ..Header::new(kind, 0)
    };
    let mut packet = header.packet(&payload).unwrap();
    // Now and then, anything anywhere, or less of it.
    if random.u32(0..20) == 0 {
        let at = random.usize(..packet.len());
        packet[at] = random.u8(..);
    }
    if random.u32(0..40) == 0 {
        packet.truncate(random.usize(..packet.len()));
    }
    packet
}

#[test]
fn whatever_a_session_says_nobody_else_notices() {
    let (context, _) = start(|c| c.queue_bytes = 1 << 20);
    let mut good = Session::attach(&context);
    good.announce(1, "N");
    good.create("m", Implementation::SignalQueue);
    let mut random = fastrand::Rng::with_seed(7);
    let mut disconnected = 0;
    for round in 0..30u64 {
        let mut odd = Session::attach(&context);
        for _ in 0..200 {
            let packet = any_packet(&mut random);
            let Ok(mut put) = odd.writer.begin_put(packet.len(), patience()) else { break };
            put.copy_from_slice(&packet);
            if odd.writer.end_put(put).is_err() {
                break;
            }
            // It takes its answers, mostly.
            while random.u32(0..10) != 0 && odd.reader.try_begin_get().is_ok_and(|message| message.is_some()) {}
        }
        disconnected += u32::from(odd.attachment.is_gone());
        let mut reader = Session::attach(&context);
        let format = reader.subscribe(1, "SELECT * FROM N WHERE number >= 0", None);
        good.announce(1, "N");
        good.publish(1, round * 100, (round + 1) * 100).unwrap();
        good.finish(1);
        assert_eq!(reader.collect(1, &format).0, (round * 100..(round + 1) * 100).collect::<Vec<_>>());
    }
    assert!(disconnected > 10, "{disconnected}");
    super::session::await_that("their ends", || context.clients().unwrap().len() == 1);
}
