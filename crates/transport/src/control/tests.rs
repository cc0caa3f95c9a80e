//! Every message comes back as it was, and what was written before still reads.

use super::*;

#[test]
fn messages_come_back_and_unknown_keys_are_ignored() {
    let announce_with = |publication, key| Request::Announce {
        id: 1,
        stream: 2,
        name: "A".into(),
        format: "…".into(),
        publication,
        key,
    };
    let announce = |publication| announce_with(publication, Vec::new());
    let publication = Publication { publisher: PublisherId(u128::MAX / 3), first: 4 };
    let publisher = PublisherPosition { publisher: PublisherId(7), began: 3, position: u64::MAX, ended: true };
    let position = Position {
        epoch: u64::MAX,
        passed: 9,
        number: Some(7),
        left_out: Some(4),
        publishers: vec![publisher],
        unlisted: 1,
    };
    let messages: [ControlMessage; 16] = [
        Notice::Position { subscription: 3, position: position.clone() }.into(),
        Reply::Subscribed {
            id: 1,
            subscription: 3,
            format: "…".into(),
            activity: Activity::default(),
            position: Some(position),
            number: Some(12),
        }
        .into(),
        Request::CountSubscriptions { id: 4, stream: 1 }.into(),
        Request::OpenCircuit { id: 4, bytes: 1 << 20 }.into(),
        Request::UseDatagrams { id: 4 }.into(),
        Reply::Subscriptions { id: 4, subscriptions: 9 }.into(),
        Request::ReportMissed { subscription: 3, records: 17 }.into(),
        announce(None).into(),
        announce(Some(publication)).into(),
        announce_with(None, vec!["flight".into(), "day".into()]).into(),
        Reply::Announced {
            id: 1,
            most_record_bytes: 9,
            taken: Some(1 << 40),
            subscriptions: Some(2),
            durable: Some(7),
        }
        .into(),
        Reply::Announced { id: 1, most_record_bytes: 9, taken: None, subscriptions: None, durable: None }.into(),
        Request::ReportMalformed { subscription: 3 }.into(),
        Request::Terminate.into(),
        Reply::Refused { id: 1, refusal: Refusal { code: RefusalCode::Limit, message: "full".into() } }.into(),
        Notice::Dropped { subscription: 3, records: 4, cause: DropCause::QueueFull, reason: "queue full".into() }
            .into(),
    ];
    for message in messages {
        assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
    }
    let newer = br#"{"request":"finish","id":4,"stream":1,"why":"done"}"#;
    assert_eq!(ControlMessage::decode(newer), Ok(Request::Finish { id: 4, stream: 1 }.into()));
    let of = |publisher: &str| {
        let publication = format!(r#"{{"publisher":"{publisher}","first":0}}"#);
        let request =
            format!(r#"{{"request":"announce","id":1,"stream":2,"name":"A","format":"","publication":{publication}}}"#);
        ControlMessage::decode(request.as_bytes())
    };
    assert!(of("00000000000000000000000000000007").is_ok());
    for not_one in [
        "7",
        "",
        "+0000000000000000000000000000007",
        "000000000000000000000000000000007",
        "é000000000000000000000000000000",
    ] {
        assert!(of(not_one).is_err(), "{not_one}");
    }
    assert!(ControlMessage::decode(b"{\"request\":\"dance\"}").is_err());
    assert!(ControlMessage::decode(&[0xff; 9]).is_err());
}

#[test]
fn mailbox_messages_come_back() {
    let (name, reason) = (|| "orders".to_owned(), || "deleted".to_owned());
    let (bound_messages, bound_bytes) = (Some(9), Some(1 << 40));
    let implementation = Implementation::SignalQueue;
    let arguments = BTreeMap::from([("to".to_owned(), "replies".to_owned())]);
    let messages: Vec<ControlMessage> = vec![
        Request::CreateMailbox { id: 1, name: name(), implementation, bound_messages, bound_bytes }.into(),
        Request::DeleteMailbox { id: 2, name: name() }.into(),
        Request::OpenMailbox { id: 3, name: name(), side: Side::Write, message_bytes: Some(64), ahead: Some(8) }.into(),
        Request::OpenMailbox { id: 3, name: name(), side: Side::Read, message_bytes: None, ahead: None }.into(),
        Request::CloseMailbox { id: 4, number: 65_535 }.into(),
        Request::GetMessages { number: 7, messages: 16, held: Vec::new() }.into(),
        Request::GetMessages { number: 7, messages: 16, held: vec![0, 3] }.into(),
        Request::CreateTask { id: 5, task: "echo".into(), mailbox: name(), arguments }.into(),
        Request::EndTask { id: 6, mailbox: name() }.into(),
        Request::FindNode { id: 7, name: String::new() }.into(),
        Reply::MailboxOpened { id: 3, number: 2, port: Some(5), implementation, ahead: None }.into(),
        Reply::MailboxOpened { id: 3, number: 2, port: None, implementation, ahead: Some(16) }.into(),
        Reply::Node { id: 7, address: "[::1]:7440".into(), name: "east".into(), key: Some("07".repeat(32)) }.into(),
        Reply::Refused { id: 8, refusal: Refusal { code: RefusalCode::Busy, message: "taken".into() } }.into(),
        Notice::MailboxClosed { number: 2, reason: reason() }.into(),
        Notice::MayPut { number: 2, messages: 3 }.into(),
        Notice::MessagesDropped { number: 2, messages: 1 << 40, reason: reason() }.into(),
    ];
    for message in messages {
        assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn fields_left_out_of_a_mailbox_request_are_the_default() {
    let short = br#"{"request":"create_mailbox","id":1,"name":"a","colour":"red"}"#;
    let implementation = Implementation::Rings;
    let name = || "a".to_owned();
    let whole = Request::CreateMailbox { id: 1, name: name(), implementation, bound_messages: None, bound_bytes: None };
    assert_eq!(ControlMessage::decode(short), Ok(whole.clone().into()));
    let short = br#"{"request":"open_mailbox","id":1,"name":"a","side":"read"}"#;
    let open = Request::OpenMailbox { id: 1, name: name(), side: Side::Read, message_bytes: None, ahead: None };
    assert_eq!(ControlMessage::decode(short), Ok(open.into()));
    let short = br#"{"reply":"mailbox_opened","id":1,"number":4}"#;
    let opened = Reply::MailboxOpened { id: 1, number: 4, port: None, implementation, ahead: None };
    assert_eq!(ControlMessage::decode(short), Ok(opened.into()));
    let short = br#"{"request":"create_task","id":1,"task":"discard","mailbox":"a"}"#;
    let create = Request::CreateTask { id: 1, task: "discard".into(), mailbox: name(), arguments: BTreeMap::new() };
    assert_eq!(ControlMessage::decode(short), Ok(create.into()));
    for wrong in ["\"side\":\"sideways\"", "\"side\":\"read\",\"ahead\":-1", "\"ahead\":1"] {
        let text = format!("{{\"request\":\"open_mailbox\",\"id\":1,\"name\":\"a\",{wrong}}}");
        assert!(ControlMessage::decode(text.as_bytes()).is_err(), "{text}");
    }
    let get = Request::GetMessages { number: 1, messages: 1, held: Vec::new() };
    let short = br#"{"request":"get_messages","number":1,"messages":1}"#;
    assert_eq!(ControlMessage::decode(short), Ok(get.clone().into()));
    assert_eq!((whole.id(), get.id()), (Some(1), None));
}

#[test]
fn messages_from_before_mailboxes_still_read() {
    let old: [(&[u8], ControlMessage); 4] = [
        (
            br#"{"request":"subscribe","id":2,"subscription":1,"sql":"SELECT * FROM a","wait":true}"#,
            Request::Subscribe {
                id: 2,
                subscription: 1,
                sql: "SELECT * FROM a".into(),
                overflow: None,
                wait: true,
                accept: Vec::new(),
                unreadable: None,
                row_errors: Default::default(),
                positions: false,
                one_format: false,
            }
            .into(),
        ),
        (br#"{"request":"terminate"}"#, Request::Terminate.into()),
        (br#"{"reply":"done","id":3}"#, Reply::Done { id: 3 }.into()),
        (
            br#"{"notice":"stream_ended","subscription":1,"publishers":0}"#,
            Notice::StreamEnded { subscription: 1, publishers: 0, lost: 0 }.into(),
        ),
    ];
    for (text, message) in old {
        assert_eq!(ControlMessage::decode(text), Ok(message));
    }
}

#[test]
fn messages_about_conversions_come_back() {
    let stream = || "A".to_owned();
    let id = || FormatName::Id("00c0ffee00c0ffee".to_owned());
    let by_name = || "rename a b\n".to_owned();
    let sql = "SELECT a * 2 AS b FROM x".to_owned();
    let description = FormatName::Description("crossdock-format/1 natural 8\n".to_owned());
    let accept = vec![FormatName::Version(3), id(), description.clone()];
    let (from, to) = (FormatName::Version(1), description);
    let format = || "00c0ffee00c0ffee".to_owned();
    let messages: Vec<ControlMessage> = vec![
        Request::Subscribe {
            id: 1,
            subscription: 2,
            sql: "SELECT * FROM A".into(),
            overflow: None,
            wait: false,
            accept,
            unreadable: Some(Unreadable::Drop),
            row_errors: RowErrors::Null,
            positions: true,
            one_format: true,
        }
        .into(),
        Request::RegisterConversion {
            id: 2,
            stream: stream(),
            from: id(),
            to: to.clone(),
            conversion: by_name(),
            kept: true,
        }
        .into(),
        Request::RegisterConversion { id: 3, stream: stream(), from, to, conversion: sql, kept: false }.into(),
        Request::UnregisterConversion { id: 4, stream: stream(), from: id(), to: id(), kept: false }.into(),
        Request::ListenForConverters { id: 5, stream: stream() }.into(),
        Notice::NoReader { subscription: 1, format: format(), policy: Unreadable::Hold, message: "…".into() }.into(),
        Notice::Readable { subscription: 1, format: format(), chain: vec![format(), format()], records: 1 << 40 }
            .into(),
        Notice::ConverterWanted { stream: stream(), from: "a".into(), to: "b".into() }.into(),
        Reply::Refused { id: 8, refusal: Refusal { code: RefusalCode::Conversion, message: "…".into() } }.into(),
    ];
    for message in messages {
        assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
    }
    // As somebody would write them by hand, with what they leave out.
    let short = br#"{"request":"register_conversion","id":1,"stream":"A","from":{"version":1},
        "to":{"id":"00c0ffee00c0ffee"},"conversion":"rename a b\n"}"#;
    let (from, to) = (FormatName::Version(1), id());
    let whole = Request::RegisterConversion { id: 1, stream: stream(), from, to, conversion: by_name(), kept: false };
    assert_eq!(ControlMessage::decode(short), Ok(whole.clone().into()));
    assert_eq!(whole.id(), Some(1));
    for wrong in ["{\"version\":-1}", "{\"name\":\"A\"}", "{\"id\":1}", "3"] {
        let text = format!(
            "{{\"request\":\"unregister_conversion\",\"id\":1,\"stream\":\"A\",\"from\":{wrong},\"to\":{wrong}}}"
        );
        assert!(ControlMessage::decode(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_format_is_named_by_its_version_or_its_id() {
    for (text, name) in [
        ("v3", FormatName::Version(3)),
        ("12", FormatName::Version(12)),
        ("00C0FFEE00c0ffee", FormatName::Id("00c0ffee00c0ffee".to_owned())),
        ("1234567812345678", FormatName::Id("1234567812345678".to_owned())),
    ] {
        assert_eq!(text.parse(), Ok(name));
    }
    for text in ["", "v", "v0", "0", "-1", "+1", "v+1", "3.1", "vv3", "99999999999", "c0ffee", "00c0ffee00c0ffeg"] {
        assert!(text.parse::<FormatName>().unwrap_err().contains("v3"), "{text}");
    }
    assert_eq!(FormatName::Version(3).to_string().parse(), Ok(FormatName::Version(3)));
    for policy in [Unreadable::Hold, Unreadable::Drop] {
        assert_eq!(policy.word().parse(), Ok(policy));
        assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{}\"", policy.word()));
    }
    assert!("wait".parse::<Unreadable>().unwrap_err().contains("hold, drop"));
}

#[test]
fn an_implementation_is_named_by_its_word() {
    for implementation in [Implementation::Rings, Implementation::SignalQueue] {
        assert_eq!(implementation.to_string().parse(), Ok(implementation));
        assert_eq!(serde_json::to_string(&implementation).unwrap(), format!("\"{implementation}\""));
    }
    assert!("ring".parse::<Implementation>().unwrap_err().contains("signal_queue"));
}
