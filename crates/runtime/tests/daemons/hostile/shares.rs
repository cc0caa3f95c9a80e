//! One address, or one user, cannot take all of a table.

use super::*;

#[test]
fn one_address_cannot_take_all_streams_and_mailboxes() {
    let (context, addr) = start_with(|config| {
        (config.max_streams, config.max_streams_per_peer) = (12, 8);
        (config.host.max_mailboxes, config.max_mailboxes_per_peer) = (12, 8);
    });
    let announce = |id: u32, name: String| Request::Announce {
        id,
        stream: id,
        name,
        format: format().describe(),
        publication: None,
        key: Vec::new(),
    };
    let create = |id: u32, name: String| {
        let (implementation, bound_messages, bound_bytes) = (Default::default(), None, None);
        Request::CreateMailbox { id, name, implementation, bound_messages, bound_bytes }
    };
    let refused = |reply: Reply| match reply {
        Reply::Refused { refusal, .. } => Some(refusal.message),
        Reply::Announced { .. } | Reply::Done { .. } => None,
        other => panic!("{other:?}"),
    };
    let mut builder = RecordBuilder::new(&format());
    builder.set(0, Value::Uint(1)).unwrap();
    builder.set(1, Value::Text(b"a stream with a record stays")).unwrap();
    let record = builder.finish().unwrap();
    // Over sessions that stay, and with those that leave, whose streams do.
    let mut sessions: Vec<Raw> = (0..4).map(|_| Raw::connect(&addr)).collect();
    for (at, session) in (0..).zip(&mut sessions) {
        session.greet().unwrap();
        for id in 4 * at + 1..=4 * at + 4 {
            let fits = id <= 8;
            for (request, key) in [
                (announce(id, format!("hostile {id}")), "max_streams_per_peer"),
                (create(100 + id, format!("hostile {id}")), "max_mailboxes_per_peer"),
            ] {
                let reason = refused(session.ask(request));
                let is_named = reason
                    .as_ref()
                    .is_some_and(|r| r.contains(key) && r.contains("address 127.0.0.1") && r.contains('8'));
                assert!(fits == reason.is_none() && fits != is_named, "{id}: {reason:?}");
            }
            if fits {
                session.send(PacketKind::Data, id, format().id().0, 1, record);
            }
        }
    }
    // A stream that is there already may be published all the same.
    assert_eq!(refused(sessions[3].ask(announce(50, "hostile 1".to_owned()))), None);
    sessions.iter_mut().for_each(|session| session.send(PacketKind::Close, 0, 0, 0, &[]));
    let mut again = Raw::connect(&addr);
    again.greet().unwrap();
    assert!(refused(again.ask(announce(1, "one more".to_owned()))).is_some());
    // Another address has room, and so has this machine's user.
    let mut other = Raw::connect_from("127.0.0.2", &addr);
    other.greet().unwrap();
    assert_eq!(refused(other.ask(announce(1, "other".to_owned()))), None);
    assert_eq!(refused(other.ask(create(2, "other".to_owned()))), None);
    let attached = Publisher::builder(&addr).transport(Transport::Shm).stream("own").format(&format()).connect();
    assert!(attached.is_ok());
    let node = Node::builder(&addr).transport(Transport::Shm).connect().unwrap();
    node.create_mailbox("own", MailboxOptions::default()).unwrap();
    context.stop().unwrap();
}

#[test]
fn one_address_cannot_take_all_sessions_and_subscriptions() {
    let (context, addr) = start_with(|config| {
        (config.max_sessions, config.max_sessions_per_peer) = (12, 8);
        (config.max_subscriptions, config.max_subscriptions_per_peer) = (12, 8);
    });
    let subscribed = |reply: Reply| match reply {
        Reply::Refused { refusal, .. } => Err(refusal.message),
        Reply::Subscribed { .. } => Ok(()),
        other => panic!("{other:?}"),
    };
    let is_named = |reason: &str, key: &str| reason.contains(key) && reason.contains("address 127.0.0.1");
    let _publisher =
        Publisher::builder(&addr).transport(Transport::Shm).stream("A").format(&format()).connect().unwrap();
    // Each I/O context has its tables. The kernel chooses the context of a session.
    let io_contexts = 1 + crate::contexts::further().count();
    let (mut sessions, mut refused) = (Vec::new(), None);
    while refused.is_none() {
        let mut session = Raw::connect(&addr);
        match session.greet() {
            Ok(()) => sessions.push(session),
            Err(close) => refused = Some(close.reason),
        }
    }
    assert!((8..=8 * io_contexts).contains(&sessions.len()), "{}", sessions.len());
    assert!(refused.as_deref().is_some_and(|reason| is_named(reason, "max_sessions_per_peer")), "{refused:?}");
    // The bound of subscriptions is one of all the address's sessions at a context, not of each.
    let (mut subscriptions, mut refused) = (0, None);
    for number in 1..=9 {
        for session in &mut sessions {
            match subscribed(session.ask(subscribe(number, "SELECT * FROM A"))) {
                Ok(()) => subscriptions += 1,
                Err(reason) => refused = Some(reason),
            }
        }
    }
    assert!((8..=8 * io_contexts).contains(&subscriptions), "{subscriptions}");
    assert!(refused.as_deref().is_some_and(|reason| is_named(reason, "max_subscriptions_per_peer")), "{refused:?}");
    // Another address has room, and so has this machine's user.
    let mut other = Raw::connect_from("127.0.0.2", &addr);
    other.greet().unwrap();
    subscribed(other.ask(subscribe(1, "SELECT * FROM A"))).unwrap();
    Subscriber::builder(&addr).transport(Transport::Shm).sql("SELECT * FROM A").connect().unwrap();
    // A client that leaves makes room for others of its origin.
    sessions[0].send(PacketKind::Close, 0, 0, 0, &[]);
    await_that("room for another session", || Raw::connect(&addr).greet().is_ok());
    context.stop().unwrap();
}

#[test]
fn one_user_cannot_take_all_places_of_attached_clients() {
    let (context, addr) = start_with(|config| config.max_sessions_per_peer = 3);
    let attach = || Node::builder(&addr).transport(Transport::Shm).connect();
    let mut clients: Vec<Node> = Vec::new();
    let error = loop {
        match attach() {
            Ok(client) => clients.push(client),
            Err(error) => break error.to_string(),
        }
    };
    assert!(clients.len() >= 3, "{}", clients.len());
    assert!(error.contains("max_sessions_per_peer") && error.contains("user "), "{error}");
    context.stop().unwrap();
}
