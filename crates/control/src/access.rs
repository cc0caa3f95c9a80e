//! The rules that state which identity may do what. Pure: the runtime asks where a request is admitted, never for a message.
//!
//! Exactly one rule holds for a caller: that of its own identity, or that of everybody. Where there are rules, what none of them
//! allows is refused. A rule allows streams and mailboxes by patterns, in which `*` is any text. A stream that it shows only in
//! part is named by a [`View`], the rows and fields that queries of the identity see.
//!
//! **Derived streams.** The output of a handler may have anything of the streams that it reads in it. So a derived stream is
//! allowed by its exact name, or by `*` in a rule that shows all streams whole, and by no other pattern. For the same reason a
//! handler may be deployed by an identity only if that identity may read the handler's inputs whole by these rules.

use crossdock_query::View;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest pattern, in bytes: as long as a name may be.
const MAX_PATTERN_BYTES: usize = 255;

/// The identity that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// All callers that have no rule of their own.
    Everybody,
    /// The client of a secure session: its public key in hexadecimal digits, or its name in the list of authorised keys.
    Key(Box<str>),
    /// A user of this machine, by number: of attached clients, and at the other end of the control socket.
    User(u32),
    /// A caller of the HTTP API that sends the token of this name.
    Token(Box<str>),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Everybody => f.write_str("everybody"),
            Identity::Key(key) => write!(f, "key:{key}"),
            Identity::User(uid) => write!(f, "uid:{uid}"),
            Identity::Token(name) => write!(f, "token:{name}"),
        }
    }
}

impl FromStr for Identity {
    type Err = String;

    /// Reads `everybody`, `uid:1000`, `token:NAME` or `key:NAME`, whose `key:` may be missing.
    fn from_str(text: &str) -> Result<Identity, String> {
        let named = |name: &str| match name.trim() {
            "" => Err("an identity is `key:NAME`, `uid:NUMBER`, `token:NAME` or `everybody`".to_owned()),
            name => Ok(name.into()),
        };
        match text.split_once(':') {
            _ if text == "everybody" => Ok(Identity::Everybody),
            Some(("uid", uid)) => {
                let uid = uid.parse().map_err(|_| format!("`{uid}` is no user's number, such as 1000"))?;
                Ok(Identity::User(uid))
            }
            Some(("token", name)) => named(name).map(Identity::Token),
            Some(("key", key)) => named(key).map(Identity::Key),
            _ => named(text).map(Identity::Key),
        }
    }
}

/// The caller of a request, as the connection shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The client of a secure session.
    Key {
        /// Its public key, in hexadecimal digits.
        key: String,
        /// Its name in the list of authorised keys; may be empty.
        name: Arc<str>,
    },
    /// A user of this machine.
    User(u32),
    /// A caller of the HTTP API that sent the token of this name.
    Token(Arc<str>),
    /// A session without keys from a trusted network, or a caller of the HTTP API without a token.
    Unknown,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Key { key, name } if name.is_empty() => write!(f, "key {key}"),
            Caller::Key { name, .. } => write!(f, "key {name}"),
            Caller::User(uid) => write!(f, "user {uid}"),
            Caller::Token(name) => write!(f, "token {name}"),
            Caller::Unknown => f.write_str("a caller without an identity"),
        }
    }
}

impl Caller {
    /// The first keys of a rule for this caller, as the configuration has them.
    fn section(&self) -> String {
        match self {
            Caller::Key { key, name } if name.is_empty() => format!("key = \"{key}\""),
            Caller::Key { name, .. } => format!("key = \"{name}\""),
            Caller::User(uid) => format!("uid = {uid}"),
            Caller::Token(name) => format!("token = \"{name}\""),
            Caller::Unknown => "everybody = true".to_owned(),
        }
    }
}

/// Names with this form: `*` stands for any text, all else for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Whether a name has this form.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            // The earliest place leaves most for the others.
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Whether it is one name only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    fn is_everything(&self) -> bool {
        &*self.0 == "*"
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES || text.contains(char::is_control) {
            let message = "a pattern has 1 to 255 bytes and no control characters; `*` in it stands for any text";
            return Err(message.to_owned());
        }
        Ok(Pattern(text.into()))
    }
}

/// Streams that may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readable {
    /// All records of streams whose names have this form, whole.
    Whole(Pattern),
    /// Some rows and fields of one stream.
    View(View),
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readable::Whole(pattern) => pattern.fmt(f),
            Readable::View(view) => f.write_str(view.sql()),
        }
    }
}

impl FromStr for Readable {
    type Err = String;

    /// Reads a pattern, or the `SELECT` of a view.
    fn from_str(text: &str) -> Result<Readable, String> {
        let first = text.split_whitespace().next().unwrap_or_default();
        match first.eq_ignore_ascii_case("select") && first.len() < text.trim().len() {
            true => View::parse(text).map(Readable::View).map_err(|error| error.to_string()),
            false => text.parse().map(Readable::Whole),
        }
    }
}

/// The part of the control API that an identity may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Administration {
    /// The requests that its other rights allow.
    #[default]
    None,
    /// The lists, events and metrics too.
    Read,
    /// All of it: every handler, conversion, mailbox, task and stream.
    Change,
}

impl Administration {
    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Administration::None => "none",
            Administration::Read => "read",
            Administration::Change => "change",
        }
    }
}

/// How much an identity may have at a time, where that is not what the daemon grants each address or user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Sessions, or attached clients, of each I/O context.
    pub sessions: Option<u32>,
    /// Streams that it announced first.
    pub streams: Option<u32>,
    /// Mailboxes.
    pub mailboxes: Option<u32>,
    /// Subscriptions at each I/O context.
    pub subscriptions: Option<u32>,
}

/// The rights of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The identity.
    pub identity: Identity,
    /// Streams that it may publish.
    pub publish: Vec<Pattern>,
    /// Streams that it may read, with the rows and fields that it sees.
    pub subscribe: Vec<Readable>,
    /// Streams whose conversions it may register and remove.
    pub convert: Vec<Pattern>,
    /// Handlers that it may deploy, change and remove.
    pub handlers: Vec<Pattern>,
    /// Mailboxes that it may create, use and delete.
    pub mailboxes: Vec<Pattern>,
    /// Neighbours that it may send packets with source routes to, over this node.
    pub route: Vec<Pattern>,
    /// The part of the control API that it may use.
    pub administration: Administration,
    /// How much it may have at a time.
    pub quotas: Quotas,
}

impl Rule {
    /// One that allows nothing.
    #[must_use]
    pub fn new(identity: Identity) -> Rule {
        Rule {
            identity,
            publish: Vec::new(),
            subscribe: Vec::new(),
            convert: Vec::new(),
            handlers: Vec::new(),
            mailboxes: Vec::new(),
            route: Vec::new(),
            administration: Administration::None,
            quotas: Quotas::default(),
        }
    }

    /// The views of the rule.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.subscribe.iter().filter_map(|readable| match readable {
            Readable::View(view) => Some(view),
            Readable::Whole(_) => None,
        })
    }

    /// The entry by which a stream may be read: that of its exact name, else the first pattern. Of a derived stream only `*`
    /// counts as a pattern, and only in a rule without views.
    fn readable(&self, stream: &str, is_derived: bool) -> Option<&Readable> {
        let is_exact = |readable: &&Readable| match readable {
            Readable::Whole(pattern) => pattern.is_exact() && pattern.matches(stream),
            Readable::View(view) => view.stream() == stream,
        };
        let has_views = self.views().next().is_some();
        let is_alike = |readable: &&Readable| match readable {
            Readable::Whole(pattern) if is_derived => pattern.is_everything() && !has_views,
            Readable::Whole(pattern) => pattern.matches(stream),
            Readable::View(_) => false,
        };
        self.subscribe.iter().find(is_exact).or_else(|| self.subscribe.iter().find(is_alike))
    }

    /// Two entries of one stream, where either could be meant.
    fn contradiction(&self) -> Option<String> {
        let exact = self.subscribe.iter().filter_map(|readable| match readable {
            Readable::Whole(pattern) => pattern.is_exact().then(|| pattern.to_string()),
            Readable::View(view) => Some(view.stream().to_owned()),
        });
        let mut seen = BTreeSet::new();
        let mut exact = exact.filter(|stream| !seen.insert(stream.clone()));
        let stream = exact.next()?;
        Some(format!("the rule of {}: two entries of `subscribe` are for stream `{stream}`", self.identity))
    }
}

/// Something that an identity may or may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Publish a stream.
    Publish(&'a str),
    /// Read a stream.
    Subscribe {
        /// Its name.
        stream: &'a str,
        /// Whether a handler produces it.
        is_derived: bool,
    },
    /// Read a stream whole for a handler, which may go on when a stream has become a derived one.
    Input(&'a str),
    /// Register or remove a conversion of a stream, or listen for those that are wanted.
    Convert(&'a str),
    /// Deploy, change or remove a handler.
    Handler(&'a str),
    /// Create, open or delete a mailbox.
    Mailbox(&'a str),
    /// Send packets to a neighbour over this node.
    Route(&'a str),
    /// Have a task read a mailbox, or no longer: tasks use mailboxes and files of the daemon.
    Task,
    /// Read the daemon's lists.
    Read,
    /// Change something for all.
    Change,
}

impl Action<'_> {
    /// All reasons of refusals.
    pub const REASONS: [&'static str; 8] =
        ["publish", "subscribe", "convert", "handler", "mailbox", "administration", "token", "route"];
    /// The place of the one that no action has: a request over HTTP sent a token that is none of the daemon's.
    pub const UNKNOWN_TOKEN: usize = 6;
    /// The place of those of packets with source routes, which have further reasons: a loop, an unknown node.
    pub const ROUTE: usize = 7;

    /// Its place among the [reasons](Action::REASONS).
    #[must_use]
    pub fn reason(&self) -> usize {
        match self {
            Action::Publish(_) => 0,
            Action::Subscribe { .. } | Action::Input(_) => 1,
            Action::Convert(_) => 2,
            Action::Handler(_) => 3,
            Action::Mailbox(_) => 4,
            Action::Task | Action::Read | Action::Change => 5,
            Action::Route(_) => Action::ROUTE,
        }
    }

    /// The words behind "may not" in a refusal.
    fn words(&self) -> String {
        match self {
            Action::Publish(stream) => format!("publish stream `{stream}`"),
            Action::Subscribe { stream, is_derived: false } => format!("read stream `{stream}`"),
            Action::Subscribe { stream, is_derived: true } => {
                format!("read stream `{stream}`, which a handler produces, so that a rule has to have its exact name")
            }
            Action::Input(stream) => {
                format!("have a handler read stream `{stream}`, for which a rule has to have its exact name")
            }
            Action::Convert(stream) => format!("change conversions of stream `{stream}`"),
            Action::Handler(handler) => format!("deploy or change handler `{handler}`"),
            Action::Mailbox(mailbox) => format!("use mailbox `{mailbox}`"),
            Action::Route(node) => format!("send packets to node `{node}` over this one"),
            Action::Task => "change the tasks of mailboxes".to_owned(),
            Action::Read => "read the daemon's lists".to_owned(),
            Action::Change => "change the daemon".to_owned(),
        }
    }

    /// The line of a rule that would allow it.
    fn line(&self) -> String {
        match self {
            Action::Publish(stream) => format!("publish = [\"{stream}\"]"),
            Action::Subscribe { stream, .. } | Action::Input(stream) => format!("subscribe = [\"{stream}\"]"),
            Action::Convert(stream) => format!("convert = [\"{stream}\"]"),
            Action::Handler(handler) => format!("handlers = [\"{handler}\"]"),
            Action::Mailbox(mailbox) => format!("mailboxes = [\"{mailbox}\"]"),
            Action::Route(node) => format!("route = [\"{node}\"]"),
            Action::Read => "administration = \"read\"".to_owned(),
            Action::Task | Action::Change => "administration = \"change\"".to_owned(),
        }
    }
}

/// An action that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted<'a> {
    /// The rule that allows it.
    pub rule: &'a Rule,
    /// The rows and fields of the stream that the caller sees, if not all.
    pub view: Option<&'a View>,
}

/// An action that is refused, and the rule that would allow it, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Denial(pub String);

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// These rules; each identity has one at most.
    ///
    /// # Errors
    /// An identity has two rules, or a rule has two entries for a stream that may be read; in words.
    pub fn new(rules: Vec<Rule>) -> Result<Rules, String> {
        let mut seen = BTreeSet::new();
        if let Some(rule) = rules.iter().find(|rule| !seen.insert(&rule.identity)) {
            return Err(format!("two rules are for {}", rule.identity));
        }
        match rules.iter().find_map(Rule::contradiction) {
            Some(why) => Err(why),
            None => Ok(Rules(rules)),
        }
    }

    /// The rules in their order.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.0
    }

    /// The rule that holds for a caller.
    #[must_use]
    pub fn of(&self, caller: &Caller) -> Option<&Rule> {
        let find = |is_meant: &dyn Fn(&Identity) -> bool| self.0.iter().find(|rule| is_meant(&rule.identity));
        let own = match caller {
            Caller::Key { key, name } => {
                let called = |text: &str| find(&|identity| matches!(identity, Identity::Key(of) if **of == *text));
                called(key).or_else(|| if name.is_empty() { None } else { called(name) })
            }
            Caller::User(uid) => find(&|identity| *identity == Identity::User(*uid)),
            Caller::Token(name) => find(&|identity| matches!(identity, Identity::Token(of) if **of == **name)),
            Caller::Unknown => None,
        };
        own.or_else(|| find(&|identity| *identity == Identity::Everybody))
    }

    /// Decides whether a caller may do something.
    ///
    /// # Errors
    /// It may not; and the rule that would allow it.
    pub fn decide(&self, caller: &Caller, action: Action<'_>) -> Result<Granted<'_>, Denial> {
        let rule = self.of(caller);
        rule.and_then(|rule| rule.decide(action)).ok_or_else(|| denial(caller, rule, action))
    }
}

/// The refusal of an action of a caller, for whom this rule holds. A stream is said to be a derived one only where it could be read
/// if it were none.
#[cold]
fn denial(caller: &Caller, rule: Option<&Rule>, action: Action<'_>) -> Denial {
    let action = match action {
        Action::Subscribe { stream, is_derived: true } if !rule.is_some_and(|rule| rule.may_read(stream, false)) => {
            Action::Subscribe { stream, is_derived: false }
        }
        action => action,
    };
    let (words, line) = (action.words(), action.line());
    Denial(match rule {
        Some(Rule { identity, .. }) => {
            format!("{caller} may not {words}: `{line}` in the [[access]] section of {identity} would allow it")
        }
        None => format!(
            "{caller} may not {words}: it has no access rule; an [[access]] section with `{}` and `{line}` would allow it",
            caller.section()
        ),
    })
}

impl Rule {
    /// Whether it allows to read some of a stream at least; `is_derived`: a handler produces the stream.
    #[must_use]
    pub fn may_read(&self, stream: &str, is_derived: bool) -> bool {
        self.readable(stream, is_derived).is_some()
    }

    fn decide(&self, action: Action<'_>) -> Option<Granted<'_>> {
        let granted = Granted { rule: self, view: None };
        let any = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let is_administrator = self.administration == Administration::Change;
        let may = match action {
            Action::Publish(stream) => any(&self.publish, stream),
            Action::Subscribe { stream, is_derived } => {
                let view = match self.readable(stream, is_derived)? {
                    Readable::View(view) => Some(view),
                    Readable::Whole(_) => None,
                };
                return Some(Granted { rule: self, view });
            }
            Action::Input(_) if is_administrator => true,
            Action::Input(stream) => matches!(self.readable(stream, true), Some(Readable::Whole(_))),
            Action::Convert(stream) => is_administrator || any(&self.convert, stream),
            Action::Handler(handler) => is_administrator || any(&self.handlers, handler),
            Action::Mailbox(mailbox) => is_administrator || any(&self.mailboxes, mailbox),
            Action::Route(node) => any(&self.route, node),
            Action::Read => self.administration >= Administration::Read,
            Action::Task | Action::Change => is_administrator,
        };
        may.then_some(granted)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn readables(texts: &[&str]) -> Vec<Readable> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn desk() -> Caller {
        Caller::Key { key: "ab12".to_owned(), name: "desk".into() }
    }

    fn read(stream: &str) -> Action<'_> {
        Action::Subscribe { stream, is_derived: false }
    }

    #[test]
    fn a_star_is_any_text_and_all_else_is_itself() {
        for (pattern, names, others) in [
            ("A", &["A"][..], &["a", "AA", ""][..]),
            ("*", &["", "A", "a*b"], &[]),
            ("weather.*", &["weather.", "weather.hot"], &["weather", "my weather.hot"]),
            ("*.hot", &[".hot", "weather.hot"], &["weather.hot.now"]),
            ("a*b*c", &["abc", "a-b-b-c", "abbcc"], &["acb", "ab", "abcd"]),
            ("aa*aa", &["aaaa", "aaxaa"], &["aaa", "aa"]),
            ("é*é", &["éé", "éxé"], &["é"]),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            assert!(names.iter().all(|name| pattern.matches(name)), "{pattern}");
            assert!(!others.iter().any(|name| pattern.matches(name)), "{pattern}");
        }
        assert!("".parse::<Pattern>().is_err() && "a\nb".parse::<Pattern>().is_err());
    }

    #[test]
    fn an_identity_is_read_as_it_is_shown() {
        for text in ["everybody", "uid:1000", "token:ops", "key:desk"] {
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
        assert_eq!("desk".parse::<Identity>(), Ok(Identity::Key("desk".into())));
        for text in ["", "uid:me", "token:", "key: "] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_rule_holds_for_a_caller() {
        let rule = |identity: &str| Rule::new(identity.parse().unwrap());
        let rules = Rules::new(["desk", "key:ff00", "uid:7", "token:ops", "everybody"].map(rule).to_vec()).unwrap();
        let of = |caller: &Caller| rules.of(caller).unwrap().identity.to_string();
        assert_eq!(of(&desk()), "key:desk");
        assert_eq!(
            of(&Caller::Key { key: "ff00".into(), name: "desk".into() }),
            "key:ff00",
            "the key goes before its name"
        );
        assert_eq!(of(&Caller::Key { key: "00".into(), name: "".into() }), "everybody");
        assert_eq!((of(&Caller::User(7)), of(&Caller::User(8))), ("uid:7".to_owned(), "everybody".to_owned()));
        assert_eq!(of(&Caller::Token("ops".into())), "token:ops");
        assert_eq!(of(&Caller::Unknown), "everybody");
        let twice = Rules::new([rule("uid:7"), rule("uid:7")].to_vec());
        assert_eq!(twice.unwrap_err(), "two rules are for uid:7");
    }

    #[test]
    fn an_action_that_no_rule_allows_is_refused_with_the_line_that_would_allow_it() {
        let mut rule = Rule::new(Identity::Key("desk".into()));
        rule.publish = patterns(&["orders.*"]);
        rule.mailboxes = patterns(&["inbox"]);
        let rules = Rules::new(vec![rule]).unwrap();
        for allowed in [Action::Publish("orders.eu"), Action::Mailbox("inbox")] {
            assert!(rules.decide(&desk(), allowed).is_ok(), "{allowed:?}");
        }
        let refused = |caller: &Caller, action| rules.decide(caller, action).unwrap_err().to_string();
        assert_eq!(
            refused(&desk(), Action::Publish("A")),
            "key desk may not publish stream `A`: `publish = [\"A\"]` in the [[access]] section of key:desk would allow it"
        );
        assert!(
            refused(&Caller::User(5), read("A")).contains("with `uid = 5` and `subscribe = [\"A\"]` would allow it")
        );
        assert!(refused(&Caller::Unknown, Action::Read).contains("`everybody = true` and `administration = \"read\"`"));
        for action in [
            read("orders.eu"),
            Action::Input("orders.eu"),
            Action::Convert("orders.eu"),
            Action::Handler("h"),
            Action::Mailbox("other"),
            Action::Task,
            Action::Change,
        ] {
            assert!(refused(&desk(), action).contains(&action.line()), "{action:?}");
        }
    }

    #[test]
    fn the_exact_name_of_a_stream_goes_before_patterns() {
        let mut rule = Rule::new(Identity::User(1));
        rule.subscribe = readables(&["*", "SELECT carrier FROM A WHERE delay > 0", "B"]);
        let rules = Rules::new(vec![rule.clone()]).unwrap();
        let view = |stream| rules.decide(&Caller::User(1), read(stream)).unwrap().view.map(View::sql);
        assert_eq!(view("A"), Some("SELECT carrier FROM A WHERE delay > 0"));
        assert_eq!((view("B"), view("C")), (None, None));
        rule.subscribe.extend(readables(&["A"]));
        assert!(Rules::new(vec![rule]).unwrap_err().contains("two entries of `subscribe` are for stream `A`"));
        assert!("SELECT delay + 1 FROM A".parse::<Readable>().unwrap_err().contains("columns only"));
        assert_eq!("select".parse::<Readable>().unwrap().to_string(), "select", "a stream may be called so");
    }

    #[test]
    fn a_derived_stream_is_read_by_its_name_or_where_all_streams_are_read_whole() {
        let decides = |subscribe: &[&str], administration, action| {
            let rule = Rule { subscribe: readables(subscribe), administration, ..Rule::new(Identity::User(1)) };
            Rules::new(vec![rule]).unwrap().decide(&Caller::User(1), action).is_ok()
        };
        let derived = Action::Subscribe { stream: "D", is_derived: true };
        for (subscribe, is_read, is_input) in [
            (&["D"][..], true, true),
            (&["*"], true, true),
            (&["D*"], false, false),
            (&["*", "SELECT a FROM A"], false, false),
            (&["*", "D", "SELECT a FROM A"], true, true),
            (&["SELECT a FROM D"], true, false),
        ] {
            assert_eq!(decides(subscribe, Administration::None, derived), is_read, "{subscribe:?}");
            assert_eq!(decides(subscribe, Administration::None, Action::Input("D")), is_input, "{subscribe:?}");
        }
        assert!(decides(&[], Administration::Change, Action::Input("D")));
        assert!(!decides(&[], Administration::Change, derived), "an administrator reads no data by that");
        // A refusal says that it is a derived one only to those that could read it otherwise.
        for (subscribe, says) in [(&["D*"][..], true), (&["E"], false)] {
            let rule = Rule { subscribe: readables(subscribe), ..Rule::new(Identity::User(1)) };
            let why = Rules::new(vec![rule]).unwrap().decide(&Caller::User(1), derived).unwrap_err().to_string();
            assert_eq!(why.contains("which a handler produces"), says, "{why}");
        }
    }
}
