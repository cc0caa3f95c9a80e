//! What is used up says so, each in its own words.

use crate::session::{Session, patience, start};
use crossdock_mailbox::attach::AttachError;
use crossdock_mailbox::client::{Attachment, MailboxError};
use crossdock_runtime::{Allowed, ContextHandle};
use crossdock_transport::Request;
use crossdock_transport::control::{Implementation, RefusalCode};

fn refused(context: &ContextHandle) -> String {
    match Attachment::connect(context.attach_addr().unwrap()).unwrap_err() {
        AttachError::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn no_more_clients_than_there_may_be() {
    let (context, _) = start(|c| c.host.max_clients = 2);
    let one = Session::attach(&context);
    let _two = Session::attach(&context);
    let reason = refused(&context);
    assert!(reason.contains("all of its 2 attached clients in use") && reason.contains("max_clients"), "{reason}");
    drop(one);
    crate::session::await_that("a place", || context.clients().unwrap().len() == 1);
    Session::attach(&context);
    assert_eq!(context.context().unwrap().max_clients, 2);
}

#[test]
fn who_may_not_attach_is_told_why() {
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
        // What is given back can be had again.
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
