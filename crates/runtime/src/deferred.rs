//! Packets that a peer sends while one of its requests is with the planner or the catalog: they wait, in order, until
//! the answer is there. So a session's requests take effect in the order in which they were sent, and so do its records.
//!
//! A session over packets can have at most its credit waiting, for data and for control: neither is renewed once a packet
//! of its waits. An attached client's packets stay in its own memory, and it gets no new buffers.

use crate::context::{Context, InWork};
use crate::net::frames::Data;
use crate::net::payload::Deferred;
use crate::net::peers::PeerRef;
use crate::pending::Pending;
use crate::refusal::refuse;
use crossdock_transport::Reply;
use crossdock_transport::control::RefusalCode;

impl Context {
    /// From here on the packets of a peer wait, until this request of its is answered.
    pub(crate) fn pause(&mut self, key: usize, id: u32) -> Option<Pending> {
        let (peer, inbox) = (self.net.pause(key)?, self.inbox.own().clone());
        // The context may have stopped.
        let go_on = move |unanswered| drop(inbox.post(move |context| context.refuse_lost(peer, unanswered)));
        Some(Pending::new(peer, id, go_on))
    }

    /// Answers a request for which a peer was paused, and goes on with what it has sent meanwhile.
    pub(crate) fn answer_with(&mut self, pending: &Pending, reply: Reply) {
        // It may have gone meanwhile.
        if let Some(key) = self.net.still_there(pending.peer()) {
            self.send_control(key, &reply.into());
        }
        self.go_on_unanswered(pending);
    }

    /// Goes on with what a peer has sent since it was paused; its request has been answered, or is later.
    pub(crate) fn go_on_unanswered(&mut self, pending: &Pending) {
        pending.settle();
        if let Some(key) = self.net.still_there(pending.peer()) {
            self.resume(key);
        }
    }

    /// A request was lost before its peer went on, which is a mistake of Crossdock's, or its peer has gone. With the request's
    /// number if it has no answer.
    fn refuse_lost(&mut self, peer: PeerRef, unanswered: Option<u32>) {
        let Some(key) = self.net.still_there(peer) else { return };
        if let Some(id) = unanswered {
            let refusal = refuse(RefusalCode::State, "the request failed because of a bug in the daemon");
            self.send_control(key, &Reply::Refused { id, refusal }.into());
        }
        self.resume(key);
    }

    /// Takes what a peer has sent since it was paused, up to the next request that pauses it.
    pub(crate) fn resume(&mut self, key: usize) {
        if !self.net.unpause(key) {
            return;
        }
        if self.net.note_lagging(key) {
            return self.tick_lagging();
        }
        while let Some(deferred) = self.net.next_deferred_packets(key) {
            match deferred {
                Deferred::Packets { buffer, header, spans, stride } => {
                    self.in_work = Some(InWork::Deferred(key));
                    self.deliver(key, Data { buffer, header, spans: &spans, stride }, 0);
                    self.in_work = None;
                }
                Deferred::End(why) => return self.remove_peer(key, why, None),
            }
        }
        self.grant_credit(key);
        self.net.touch(key);
    }

    /// A session over packets has ended: at once, or behind what waits.
    pub(crate) fn end_session(&mut self, key: usize, why: &'static str) {
        if !self.net.defer_end(key, why) {
            self.remove_peer(key, why, None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crate::config::ContextConfig;
    use crate::handle::ContextHandle;
    use crate::inbox::Inbox;
    use crate::morph::Accept;
    use crossdock_format::Format;
    use crossdock_transport::control::RowErrors;
    use crossdock_transport::{ControlMessage, FormatName, HEADER_BYTES, Header, Hello, PacketKind, Request, Welcome};
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::time::Duration;

    /// A client of the daemon's that takes replies.
    struct Client {
        socket: UdpSocket,
        session: u32,
        seq: u64,
        next: u64,
    }

    impl Client {
        fn connect(daemon: SocketAddr, number: u64) -> Client {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.connect(daemon).unwrap();
            // Only a broken build waits so long.
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut client = Client { socket, session: 0, seq: 0, next: 0 };
            let hello = Hello {
                nonce: number,
                session: number as u32,
                packet_bytes: 1472,
                window_bytes: 16 * 1472,
                uses_mailboxes: false,
            };
            client.socket.send(&hello.packet()).unwrap();
            client.session = Welcome::decode(&client.receive(PacketKind::Welcome).1).unwrap().session;
            client
        }

        fn receive(&self, kind: PacketKind) -> (Header, Vec<u8>) {
            let mut packet = [0; 65_536];
            loop {
                let len = self.socket.recv(&mut packet).unwrap();
                let header = Header::read(&packet[..len]).unwrap();
                if header.kind == kind {
                    return (header, packet[HEADER_BYTES..len].to_vec());
                }
            }
        }

        fn send(&mut self, request: Request) {
            let header = Header { seq: self.seq, ..Header::new(PacketKind::Control, self.session) };
            self.seq += 1;
            let payload = ControlMessage::Request(request).encode();
            self.socket.send(&header.packet(&payload).unwrap()).unwrap();
        }

        /// A subscription to a stream of one format that accepts this format only.
        fn subscribe(id: u32) -> Request {
            Request::Subscribe {
                id,
                subscription: 1,
                sql: "SELECT * FROM N".into(),
                overflow: None,
                wait: false,
                accept: vec![FormatName::Version(1)],
                unreadable: None,
                row_errors: RowErrors::default(),
                positions: false,
                one_format: false,
            }
        }

        /// A subscription that waits for its stream.
        fn subscribe_and_wait(id: u32) -> Request {
            Request::Subscribe {
                id,
                subscription: 1,
                sql: "SELECT * FROM N".into(),
                overflow: None,
                wait: true,
                accept: Vec::new(),
                unreadable: None,
                row_errors: RowErrors::default(),
                positions: false,
                one_format: false,
            }
        }

        fn expect_lost(&mut self, id: u32, why: &str) {
            let lost = self.reply();
            let Reply::Refused { id: refused, refusal } = lost else { panic!("{lost:?}") };
            assert_eq!((refused, refusal.message), (id, format!("{why} failed because of a bug in the daemon")));
        }

        /// The answer to a request that was sent behind another one.
        fn expect_next(&mut self, id: u32) {
            let next = self.reply();
            assert!(matches!(next, Reply::Refused { id: next, .. } if next == id), "{next:?}");
        }

        fn reply(&mut self) -> Reply {
            loop {
                let (header, payload) = self.receive(PacketKind::Control);
                // Nothing acknowledges what came before, so it may come again.
                if header.seq < self.next {
                    continue;
                }
                self.next = header.seq + 1;
                match ControlMessage::decode(&payload).unwrap() {
                    ControlMessage::Reply(reply) => return reply,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A panic on the control thread, in a context, or in what waits there for something else.
    #[test]
    fn a_request_that_is_lost_by_a_panic_is_refused_and_its_session_goes_on() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let mut client = Client::connect(daemon.local_addr(), 7);
        let losing: [fn(&mut Context, Pending); 4] = [
            |context, pending| context.inbox.own().ask(context.streams.catalog(), move |_| lose(pending), |_, ()| {}),
            |context, pending| context.inbox.own().ask(context.streams.catalog(), |_| (), move |_, ()| lose(pending)),
            |context, pending| context.plan(|_| (), move |_, _| lose(pending)),
            |context, pending| context.plan(move |_| lose(pending), |_, _| {}),
        ];
        for (id, lose) in (1..).zip(losing) {
            let (inboxes, _) = daemon.inside();
            let begun = inboxes[0].run(move |context| {
                let key = context.net.peers().next().unwrap().0;
                let pending = context.pause(key, id).unwrap();
                lose(context, pending);
            });
            begun.unwrap();
            client.send(Request::CountSubscriptions { id: 100 + id, stream: 1 });
            client.expect_lost(id, "the request");
            client.expect_next(100 + id);
        }
        // The control thread goes on as well.
        assert_eq!(daemon.streams().unwrap().len(), 0);
        daemon.stop().unwrap();
    }

    /// Two clients subscribe, as if routes were being planned meanwhile, so that both get theirs at once next: of these, `bad`
    /// panic from the second one on.
    fn subscribe_both(inbox: &Inbox, key: usize, clients: &mut [Client; 2], bad: u32) {
        // Not before what has left is planned for.
        let begin = move |context: &mut Context| {
            let (has_left, stream) = (context.morph.has_left(), context.streams.get_mut(key).unwrap());
            let is_idle = !has_left && !stream.is_planned() && !stream.needs_routes();
            stream.note_planned(is_idle || stream.is_planned());
            is_idle
        };
        while !inbox.run(begin).unwrap() {
            std::thread::yield_now();
        }
        for (before, client) in clients.iter_mut().enumerate() {
            client.send(Client::subscribe(1));
            client.send(Request::CountSubscriptions { id: 100, stream: 1 });
            while inbox.run(|context| context.subscriptions.len()).unwrap() == before {
                std::thread::yield_now();
            }
        }
        let replan = move |context: &mut Context| {
            context.graph.panic_in_routes(1, bad);
            context.streams.get_mut(key).unwrap().note_planned(false);
            context.replan(key);
        };
        inbox.run(replan).unwrap();
    }

    /// Two subscriptions get their routes at once, and the context panics at the second. It gets them with a second plan; with
    /// another panic it is refused. Both sessions go on.
    #[test]
    fn a_subscription_whose_routes_are_lost_by_panics_is_refused_and_its_session_goes_on() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let mut clients = [7, 8].map(|number| Client::connect(daemon.local_addr(), number));
        let (inboxes, catalog) = daemon.inside();
        let format = Format::parse_schema("n i64").unwrap();
        let key = catalog.run(move |catalog| catalog.declare("N", &format)).unwrap().unwrap() as usize;
        for bad in [1, 2, 2] {
            subscribe_both(&inboxes[0], key, &mut clients, bad);
            let [first, second] = &mut clients;
            let stands = |client: &mut Client| {
                let stands = client.reply();
                assert!(matches!(stands, Reply::Subscribed { id: 1, .. }), "{stands:?}");
            };
            stands(first);
            first.expect_next(100);
            match bad {
                1 => stands(second),
                _ => second.expect_lost(1, "planning"),
            }
            second.expect_next(100);
            // The planner's answer that other requests wait for has come as well.
            inboxes[0].wait_for_routes("N".to_owned()).unwrap();
            let of_second = if bad == 1 { "Done" } else { "Refused" };
            for (client, reply) in [(first, "Done"), (second, of_second)] {
                client.send(Request::Unsubscribe { id: 2, subscription: 1 });
                let ended = client.reply();
                assert!(format!("{ended:?}").starts_with(reply), "{ended:?}");
            }
        }
        daemon.stop().unwrap();
    }

    /// The context panics as a new format's routes are installed: no record of it comes before all are, or until a second
    /// panic ends that.
    #[test]
    fn subscriptions_that_stand_get_the_routes_that_a_panic_left() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let mut clients = [7, 8].map(|number| Client::connect(daemon.local_addr(), number));
        let (inboxes, catalog) = daemon.inside();
        let declare = |schema: &str| {
            let format = Format::parse_schema(schema).unwrap();
            catalog.run(move |catalog| catalog.declare("N", &format)).unwrap().unwrap() as usize
        };
        let key = declare("n i64");
        subscribe_both(&inboxes[0], key, &mut clients, 0);
        for client in &mut clients {
            let stands = client.reply();
            assert!(matches!(stands, Reply::Subscribed { id: 1, .. }), "{stands:?}");
        }
        let routes = move |context: &mut Context| {
            let stream = context.streams.get(key).unwrap();
            let accepts = stream.subscriptions().iter().map(|key| context.subscriptions.accept(*key).unwrap());
            accepts.map(Accept::known_routes).collect::<Vec<usize>>()
        };
        for (schema, bad, after) in [("n i64\nm i64", 1, 2), ("n i64\nk i64", 2, 2)] {
            inboxes[0].run(move |context| context.graph.panic_in_routes(0, bad)).unwrap();
            declare(schema);
            inboxes[0].wait_for_routes("N".to_owned()).unwrap();
            assert_eq!(inboxes[0].run(routes).unwrap(), [after; 2], "{schema}");
        }
        // With the next change there is another try.
        inboxes[0].run(move |context| context.replan(key)).unwrap();
        while inboxes[0].run(routes).unwrap() != [3; 2] {
            std::thread::yield_now();
        }
        assert_eq!(inboxes[0].run(|context| context.graph.gauges().panics.get()).unwrap(), 3);
        daemon.stop().unwrap();
    }

    /// Two subscriptions wait for their stream, and the context panics as it takes in the stream's first format, before or behind the
    /// first one's answer. Both are answered all the same, once.
    #[test]
    fn subscriptions_that_wait_are_answered_also_where_a_format_is_taken_in_twice() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        for good in [0, 1] {
            let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
            let mut clients = [7, 8].map(|number| Client::connect(daemon.local_addr(), number));
            let (inboxes, catalog) = daemon.inside();
            for (before, client) in clients.iter_mut().enumerate() {
                client.send(Client::subscribe_and_wait(1));
                while inboxes[0].run(|context| context.subscriptions.len()).unwrap() == before {
                    std::thread::yield_now();
                }
            }
            inboxes[0].run(move |context| context.graph.panic_in_updates(good, 1)).unwrap();
            let format = Format::parse_schema("n i64").unwrap();
            catalog.run(move |catalog| catalog.declare("N", &format)).unwrap().unwrap();
            for client in &mut clients {
                let stands = client.reply();
                assert!(matches!(stands, Reply::Subscribed { id: 1, .. }), "{stands:?}");
            }
            assert_eq!(inboxes[0].run(|context| context.graph.gauges().panics.get()).unwrap(), 1);
            daemon.stop().unwrap();
        }
    }

    fn lose(_pending: Pending) {
        panic!("as the test wants");
    }
}
