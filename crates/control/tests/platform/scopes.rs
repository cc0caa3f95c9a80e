//! A plan of the handlers that a change concerns is the plan of all handlers, however many changes came before.

use crate::plans::{Draft, draft, formats, kind_of};
use crate::random;
use crossdock_control::admission::ContextChoice;
use crossdock_control::load::{Flow, Load};
use crossdock_control::plan::scope::{Ledger, Links, Scope, StreamIndex};
use crossdock_control::plan::{
    Current, Definition, Deployed, Note, Plan, Published, Refusal, Wanted, WantedHandler, apply, plan,
};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, BTreeSet};

/// Handlers that there may be; the last two may be replicas of one.
const MANY: usize = 10;

/// The handlers that a change makes, by their numbers: others, or none.
type HandlerChanges = Vec<(usize, Option<Draft>)>;

#[derive(Clone, Debug)]
struct History {
    platform: Current,
    steps: Vec<HandlerChanges>,
}

fn history() -> impl Strategy<Value = History> {
    let one = (0..MANY, prop::option::weighted(0.8, draft()));
    let steps = prop::collection::vec(prop::collection::vec(one, 1..4), 1..24);
    let published = prop::collection::vec((any::<Index>(), random::flow(), formats()), 2);
    (random::contexts(), any::<Index>(), published, steps).prop_map(|(contexts, delivered_at, published, steps)| {
        let names: Vec<String> = contexts.iter().map(|context| context.name.clone()).collect();
        let stream = |(number, (at, flow, formats)): (usize, (Index, Flow, BTreeSet<_>))| {
            let flow = Flow { bytes_per_s: flow.bytes_per_s / 4, ..Flow::default() };
            (format!("p{number}"), Published { context: at.get(&names).clone(), flow, formats })
        };
        let published = published.into_iter().enumerate().map(stream).collect();
        let delivered_at = Some(delivered_at.get(&names).clone());
        History { platform: Current { contexts, delivered_at, published, ..Current::default() }, steps }
    })
}

/// The handlers with what is kept of them from change to change.
#[derive(Default)]
struct Kept {
    current: Current,
    wanted: Wanted,
    index: StreamIndex,
    ledger: Ledger,
}

fn links(definition: &Definition) -> Links {
    Links { reads: definition.reads.clone(), makes: definition.makes.clone() }
}

impl Kept {
    /// A handler has changed, or has gone.
    fn note(&mut self, name: &str) {
        match self.current.handlers.get(name) {
            Some(Deployed { definition, context, .. }) => {
                let at = self.current.contexts.iter().position(|there| there.name == *context).unwrap();
                self.index.insert(name, links(definition));
                self.ledger.set(name, Some((at, self.current.handlers[name].committed())));
            }
            None => {
                self.index.remove(name);
                self.ledger.set(name, None);
            }
        }
    }

    /// The plan of a change, of the handlers alone that it concerns; with how many these are.
    fn plan(&self, changes: &BTreeMap<String, Option<WantedHandler>>) -> (Result<Plan, Vec<Refusal>>, Scope) {
        let of = |handler: &Option<WantedHandler>| handler.as_ref().map(|handler| links(&handler.definition));
        let streams = changes.iter().map(|(name, handler)| (name.clone(), of(handler))).collect();
        let scope = self.index.scope(&streams, |_| false);
        let handlers = self.current.handlers.iter().filter(|(name, _)| scope.handlers.contains(*name));
        let current = Current {
            handlers: handlers.map(|(name, there)| (name.clone(), there.clone())).collect(),
            contexts: self.current.contexts.clone(),
            delivered_at: self.current.delivered_at.clone(),
            published: self.current.published.clone(),
            others: self.ledger.others(&scope.handlers),
        };
        let is_of_scope = |name: &String| scope.handlers.contains(name) && !changes.contains_key(name);
        let stay =
            self.wanted.iter().filter(|(name, _)| is_of_scope(name)).map(|(name, of)| (name.clone(), of.clone()));
        let change = changes.iter().filter_map(|(name, of)| Some((name.clone(), of.clone()?)));
        (plan(&current, &stay.chain(change).collect()), scope)
    }

    /// The kept sums equal those that are found anew.
    fn check(&self) -> Result<(), TestCaseError> {
        let (mut index, mut sums) = (StreamIndex::default(), vec![Load::default(); self.current.contexts.len()]);
        for (name, there) in &self.current.handlers {
            index.insert(name, links(&there.definition));
            let at = self.current.contexts.iter().position(|context| context.name == there.context).unwrap();
            sums[at] = sums[at] + there.committed();
        }
        prop_assert_eq!(&index, &self.index);
        let mut kept = self.ledger.sums().to_vec();
        kept.resize(sums.len(), Load::default());
        prop_assert_eq!(sums, kept);
        Ok(())
    }
}

/// The comparable part of a refusal: which cycle is found first, and what would make room, may differ.
fn about(refusals: &[Refusal]) -> Vec<String> {
    let text = |refusal: &Refusal| match refusal {
        Refusal::Cycle { .. } => "cycle".to_owned(),
        Refusal::NoPlace { handler, refused, .. } => format!("{handler}: {refused}"),
        other => other.to_string(),
    };
    refusals.iter().map(text).collect()
}

fn wanted(draft: &Draft, number: usize, names: &[String]) -> WantedHandler {
    let mut handler = draft.wanted(number, names.len(), names);
    if number + 2 >= MANY && handler.definition.version > 1 {
        handler.definition.replica_of = Some("both".to_owned());
        handler.definition.makes = "both".to_owned();
        handler.place = ContextChoice::Named(names[number % names.len()].clone());
    }
    handler
}

fn note_handler(note: &Note) -> &String {
    let (Note::NoProducer { handler, .. } | Note::TakesNone { handler, .. }) = note;
    handler
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_plan_of_what_a_change_concerns_is_the_plan_of_all(history in history()) {
        let names: Vec<String> = history.platform.contexts.iter().map(|context| context.name.clone()).collect();
        let mut kept = Kept { current: history.platform, ..Kept::default() };
        for step in &history.steps {
            let change = |(number, draft): &(usize, Option<Draft>)| {
                (format!("h{number}"), draft.as_ref().map(|draft| wanted(draft, *number, &names)))
            };
            let changes: BTreeMap<String, Option<WantedHandler>> = step.iter().map(change).collect();
            let mut all = kept.wanted.clone();
            for (name, handler) in changes.clone() {
                match handler {
                    Some(handler) => drop(all.insert(name, handler)),
                    None => drop(all.remove(&name)),
                }
            }
            let (in_scope, scope) = kept.plan(&changes);
            match (plan(&kept.current, &all), in_scope) {
                (Ok(whole), Ok(part)) => {
                    prop_assert_eq!(&whole.changes, &part.changes);
                    let of_scope = whole.notes.iter().filter(|note| scope.handlers.contains(note_handler(note)));
                    prop_assert!(of_scope.eq(&part.notes));
                    kept.current = apply(&kept.current, &whole);
                    kept.wanted = all;
                    let changed: BTreeSet<&String> = whole.changes.iter().map(|change| &change.handler).collect();
                    changed.into_iter().for_each(|name| kept.note(name));
                    kept.check()?;
                }
                (Err(whole), Err(part)) => {
                    let kinds = |refusals: &[Refusal]| refusals.iter().map(kind_of).collect::<BTreeSet<_>>();
                    prop_assert_eq!(kinds(&whole), kinds(&part));
                    prop_assert_eq!(about(&whole), about(&part));
                }
                (whole, part) => prop_assert!(false, "{whole:?}, but in its scope {part:?}"),
            }
        }
    }
}

/// A handler that reads a stream and makes its own.
fn joined(index: &mut StreamIndex, name: &str, reads: &str) {
    index.insert(name, Links { reads: BTreeSet::from([reads.to_owned()]), makes: format!("of {name}") });
}

fn names(scope: &BTreeSet<String>) -> Vec<&str> {
    scope.iter().map(String::as_str).collect()
}

#[test]
fn a_change_looks_at_the_same_handlers_whatever_the_number_of_others() {
    let visited = |others: usize| {
        let mut index = StreamIndex::default();
        for number in 0..others {
            joined(&mut index, &format!("other {number}"), if number % 2 == 0 { "P" } else { "of other 0" });
        }
        joined(&mut index, "first", "P");
        joined(&mut index, "second", "of first");
        joined(&mut index, "third", "of second");
        let links = Links { reads: BTreeSet::from(["of first".to_owned()]), makes: "of second".to_owned() };
        let scope = index.scope(&BTreeMap::from([("second".to_owned(), Some(links))]), |_| false);
        let alone = index.scope(&BTreeMap::from([("other 4".to_owned(), None)]), |_| false);
        (scope, alone)
    };
    let (scope, alone) = visited(10);
    assert_eq!(
        (names(&scope.affected), names(&scope.handlers)),
        (vec!["second", "third"], vec!["first", "second", "third"])
    );
    assert_eq!(names(&alone.handlers), ["other 4"]);
    assert_eq!(visited(1000), (scope, alone));
}

#[test]
fn a_path_with_a_reservation_is_looked_at_as_a_whole() {
    let mut index = StreamIndex::default();
    for (name, reads) in [("a", "P"), ("b", "of a"), ("beside", "of a"), ("c", "of b"), ("other", "P")] {
        joined(&mut index, name, reads);
    }
    let change = |name: &str| BTreeMap::from([(name.to_owned(), None)]);
    let scope = index.scope(&change("b"), |name| name == "c");
    assert_eq!((names(&scope.handlers), scope.reserves), (vec!["a", "b", "beside", "c"], true));
    // The path of another reader of the same stream is not touched.
    let scope = index.scope(&change("beside"), |name| name == "c");
    assert_eq!((names(&scope.handlers), scope.reserves), (vec!["a", "beside"], false));
}
