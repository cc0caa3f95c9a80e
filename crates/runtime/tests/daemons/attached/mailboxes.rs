//! Mailboxes, tasks, services, calls.

use super::session::{Session, await_that, get, patience, put, start};
use crossdock_mailbox::Reason;
use crossdock_mailbox::attach::AttachRequest;
use crossdock_mailbox::client::{Attachment, Wait};
use crossdock_mailbox::host::{MailboxKey, Message};
use crossdock_runtime::tasks::{Core, Task, TaskSetup, procedure};
use crossdock_runtime::{ContextKind, ContextSpec, NodeAddress};
use crossdock_transport::control::{Implementation, RefusalCode, Side};
use crossdock_transport::secure::PrivateKey;
use crossdock_transport::{Reply, Request};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn a_task_runs_for_each_message_by_either_implementation() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    for (to, from, implementation) in [("a", "b", Implementation::Rings), ("c", "d", Implementation::SignalQueue)] {
        session.create(to, implementation);
        session.create(from, implementation);
        session.task("echo", to, &[("to", from)]);
        let (mut writer, mut reader) = (session.open_writer(to), session.open_reader(from));
        for number in 0..1000u32 {
            let message = number.to_le_bytes().repeat(1 + number as usize % 100);
            put(&mut writer, &message).unwrap();
            assert_eq!(get(&mut reader), message);
        }
        // Several under way at once keep their order.
        for number in 0..50u8 {
            put(&mut writer, &[number; 100]).unwrap();
        }
        for number in 0..50u8 {
            assert_eq!(get(&mut reader), [number; 100]);
        }
    }
    let info = &context.mailboxes().unwrap()[0];
    assert_eq!((info.name.as_str(), info.address.as_str(), info.upcall.as_deref()), ("a", "here/a", Some("echo")));
    assert_eq!((info.puts, info.gets, info.writers, info.readers), (1050, 1050, 1, 0));
    assert!(info.owner.starts_with(&format!(
        "client {} (pid {} ",
        session.attachment.client_number(),
        std::process::id()
    )));
    // It ends, and messages wait for a reader.
    session.must(|id| Request::EndTask { id, mailbox: "a".into() });
    let (code, _) = session.refused(|id| Request::EndTask { id, mailbox: "a".into() });
    assert_eq!(code, RefusalCode::UnknownTask);
    let mut reader = session.open_reader("a");
    let mut again = session.open_writer("c");
    put(&mut again, b"c").unwrap();
    assert!(reader.try_begin_get().unwrap().is_none());
}

#[test]
fn every_built_in_task_does_what_it_says() {
    let directory = std::env::temp_dir().join(format!("crossdock-tasks-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("file"), "what is in it").unwrap();
    let (context, _) = start(|c| {
        c.services.files = Some(directory.clone());
        c.services.dumps = Some(directory.clone());
    });
    let (lines, logged) = channel();
    context.log_to(move |line| lines.send(line.to_owned()).unwrap());
    let mut session = Session::attach(&context);
    session.create("replies", Implementation::SignalQueue);
    let mut replies = session.open_reader("replies");
    for task in ["copy", "sum", "discard", "log", "read_file", "dump"] {
        session.create(task, Implementation::Rings);
        let to = [("to", "replies")];
        session.task(task, task, if matches!(task, "discard" | "log") { &[] } else { &to });
    }
    let ask = |session: &mut Session, task: &str, message: &[u8]| {
        let mut writer = session.open_writer(task);
        put(&mut writer, message).unwrap();
        writer
    };
    let copied = vec![7; 1 << 20];
    let mut open = ask(&mut session, "copy", &copied);
    assert_eq!(get(&mut replies), copied);
    // Longer than a step may be: dropped, counted, and reported.
    put(&mut open, &[7; (1 << 20) + 1]).unwrap();
    await_that("the error", || {
        session.attachment.errors().iter().any(|e| e.reason == Some(Reason::TooLong) && e.detail == (1 << 20) + 1)
    });
    assert_eq!(context.context().unwrap().dropped, [("message_too_long".to_owned(), 1)]);
    let _open = ask(&mut session, "sum", &[255; 3]);
    assert_eq!(get(&mut replies), 765u64.to_le_bytes());
    let _open = ask(&mut session, "discard", b"gone");
    session.create("unanswered", Implementation::Rings);
    session.task("sum", "unanswered", &[]);
    let _open = ask(&mut session, "unanswered", &[1; 64]);
    await_that("a message that is read and freed", || {
        context.mailboxes().unwrap().iter().any(|m| m.name == "unanswered" && m.gets == 1 && m.bytes == 0)
    });
    let _open = ask(&mut session, "log", b"a line\nand no other");
    assert_eq!(logged.recv().unwrap(), "a line\\nand no other");
    let mut open = ask(&mut session, "read_file", b"file");
    assert_eq!(get(&mut replies), b"\0\0\0\0\0\0\0\0what is in it");
    put(&mut open, b"../file").unwrap();
    let refused = get(&mut replies);
    assert_eq!(refused[..8], 1u64.to_le_bytes());
    assert!(String::from_utf8_lossy(&refused[8..]).contains("cannot read \"../file\""), "{refused:?}");
    let _open = ask(&mut session, "dump", b"state");
    let name = String::from_utf8(get(&mut replies)[8..].to_vec()).unwrap();
    assert_eq!(std::fs::read(directory.join(name)).unwrap(), b"state");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn calls_go_both_ways() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    let number = session.attachment.client_number();
    assert_eq!(session.attachment.call(procedure::ECHO, 42, patience()), Ok(42));
    assert_eq!(session.attachment.call(procedure::OWN_NUMBER, 0, Wait::Poll), Ok(number.into()));
    assert_eq!(session.attachment.call(9999, 1, patience()), Ok(procedure::UNKNOWN));

    session.attachment.on_upcall(|procedure, argument| u64::from(procedure) * 1000 + argument).unwrap();
    session.create("calls", Implementation::Rings);
    session.create("results", Implementation::Rings);
    session.task("call", "calls", &[("procedure", "7"), ("to", "results")]);
    let (mut calls, mut results) = (session.open_writer("calls"), session.open_reader("results"));
    for argument in 0..200u64 {
        put(&mut calls, &argument.to_le_bytes()).unwrap();
        assert_eq!(get(&mut results), (7000 + argument).to_le_bytes());
    }
}

#[test]
fn an_embedder_brings_tasks_of_its_own() {
    struct Reverse(MailboxKey);
    impl Task for Reverse {
        fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
            let mut bytes = vec![0; message.len()];
            core.read(&message, 0, &mut bytes);
            bytes.reverse();
            let mut draft = core.begin_put(self.0, bytes.len()).unwrap();
            draft.copy_from_slice(&bytes);
            core.put(self.0, draft.finish(bytes.len()));
            core.free(message);
        }
    }
    let (context, _) = start(|_| {});
    let factory = |setup: &TaskSetup<'_>| {
        setup.only(&["to"])?;
        Ok(Box::new(Reverse(setup.mailbox("to")?)) as Box<dyn Task>)
    };
    context.register_task("reverse", Box::new(factory)).unwrap();
    let mut session = Session::attach(&context);
    session.create("a", Implementation::Rings);
    session.create("b", Implementation::Rings);
    session.task("reverse", "a", &[("to", "b")]);
    let (mut writer, mut reader) = (session.open_writer("a"), session.open_reader("b"));
    put(&mut writer, b"abc").unwrap();
    assert_eq!(get(&mut reader), b"cba");
}

#[test]
fn impossible_requests_are_refused_in_words() {
    let (context, addr) = start(|c| {
        let address = "192.0.2.1:7440".parse().unwrap();
        c.nodes =
            vec![NodeAddress { name: "east".into(), address, key: Some(PrivateKey::from_random([7; 32]).public()) }];
    });
    let (mut one, mut two) = (Session::attach(&context), Session::attach(&context));
    one.create("a", Implementation::Rings);
    let create = |name: &str| {
        let name = name.to_owned();
        move |id| Request::CreateMailbox {
            id,
            name,
            implementation: Implementation::Rings,
            bound_messages: None,
            bound_bytes: None,
        }
    };
    assert_eq!(two.refused(create("a")).0, RefusalCode::Exists);
    for name in ["", "a/b", "line\n", &"n".repeat(256)] {
        assert_eq!(two.refused(create(name)).0, RefusalCode::State);
    }
    let open = |name: &str, side| {
        let name = name.to_owned();
        move |id| Request::OpenMailbox { id, name, side, message_bytes: None, ahead: None }
    };
    assert_eq!(two.refused(open("b", Side::Read)).0, RefusalCode::UnknownMailbox);
    let _reader = one.open_reader("a");
    let (code, words) = two.refused(open("a", Side::Read));
    assert_eq!(code, RefusalCode::Busy);
    assert!(words.contains("signal_queue"), "{words}");
    let (code, words) = two.refused(|id| Request::DeleteMailbox { id, name: "a".into() });
    assert!(code == RefusalCode::State && words.contains("another client"), "{words}");
    let task = |task: &str, mailbox: &str, arguments: &[(&str, &str)]| {
        let arguments = arguments.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let (task, mailbox) = (task.to_owned(), mailbox.to_owned());
        move |id| Request::CreateTask { id, task, mailbox, arguments }
    };
    one.create("free", Implementation::SignalQueue);
    assert_eq!(one.refused(task("echo", "a", &[("to", "free")])).0, RefusalCode::Busy);
    let (code, words) = one.refused(task("dance", "free", &[]));
    assert!(code == RefusalCode::UnknownTask && words.contains("echo"), "{words}");
    assert_eq!(one.refused(task("echo", "none", &[])).0, RefusalCode::UnknownMailbox);
    for arguments in [&[][..], &[("to", "none")], &[("too", "free")]] {
        let (code, words) = one.refused(task("echo", "free", arguments));
        assert!(code == RefusalCode::State && words.contains("task `echo`"), "{words}");
    }
    assert_eq!(one.refused(|id| Request::CloseMailbox { id, number: 99 }).0, RefusalCode::State);
    let node = |name: &str| {
        let name = name.to_owned();
        move |id| Request::FindNode { id, name }
    };
    assert!(
        matches!(one.ask(node("")).unwrap(), Reply::Node { address, name, .. } if address == addr && name == "here")
    );
    let Reply::Node { address, key, .. } = one.ask(node("east")).unwrap() else { panic!("it is known") };
    assert_eq!(
        (address.as_str(), key),
        ("192.0.2.1:7440", Some(PrivateKey::from_random([7; 32]).public().to_string()))
    );
    let (code, words) = one.refused(node("west"));
    assert!(code == RefusalCode::UnknownNode && words.contains("east, here"), "{words}");
}

#[test]
fn a_task_begins_and_ends_at_the_request_of_the_mailboxs_owner() {
    let (context, _) = start(|_| {});
    let (mut one, mut two) = (Session::attach(&context), Session::attach(&context));
    for name in ["mine", "replies"] {
        one.create(name, Implementation::Rings);
    }
    let discard =
        |id| Request::CreateTask { id, task: "discard".into(), mailbox: "mine".into(), arguments: Default::default() };
    let end = |id| Request::EndTask { id, mailbox: "mine".into() };
    let (code, words) = two.refused(discard);
    assert!(code == RefusalCode::State && words.contains("another client"), "{words}");
    one.must(discard);
    let (code, words) = two.refused(end);
    assert!(code == RefusalCode::State && words.contains("another client"), "{words}");
    one.must(end);
    let itself = [("to".to_owned(), "mine".to_owned())];
    let (_, words) = one.refused(|id| Request::CreateTask {
        id,
        task: "echo".into(),
        mailbox: "mine".into(),
        arguments: itself.into(),
    });
    assert!(words.contains("own mailbox"), "{words}");
}

#[test]
fn a_task_puts_no_more_into_a_mailbox_than_its_bound() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    session.create("asked", Implementation::Rings);
    session.must(|id| Request::CreateMailbox {
        id,
        name: "slow".into(),
        implementation: Implementation::Rings,
        bound_messages: Some(4),
        bound_bytes: None,
    });
    session.task("copy", "asked", &[("to", "slow")]);
    let mut writer = session.open_writer("asked");
    (0..10).for_each(|_| put(&mut writer, b"again").unwrap());
    let of_slow = || context.mailboxes().unwrap().into_iter().find(|mailbox| mailbox.name == "slow").unwrap();
    await_that("the drops", || context.context().unwrap().dropped.iter().any(|(_, count)| *count == 6));
    assert_eq!((of_slow().depth, of_slow().puts), (4, 4));
    // The task's creator is notified, and reading makes room again.
    await_that("the errors", || session.attachment.errors().iter().any(|error| error.reason == Some(Reason::Full)));
    let mut reader = session.open_reader("slow");
    (0..4).for_each(|_| assert_eq!(get(&mut reader), b"again"));
    put(&mut writer, b"more").unwrap();
    assert_eq!(get(&mut reader), b"more");
}

/// Whichever contexts their processes would be given to for anything else.
#[test]
fn two_clients_of_a_daemon_with_three_io_contexts_get_direct_rings() {
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    let (context, _) = start(|c| c.platform.contexts.extend([io.clone(), io]));
    let mut session = Session::attach(&context);
    let with_others = || {
        let request = AttachRequest { uses_mailboxes: false };
        let other = Attachment::connect_within(context.attach_addr().unwrap(), request, Duration::from_secs(20));
        (Session::attach(&context), Session::over(other.unwrap()))
    };
    let mut pairs: Vec<_> = (0..6).map(|_| with_others()).collect();
    let clients: Vec<u32> = context.io_contexts().unwrap().iter().map(|context| context.clients).collect();
    assert!(clients.iter().filter(|clients| **clients > 0).count() > 1, "{clients:?}");
    let mut sides = Vec::new();
    for (at, writes) in pairs.chunks_exact_mut(2).enumerate() {
        let name = format!("m{at}");
        session.create(&name, Implementation::Rings);
        let [(to, _), (from, _)] = writes else { panic!() };
        let mut reader = from.open_reader(&name);
        let mut writer = to.open_writer(&name);
        put(&mut writer, b"first").unwrap();
        assert_eq!(get(&mut reader), b"first");
        sides.push((writer, reader));
    }
    await_that("all are direct", || context.mailboxes().unwrap().iter().filter(|mailbox| mailbox.direct).count() == 3);
    for (writer, reader) in &mut sides {
        for number in 0..100u8 {
            put(writer, &[number]).unwrap();
            assert_eq!(get(reader), [number]);
        }
    }
    assert!(context.mailboxes().unwrap().iter().all(|mailbox| mailbox.direct && mailbox.gets == 101));
    // A client that does not say that it uses mailboxes gets none at a context that has none.
    let mut refused = 0;
    for (_, other) in &mut pairs {
        let (name, implementation) = ("m0".to_owned(), Implementation::Rings);
        let request = |id| Request::CreateMailbox { id, name, implementation, bound_messages: None, bound_bytes: None };
        let (code, words) = other.refused(request);
        refused += u32::from(code == RefusalCode::State && words.contains("uses mailboxes"));
    }
    assert!(refused > 0 && context.mailboxes().unwrap().len() == 3);
}

#[test]
fn a_full_mailbox_holds_its_writer_and_nobody_else() {
    let (context, _) = start(|_| {});
    let mut session = Session::attach(&context);
    session.must(|id| Request::CreateMailbox {
        id,
        name: "small".into(),
        implementation: Implementation::Rings,
        bound_messages: Some(4),
        bound_bytes: None,
    });
    let mut writer = session.open_writer("small");
    let mut put_so_far = 0u32;
    while let Some(mut put) = writer.try_begin_put(4).unwrap_or(None) {
        put.copy_from_slice(&put_so_far.to_le_bytes());
        writer.end_put(put).unwrap();
        put_so_far += 1;
        // The core settles what was put before it answers.
        session.attachment.call(procedure::ECHO, 0, patience()).unwrap();
        assert!(put_so_far < 1000, "no bound holds");
    }
    assert!(put_so_far >= 4);
    let info = &context.mailboxes().unwrap()[0];
    assert_eq!((info.depth, info.bound_messages), (put_so_far, 4));
    // The session goes on, another mailbox too; and once there is a reader, so does this one.
    session.create("other", Implementation::Rings);
    let (mut other, mut of_other) = (session.open_writer("other"), session.open_reader("other"));
    put(&mut other, b"x").unwrap();
    assert_eq!(get(&mut of_other), b"x");
    let mut reader = session.open_reader("small");
    let filled = put_so_far;
    let rest = std::thread::spawn(move || {
        for number in filled..filled + 1000 {
            put(&mut writer, &number.to_le_bytes()).unwrap();
        }
        writer
    });
    for number in 0..filled + 1000 {
        assert_eq!(get(&mut reader), number.to_le_bytes());
    }
    drop(rest.join().unwrap());
    await_that("an empty mailbox", || context.mailboxes().unwrap().iter().all(|mailbox| mailbox.depth == 0));
}
