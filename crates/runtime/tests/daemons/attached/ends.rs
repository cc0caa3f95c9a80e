//! The ends of clients and daemons: what a client held is returned, and nobody else has to wait.

use super::child::Child;
use super::session::{Came, Session, await_that, get, numbers, numbers_in, patience, put, start};
use crossdock_mailbox::attach::{AttachAddr, AttachError};
use crossdock_mailbox::client::{Attachment, MailboxError};
use crossdock_runtime::tasks::procedure;
use crossdock_runtime::{Allowed, ContextHandle};
use crossdock_transport::control::{Implementation, RefusalCode};
use crossdock_transport::{HEADER_BYTES, Request};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};

/// Whether no buffer of a domain is in use but those that the clients which are there were granted.
fn is_all_free(context: &ContextHandle) -> bool {
    let domains = context.context().unwrap().domains;
    let in_use: u32 = domains.iter().map(|domain| domain.shared_buffers + domain.inbox_buffers).sum();
    in_use == context.clients().unwrap().iter().map(|client| client.buffers_held).sum::<u32>()
}

#[test]
fn a_killed_client_leaves_everything_behind_it_to_the_others() {
    let (context, _) = start(|_| {});
    let mut survivor = Session::attach(&context);
    survivor.create("work", Implementation::SignalQueue);
    survivor.create("other work", Implementation::Rings);
    let (mut writer, mut reader) = (survivor.open_writer("work"), survivor.open_reader("work"));
    survivor.announce(1, "N");
    for round in 0..3 {
        await_that("an empty mailbox", || context.mailboxes().unwrap().iter().all(|m| m.depth == 0));
        for number in 0..50u32 {
            put(&mut writer, &number.to_le_bytes()).unwrap();
        }
        let child = Child::start("holder", &context, None);
        let of_child = context.clients().unwrap().into_iter().find(|c| c.pid == child.pid()).unwrap();
        assert!(of_child.buffers_held > 64 && of_child.bytes_held > 3 << 20, "{of_child:?}");
        assert_eq!((of_child.publishes.as_slice(), of_child.subscriptions), (&["held".to_owned()][..], 2));
        // The survivor's records wait for the child too, which reads nothing.
        survivor.publish(1, 0, 1000).unwrap();
        child.kill();
        await_that("the child's end", || context.clients().unwrap().len() == 1);
        // The five that it had are gone with it, as read; the others are all there, in order.
        for number in 5..50u32 {
            assert_eq!(get(&mut reader), number.to_le_bytes(), "round {round}");
        }
        let mailboxes = context.mailboxes().unwrap();
        let there = mailboxes.iter().filter(|mailbox| mailbox.owner != "deleted");
        assert_eq!(there.map(|m| m.name.as_str()).collect::<Vec<_>>(), ["other work", "work"]);
        assert!(context.subscriptions().unwrap().is_empty());
        // The core answers after it has taken what was freed.
        survivor.attachment.call(procedure::ECHO, 0, patience()).unwrap();
        await_that("every buffer", || is_all_free(&context));
    }
    assert_eq!(context.context().unwrap().detached, [("gone".to_owned(), 3)]);
}

#[test]
fn records_that_a_killed_client_has_sent_out_of_a_mailbox_are_published_and_no_others() {
    let (context, _) = start(|_| {});
    for _ in 0..3 {
        let mut subscriber = Session::attach(&context);
        let mut publisher = Session::attach(&context);
        publisher.announce(1, "N");
        let format = subscriber.subscribe(1, "SELECT * FROM N", None);
        let child = Child::start("sender", &context, None);
        child.kill();
        await_that("the child's end", || context.clients().unwrap().len() == 2);
        publisher.finish(1);
        let (found, dropped) = subscriber.collect(1, &format);
        assert_eq!((found, dropped), ((0..9).collect(), 0));
        publisher.attachment.call(procedure::ECHO, 0, patience()).unwrap();
        await_that("every buffer", || is_all_free(&context));
        drop((publisher, subscriber));
        await_that("the others' ends", || context.clients().unwrap().is_empty());
    }
}

#[test]
fn a_killed_client_leaves_its_circuit_to_the_next() {
    let (context, _) = start(|config| config.max_circuit_bytes = 1 << 20);
    let child = Child::start("circuit", &context, None);
    let mut next = Session::attach(&context);
    let (code, message) = next.refused(|id| Request::OpenCircuit { id, bytes: 1 << 20 });
    assert!(code == RefusalCode::Limit && message.contains("0 of 1048576 are left"), "{message}");
    child.kill();
    await_that("the child's end", || context.clients().unwrap().len() == 1);
    next.must(|id| Request::OpenCircuit { id, bytes: 1 << 20 });
    let (code, _) = next.refused(|id| Request::OpenCircuit { id, bytes: 1 });
    assert_eq!(code, RefusalCode::State);
}

#[test]
fn a_stopped_client_delays_nobody_else() {
    let (context, _) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Session::attach(&context);
    publisher.announce(1, "N");
    publisher.create("work", Implementation::SignalQueue);
    publisher.create("echoed", Implementation::Rings);
    publisher.create("echo", Implementation::Rings);
    publisher.task("echo", "echo", &[("to", "echoed")]);
    let child = Child::start("reader", &context, None);
    child.stop();
    let mut beside = Session::attach(&context);
    let format = beside.subscribe(1, "SELECT * FROM N", None);
    let reading = std::thread::spawn(move || beside.collect(1, &format));
    publisher.publish(1, 0, 100_000).unwrap();
    publisher.finish(1);
    let (found, dropped) = reading.join().unwrap();
    assert!(dropped == 0 && found == (0..100_000).collect::<Vec<_>>());
    let (mut writer, mut reader) = (publisher.open_writer("echo"), publisher.open_reader("echoed"));
    for number in 0..1000u32 {
        put(&mut writer, &number.to_le_bytes()).unwrap();
        assert_eq!(get(&mut reader), number.to_le_bytes());
    }
    // It is stopped, not gone.
    assert_eq!(context.clients().unwrap().len(), 2);
    let subscriptions = context.subscriptions().unwrap();
    assert!(subscriptions[0].dropped > 0 && subscriptions[0].backlog_bytes < 2 << 20, "{subscriptions:?}");
    child.kill();
    await_that("its end", || context.clients().unwrap().len() == 1);
}

#[test]
fn a_restarted_daemon_is_attached_to_again() {
    let (context, addr) = start(|_| {});
    let session = Session::attach(&context);
    let at = context.attach_addr().unwrap().clone();
    let waiting = std::thread::spawn({
        let mut session = Session::attach(&context);
        move || session.next().unwrap_err()
    });
    context.stop().unwrap();
    let error = waiting.join().unwrap();
    assert!(matches!(&error, MailboxError::Gone { reason, .. } if reason.contains("shutting down")), "{error}");
    await_that("the end", || session.attachment.is_gone());
    assert!(matches!(Attachment::connect(&at).unwrap_err(), AttachError::Absent { .. }));
    let (context, _) = start(|c| c.listen = addr.parse().unwrap());
    assert_eq!(context.attach_addr(), Some(&at));
    let mut session = Session::attach(&context);
    session.create("a", Implementation::Rings);
    assert_eq!(context.clients().unwrap().len(), 1);
}

#[test]
fn records_published_before_the_end_reach_their_subscribers() {
    const COUNT: u64 = 200;
    let (context, _) = start(|_| {});
    context.declare_stream("N", &numbers()).unwrap().unwrap();
    let mut subscriber = Session::attach(&context);
    let format = subscriber.subscribe(5, "SELECT number FROM N", None);
    for number in 0..COUNT {
        let mut publisher = Session::attach(&context);
        publisher.announce(1, "N");
        // The hang-up may be noticed before the rings are looked at, and must not overtake what is in them.
        publisher.publish(1, number, number + 1).unwrap();
    }
    let mut found = Vec::new();
    while found.len() < COUNT as usize {
        if let Came::Data(_, header, message) = subscriber.next().unwrap() {
            found.extend(numbers_in(&format, &message[HEADER_BYTES..][..header.payload_bytes.into()]));
        }
    }
    assert_eq!(found, Vec::from_iter(0..COUNT));
}

#[test]
fn a_client_that_asks_to_go_goes() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    let header = crossdock_transport::Header::new(crossdock_transport::PacketKind::Control, 0);
    let request = crossdock_transport::ControlMessage::Request(crossdock_transport::Request::Terminate);
    session.send(header, &request.encode()).unwrap();
    await_that("the end", || session.attachment.is_gone());
    assert_eq!(context.context().unwrap().detached, [("terminated".to_owned(), 1)]);
    drop(Session::attach(&context));
    await_that("the other's end", || context.clients().unwrap().is_empty());
}

/// Once a client is attached, its socket only says that it is there.
#[test]
fn a_client_that_says_more_than_its_request_is_detached_and_nobody_else_notices() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    let AttachAddr::Abstract(name) = context.attach_addr().unwrap() else { panic!("a name") };
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    for ended in 1..=3 {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &name).unwrap();
        for said in [&b"xdockshm\x06\0\0\0\x03\0\0\0\x01\0\0\0"[..], b"and more", &[0; 10_000]] {
            // It may be detached before it has said all.
            let _ = send(&socket, said, SendFlags::NOSIGNAL);
        }
        await_that("its end", || context.context().unwrap().detached == [("gone".to_owned(), ended)]);
        assert_eq!(context.clients().unwrap().len(), 1);
    }
    session.create("a", Implementation::Rings);
}

#[test]
fn domains_reach_one_another_by_one_copy() {
    const NOBODY: u32 = 65_534;
    let may_switch = std::process::Command::new("true");
    let mut may_switch = may_switch;
    if std::os::unix::process::CommandExt::uid(&mut may_switch, NOBODY).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "this process may not become another user");
        eprintln!("skipped: this process may not become another user");
        return;
    }
    let (context, _) = start(|c| c.attach.uids = Allowed::Any);
    let mut session = Session::attach(&context);
    session.create("requests", Implementation::Rings);
    session.create("replies", Implementation::SignalQueue);
    session.announce(1, "N");
    let (mut requests, mut replies) = (session.open_writer("requests"), session.open_reader("replies"));
    let mut child = Child::start("neighbour", &context, Some(NOBODY));
    let clients = context.clients().unwrap();
    let of_child = clients.iter().find(|client| client.pid == child.pid()).unwrap();
    assert_eq!((of_child.uid, of_child.domain.as_str()), (NOBODY, "uid 65534"));
    for number in 0..101u32 {
        let message = number.to_le_bytes().repeat(1000);
        put(&mut requests, &message).unwrap();
        assert_eq!(get(&mut replies), message);
    }
    session.publish(1, 0, 20_000).unwrap();
    session.finish(1);
    assert_eq!(child.line(), format!("20000 {} 0", (0..20_000u64).sum::<u64>()));
    child.kill();
    await_that("its end", || context.context().unwrap().domains.len() == 2);
}
