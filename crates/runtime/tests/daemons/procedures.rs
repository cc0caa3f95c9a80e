//! Procedures that programs serve by name, and calls of them, against a context, with both sides by shared memory and by packets.

use crossdock_nectarine::{
    CallError, Error, Implementation, MailboxOptions, Node, Procedure, Service, Transport, Writer,
};
use crossdock_runtime::{ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// Longest request and result over packets.
const MOST_OVER_PACKETS: usize = 65_440 - 24;
/// Calls of one caller at a time.
const MOST_CALLS: u32 = 64;
/// Callers of one service at a time.
const MOST_CALLERS: usize = 24;

fn start(listen: SocketAddr) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

/// Runs a test with a node for the service and one for its callers, for each pair of transports.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
fn with_nodes(test: impl Fn(&Node, &Node)) {
    let (_context, addr) = start((Ipv4Addr::LOCALHOST, 0).into());
    let node = |way| Node::builder(&addr).transport(way).connect().unwrap();
    for serves in [Transport::Shm, Transport::Udp] {
        for calls in [Transport::Shm, Transport::Udp] {
            println!("served by {serves}, called by {calls}");
            test(&node(serves), &node(calls));
        }
    }
}

fn echo(node: &Node, name: &str) -> Service {
    let echo = |request: &[u8], reply: &mut Vec<u8>| {
        reply.extend_from_slice(request);
        Ok(())
    };
    node.serve(name, echo).unwrap()
}

/// A procedure that reports each call's first byte when it begins, and ends it at a signal of the test.
fn controlled(node: &Node, name: &str) -> (Service, mpsc::Receiver<u8>, mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let service = node.serve(name, move |request, reply| {
        begun.send(request[0]).unwrap();
        ends.recv().unwrap();
        reply.extend_from_slice(request);
        Ok(())
    });
    (service.unwrap(), begins, end)
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what} within 20 s");
        std::thread::yield_now();
    }
}

#[track_caller]
fn echoes(procedure: &Procedure, request: &[u8]) {
    let reply = procedure.call(request, PATIENCE).unwrap();
    assert!(*reply == *request, "{} bytes came back as {}", request.len(), reply.len());
    procedure.end_reply(reply);
}

#[test]
fn results_are_what_the_procedure_made_of_the_request() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let procedure = calls.procedure("echo").unwrap();
        assert_eq!((service.name(), procedure.name()), ("echo", "echo"));
        let all: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        for bytes in [0, 1, 23, 24, 64, 4072, 4073, 40_000, MOST_OVER_PACKETS] {
            echoes(&procedure, &all[..bytes]);
        }
        for bytes in [MOST_OVER_PACKETS + 1, 1 << 20] {
            let result = procedure.call(&all[..bytes], PATIENCE);
            match (serves.transport(), calls.transport()) {
                (Transport::Shm, Transport::Shm) => assert!(*result.unwrap() == all[..bytes]),
                // A request is put into the service's mailbox, and a result into the caller's.
                (_, Transport::Shm) => {
                    let CallError::ReplyTooLong { bytes: long, most } = result.unwrap_err() else { panic!("{bytes}") };
                    assert_eq!((long, most), (bytes, MOST_OVER_PACKETS));
                }
                _ => {
                    let CallError::TooLong { bytes: long, most } = result.unwrap_err() else { panic!("{bytes}") };
                    assert_eq!((long, most), (bytes, MOST_OVER_PACKETS));
                }
            }
            echoes(&procedure, b"and the next one");
        }
    });
}

#[test]
fn errors_are_values_and_the_service_goes_on() {
    with_nodes(|serves, calls| {
        let service = serves.serve("divide", |request, reply| {
            let [dividend, divisor] = *request else { return Err(format!("{} numbers", request.len())) };
            reply.push(dividend / divisor); // and panics for 0
            Ok(())
        });
        let service = service.unwrap();
        let divide = calls.procedure("divide").unwrap();
        assert_eq!(*divide.call(&[84, 2], PATIENCE).unwrap(), [42]);
        let error = divide.call(&[1, 2, 3], PATIENCE).unwrap_err();
        assert!(matches!(&error, CallError::Failed(text) if text == "3 numbers"), "{error}");
        let error = divide.call(&[1, 0], PATIENCE).unwrap_err();
        assert!(matches!(&error, CallError::Panicked(text) if text.contains("divide by zero")), "{error}");
        assert_eq!(*divide.call(&[9, 3], PATIENCE).unwrap(), [3]);
        assert_eq!((service.counts().calls, service.counts().failed), (4, 2));

        let error = calls.procedure("multiply").unwrap_err();
        assert!(matches!(&error, CallError::NoProcedure(name) if name == "multiply"), "{error}");
        for name in ["", "a/b", &"n".repeat(201)] {
            assert!(matches!(calls.procedure(name), Err(CallError::Node(Error::ProcedureName { .. }))));
            assert!(matches!(serves.serve(name, |_, _| Ok(())), Err(Error::ProcedureName { .. })));
        }
        // A second one is refused on whatever node it comes from, until the first has stopped.
        for node in [serves, calls] {
            let error = node.serve("divide", |_, _| Ok(())).unwrap_err();
            assert!(matches!(&error, Error::Exists(text) if text.contains("procedure `divide`")), "{error}");
        }
        service.stop();
        drop(calls.serve("divide", |_, _| Ok(())).unwrap());
        let error = divide.call(&[84, 2], PATIENCE).unwrap_err();
        assert!(matches!(error, CallError::Gone { .. }), "{error}: no later service gets it");
    });
}

#[test]
fn a_call_that_was_given_up_is_not_begun_and_its_late_result_is_dropped() {
    with_nodes(|serves, calls| {
        let (service, begins, end) = controlled(serves, "controlled");
        let procedure = calls.procedure("controlled").unwrap();
        let first = procedure.begin_call(&[1], PATIENCE).unwrap();
        assert_eq!(begins.recv().unwrap(), 1);
        let second = procedure.call(&[2], Duration::ZERO).unwrap_err();
        assert!(matches!(second, CallError::DeadlinePassed), "{second}");
        let third = procedure.begin_call(&[3], PATIENCE).unwrap();
        drop(first);
        let fourth = procedure.begin_call(&[4], PATIENCE).unwrap();
        drop(third);
        end.send(()).unwrap();
        let mut late = 0;
        loop {
            let begun = begins.recv().unwrap();
            end.send(()).unwrap();
            if begun == 4 {
                break;
            }
            // Over packets the service may not know yet.
            let by_packets = serves.transport() == Transport::Udp || calls.transport() == Transport::Udp;
            assert!(begun == 3 && by_packets, "{begun} was given up");
            late += 1;
        }
        assert_eq!(*fourth.wait().unwrap(), [4]);
        // One whose result is late, behind one in time.
        let fifth = procedure.begin_call(&[5], PATIENCE).unwrap();
        assert_eq!(begins.recv().unwrap(), 5);
        drop(fifth);
        let sixth = procedure.begin_call(&[6], PATIENCE).unwrap();
        end.send(()).unwrap();
        end.send(()).unwrap();
        assert_eq!(*sixth.wait().unwrap(), [6]);
        let counts = service.counts();
        assert_eq!(counts.calls, 4 + late, "{counts:?}");
        // The second one may have had no place any more when its deadline passed.
        assert!(counts.skipped == 2 - late || counts.skipped == 1 - late, "{counts:?}");
    });
}

#[test]
fn many_calls_of_many_callers_are_outstanding_and_waited_for_in_any_order() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        std::thread::scope(|scope| {
            for caller in 0..3u32 {
                scope.spawn(move || {
                    let procedure = calls.procedure("echo").unwrap();
                    for round in 0..4 {
                        let request = |call: u32| [caller, round, call].map(u32::to_le_bytes).concat();
                        let begin = |call| procedure.begin_call(&request(call), PATIENCE);
                        let mut begun: Vec<_> = (0..MOST_CALLS).map(|call| (call, begin(call).unwrap())).collect();
                        assert!(matches!(begin(99), Err(CallError::TooManyCalls { most: 64 })));
                        if round % 2 == 0 {
                            begun.reverse();
                        }
                        for (call, pending) in begun {
                            assert_eq!(*pending.wait().unwrap(), request(call));
                        }
                    }
                });
            }
        });
        let counts = service.counts();
        assert_eq!((counts.calls, counts.failed, counts.skipped), (3 * 4 * u64::from(MOST_CALLS), 0, 0));
        assert_eq!((counts.malformed, counts.refused, counts.lost_replies), (0, 0, 0));
    });
}

#[test]
fn more_than_both_mailboxes_hold_is_called_and_waited_for_from_the_last_on() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let procedure = calls.procedure("echo").unwrap();
        let is_memory = serves.transport() == Transport::Shm && calls.transport() == Transport::Shm;
        let bytes = if is_memory { 2 << 20 } else { 60_000 };
        let request = |call: u32| vec![call as u8; bytes];
        let begun: Vec<_> =
            (0..MOST_CALLS).map(|call| (call, procedure.begin_call(&request(call), PATIENCE).unwrap())).collect();
        for (call, pending) in begun.into_iter().rev() {
            assert!(*pending.wait().unwrap() == request(call), "{call}");
        }
        assert_eq!(service.counts().lost_replies, 0);
    });
}

#[test]
fn calls_of_a_service_that_ends_end_with_it() {
    with_nodes(|serves, calls| {
        let (service, begins, end) = controlled(serves, "controlled");
        let procedure = calls.procedure("controlled").unwrap();
        let first = procedure.begin_call(&[1], PATIENCE).unwrap();
        let second = procedure.begin_call(&[2], PATIENCE).unwrap();
        assert_eq!(begins.recv().unwrap(), 1);
        let dropping = std::thread::spawn(move || drop(service));
        // The mailbox that takes callers in ends first.
        until("nobody is taken in", || matches!(calls.procedure("controlled"), Err(CallError::NoProcedure(_))));
        end.send(()).unwrap();
        dropping.join().unwrap();
        let error = second.wait().unwrap_err();
        assert!(matches!(error, CallError::Gone { .. }), "{error}");
        // It was carried out; whether its result was quicker than the end cannot be said.
        let first = first.wait();
        assert!(matches!(&first, Ok(reply) if **reply == [1]) || matches!(first, Err(CallError::Gone { .. })));
        assert!(begins.recv().is_err(), "the second one was not begun");
        assert!(matches!(procedure.call(&[3], PATIENCE), Err(CallError::Gone { .. })));
    });
}

#[test]
fn callers_that_go_make_room_for_others() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let mut callers: Vec<_> = (0..MOST_CALLERS).map(|_| calls.procedure("echo").unwrap()).collect();
        let error = calls.procedure("echo").unwrap_err();
        assert!(matches!(&error, CallError::TooManyCallers { name } if name == "echo"), "{error}");
        callers.iter().for_each(|procedure| echoes(procedure, b"one of many"));
        // One goes with calls on their way.
        let last = callers.pop().unwrap();
        let call = last.begin_call(b"nobody waits", PATIENCE).unwrap();
        drop(call);
        drop(last);
        until("there is room for one", || service.counts().callers < MOST_CALLERS);
        callers.push(calls.procedure("echo").unwrap());
        callers.iter().for_each(|procedure| echoes(procedure, b"still one of many"));
        drop(callers);
        until("all are forgotten", || service.counts().callers == 0);
    });
}

#[test]
fn a_service_that_was_stopped_has_left_its_name_to_any_program() {
    with_nodes(|one, other| {
        for node in [one, other].into_iter().cycle().take(50) {
            echo(node, "echo").stop();
        }
    });
}

/// A message as the library makes it.
fn message(kind: u16, number: u64, body: &[u8]) -> Vec<u8> {
    let deadline_us = if kind == REQUEST { u64::MAX } else { 0 };
    let version = 1u16.to_le_bytes();
    [&version[..], &kind.to_le_bytes(), &[0; 4], &number.to_le_bytes(), &deadline_us.to_le_bytes(), body].concat()
}

const HELLO: u16 = 1;
const REQUEST: u16 = 4;
const REPLY: u16 = 6;

#[test]
fn messages_of_a_hostile_caller_are_counted_and_dropped() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let good = calls.procedure("echo").unwrap();
        let put = |to: &mut Writer, messages: &[Vec<u8>]| messages.iter().for_each(|message| to.put(message).unwrap());
        let mut hellos = calls.writer("rpc.echo").unwrap();
        let no_hellos = [
            Vec::new(),
            vec![0; 23],
            vec![255; 60_000],
            message(REQUEST, 1, b"to the wrong mailbox"),
            message(HELLO, 7, b"with more behind it"),
            message(HELLO, 7, &[]), // there is no mailbox for the answer
        ];
        put(&mut hellos, &no_hellos);
        until("they are dropped", || service.counts().malformed == 6);

        // A caller of our own, whose mailbox for results has room for one.
        let one = MailboxOptions { bound_messages: Some(1), ..MailboxOptions::default() };
        calls.create_mailbox("rpc-reply.echo.0000000000000007", one).unwrap();
        let mut replies = calls.reader("rpc-reply.echo.0000000000000007").unwrap();
        put(&mut hellos, &[message(HELLO, 7, &[])]);
        let welcome = replies.begin_get_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(*welcome, message(2, 7, &[]));
        replies.end_get(welcome);
        // It says hello again, and is not taken in twice.
        put(&mut hellos, &[message(HELLO, 7, &[])]);
        until("it is dropped", || service.counts().malformed == 7);

        let mut requests = calls.writer("rpc-request.echo.0000000000000007").unwrap();
        let no_requests =
            [Vec::new(), vec![1; 100], message(REPLY, 1, b"x"), message(HELLO, 1, &[]), message(99, 1, &[])];
        put(&mut requests, &no_requests);
        until("they are dropped", || service.counts().malformed == 12);
        // At most once, whatever comes how often.
        let call = message(REQUEST, 5, b"five");
        put(&mut requests, &[call.clone(), call, message(REQUEST, 4, b"four")]);
        until("they are dropped", || service.counts().repeated == 2);
        let reply = replies.begin_get_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(*reply, message(REPLY, 5, b"five"));
        replies.end_get(reply);
        // It takes no result any more, and delays nobody else.
        put(&mut requests, &[6, 7, 8, 9].map(|number| message(REQUEST, number, &[0; 100])));
        echoes(&good, b"a good caller's");
        let before = service.counts().malformed;
        assert_eq!((service.counts().callers, before), (2, 12));
        drop((requests, replies));
        calls.delete_mailbox("rpc-reply.echo.0000000000000007").unwrap();
        until("it is forgotten", || service.counts().callers == 1);
        echoes(&good, b"another of a good caller");
    });
}

/// Such a mailbox may be gone without its writers learning of it, and its caller would be one as long as the service is.
#[test]
fn hellos_with_mailboxes_of_many_writers_take_no_callers_place() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let many = MailboxOptions { implementation: Implementation::SignalQueue, ..MailboxOptions::default() };
        let mut hellos = calls.writer("rpc.echo").unwrap();
        for number in 0..MOST_CALLERS as u64 {
            calls.create_mailbox(&format!("rpc-reply.echo.{number:016x}"), many).unwrap();
            hellos.put(&message(HELLO, number, &[])).unwrap();
        }
        echoes(&calls.procedure("echo").unwrap(), b"a good caller's");
        assert_eq!(service.counts().malformed, MOST_CALLERS as u64);
        (0..MOST_CALLERS).for_each(|number| calls.delete_mailbox(&format!("rpc-reply.echo.{number:016x}")).unwrap());
    });
}

/// The number is in the names of the caller's mailboxes, for all to see.
#[test]
fn hellos_in_another_callers_name_leave_it_alone() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        calls.create_mailbox("rpc-reply.echo.0000000000000007", MailboxOptions::default()).unwrap();
        let mut replies = calls.reader("rpc-reply.echo.0000000000000007").unwrap();
        let mut hellos = calls.writer("rpc.echo").unwrap();
        hellos.put(&message(HELLO, 7, &[])).unwrap();
        let welcome = replies.begin_get_timeout(PATIENCE).unwrap().unwrap();
        replies.end_get(welcome);
        // The service has all the callers that it may have.
        let _others: Vec<_> = (1..MOST_CALLERS).map(|_| calls.procedure("echo").unwrap()).collect();
        (0..100).for_each(|_| hellos.put(&message(HELLO, 7, &[])).unwrap());
        until("they are dropped", || service.counts().malformed == 100);
        assert_eq!((service.counts().callers, service.counts().refused), (MOST_CALLERS, 0));
        // Whatever they were answered came before this.
        let mut requests = calls.writer("rpc-request.echo.0000000000000007").unwrap();
        requests.put(&message(REQUEST, 1, b"one")).unwrap();
        let reply = replies.begin_get_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(*reply, message(REPLY, 1, b"one"));
        replies.end_get(reply);
    });
}

#[test]
fn callers_without_room_for_the_answer_delay_no_other() {
    with_nodes(|serves, calls| {
        let service = echo(serves, "echo");
        let one = MailboxOptions { bound_messages: Some(1), ..MailboxOptions::default() };
        let mailbox = |number: u64| format!("rpc-reply.echo.{number:016x}");
        let hostile = MOST_CALLERS as u64 - 1;
        for number in 0..hostile {
            calls.create_mailbox(&mailbox(number), one).unwrap();
            let mut full = calls.writer(&mailbox(number)).unwrap();
            full.put(b"full").unwrap();
            full.flush().unwrap();
        }
        // Behind this, the daemon knows that they were closed.
        calls.create_mailbox("all closed", one).unwrap();
        let mut hellos = calls.writer("rpc.echo").unwrap();
        (0..hostile).for_each(|number| hellos.put(&message(HELLO, number, &[])).unwrap());
        echoes(&calls.procedure("echo").unwrap(), b"a good caller's");
        if serves.transport() == Transport::Shm {
            assert_eq!(service.counts().refused, hostile);
        }
        (0..hostile).for_each(|number| calls.delete_mailbox(&mailbox(number)).unwrap());
        calls.delete_mailbox("all closed").unwrap();
    });
}

#[test]
fn every_service_of_a_node_has_room_for_all_its_callers() {
    let (_context, addr) = start((Ipv4Addr::LOCALHOST, 0).into());
    let serves = Node::connect(&addr).unwrap();
    let services = ["one", "two", "three"].map(|name| (name, echo(&serves, name), Node::connect(&addr).unwrap()));
    let procedures: Vec<Procedure> = services
        .iter()
        .flat_map(|(name, _, calls)| (0..MOST_CALLERS).map(|_| calls.procedure(name).unwrap()))
        .collect();
    procedures.iter().for_each(|procedure| echoes(procedure, b"one of many"));
    // And the program has its own mailboxes beside them.
    let own: Vec<Writer> = (0..60)
        .map(|number| {
            let name = format!("own {number}");
            serves.create_mailbox(&name, MailboxOptions::default()).unwrap();
            serves.writer(&name).unwrap()
        })
        .collect();
    assert_eq!(own.len(), 60);
    assert!(services.iter().all(|(_, service, _)| service.counts().callers == MOST_CALLERS));
}

#[test]
fn a_caller_may_keep_any_number_of_results() {
    with_nodes(|serves, calls| {
        let _service = echo(serves, "echo");
        let procedure = calls.procedure("echo").unwrap();
        let request = |number: u32| number.to_le_bytes();
        let kept: Vec<_> = (0..300).map(|number| procedure.call(&request(number), PATIENCE).unwrap()).collect();
        // Long ones too, where they can be longer than a packet.
        let is_memory = serves.transport() == Transport::Shm && calls.transport() == Transport::Shm;
        let lengths = if is_memory { [16 << 10, 5 << 20, 15 << 20] } else { [16 << 10, 40_000, 60_000] };
        let long = lengths.map(|bytes| (bytes, procedure.call(&vec![7; bytes], PATIENCE).unwrap()));
        assert!(kept.iter().zip(0..).all(|(reply, number)| **reply == request(number)));
        assert!(long.iter().all(|(bytes, reply)| reply.len() == *bytes && reply.iter().all(|byte| *byte == 7)));
    });
}

/// Each of them sends more than a service may hold to write in, and takes no result.
#[test]
fn callers_that_take_no_results_leave_the_service_memory_for_others() {
    let mut config = ContextConfig { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..ContextConfig::default() };
    config.host.client_bytes = 16 << 20;
    config.host.max_message_bytes = 4 << 20;
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    let [serves, hostile, good] = [(); 3].map(|()| Node::connect(&addr).unwrap());
    let service = echo(&serves, "echo");
    let one = MailboxOptions { bound_messages: Some(1), ..MailboxOptions::default() };
    let mut hellos = hostile.writer("rpc.echo").unwrap();
    let callers: Vec<_> = (0..6u64)
        .map(|number| {
            let name = format!("rpc-reply.echo.{number:016x}");
            hostile.create_mailbox(&name, one).unwrap();
            let mut replies = hostile.reader(&name).unwrap();
            hellos.put(&message(HELLO, number, &[])).unwrap();
            // It is not ended: the mailbox holds its bound.
            let welcome = replies.begin_get_timeout(PATIENCE).unwrap().unwrap();
            let mut requests = hostile.writer(&format!("rpc-request.echo.{number:016x}")).unwrap();
            for call in 1..4 {
                requests.put(&message(REQUEST, call, &vec![1; 3 << 20])).unwrap();
            }
            (welcome, replies, requests)
        })
        .collect();
    let procedure = good.procedure("echo").unwrap();
    for _ in 0..300 {
        echoes(&procedure, b"a good caller's");
    }
    echoes(&procedure, &vec![2; 3 << 20]);
    assert_eq!(service.counts().callers, callers.len() + 1);
}

#[test]
fn another_mailbox_of_a_services_name_is_no_service() {
    let (_context, addr) = start((Ipv4Addr::LOCALHOST, 0).into());
    let node = Node::builder(&addr).connect_timeout(Duration::from_millis(100)).connect().unwrap();
    let many = MailboxOptions { implementation: Implementation::SignalQueue, ..MailboxOptions::default() };
    node.create_mailbox("rpc.mute", many).unwrap();
    let error = node.procedure("mute").unwrap_err();
    assert!(matches!(error, CallError::DeadlinePassed), "{error}");
    assert!(matches!(node.serve("mute", |_, _| Ok(())), Err(Error::Exists(_))));
}

#[test]
fn a_service_ends_with_its_daemon_and_can_be_started_again() {
    for (serves, calls) in [(Transport::Shm, Transport::Udp), (Transport::Udp, Transport::Shm)] {
        let (context, addr) = start((Ipv4Addr::LOCALHOST, 0).into());
        let node = |way| Node::builder(&addr).transport(way).connect().unwrap();
        let (serves, calls) = (node(serves), node(calls));
        let service = echo(&serves, "echo");
        let procedure = calls.procedure("echo").unwrap();
        echoes(&procedure, b"before");
        assert!(service.is_running());
        context.stop().unwrap();
        let error = procedure.call(b"nobody is there", PATIENCE).unwrap_err();
        assert!(matches!(error, CallError::Gone { .. }), "{error}");
        service.wait().unwrap_err();
        let (_again, _) = start(addr.parse().unwrap());
        let service = echo(&serves, "echo");
        let procedure = calls.procedure("echo").unwrap();
        echoes(&procedure, b"after");
        drop(service);
        // A procedure outlives the node that it came from.
        drop(calls);
        assert!(matches!(procedure.call(b"late", PATIENCE), Err(CallError::Gone { .. })));
    }
}
