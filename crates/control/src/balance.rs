//! Handlers that are moved, degraded, limited or stopped while everything runs, second by second.
//!
//! A plan lets in what fits by what was predicted. Then rates rise, other work comes, and a context has more to do than was
//! thought. The paper expects the platform "to balance and dynamically reassign workload across different c-cores"
//! (c-core-2005, 3.1, "Dynamic resource management"), and the application to permit that, "as request loads increase", its
//! streams are downsampled (overlay-network-processors-2003, 3.1). So [`Balance`] looks at each second:
//!
//! - A context that has lost its headroom (it has more to do than its capacity less its margin, in most of the last seconds)
//!   gives handlers away: computation-centric ones first, no more than it takes.
//! - They come back when there is room for them again with a wider margin and for longer. Between the two margins nothing
//!   happens, and whoever has to leave again soon waits twice as long the next time: so nothing flaps.
//! - Where runnable batches waited too long for a context all the same, handlers with a rule for that do with less, by other
//!   values of their parameters: one after the other, until none waits as long. When there is room they are whole again;
//!   before that no handler comes back there. Contexts sample streams that allow it by the same signal, at once.
//! - A handler over its budget goes to a g-core or is stopped, as its policy says, and does not come back by itself. If no g-core
//!   has room, a computation-centric one goes to the emptiest all the same. Where it has no other place it stays, and is limited
//!   to what its budget allows.
//!
//! It has no clock: who calls it every second, with what was measured in that second, makes time pass.

use crate::admission::{Class, ContextChoice, Need, fit_within, order};
use crate::figures::{Bandwidth, Time};
use crate::load::{Contexts, CoreKind, Flow, Load, MAX_CONTEXTS, MAX_HANDLERS};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// When something is done, and when it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A context counts as over if it was over in this many seconds …
    pub over_s: u32,
    /// … of the last `of_s`, at most 32. A handler's overruns are counted over the same seconds.
    pub of_s: u32,
    /// The share that is to be left free besides where something comes back, in percent, besides the margin.
    pub return_percent: u8,
    /// How long there has to have been room for what comes back, in s.
    pub return_s: u32,
    /// How often that doubles, each time that it had to leave again.
    pub doublings: u32,
    /// After so long without having to leave, none of that counts any more, in s.
    pub forget_s: u32,
    /// Number of overruns in the last seconds that is too many.
    pub overruns: u32,
}

impl Default for Rules {
    /// Over in 3 of 5 s; back after 30 s with 15 percent more than the margin.
    fn default() -> Rules {
        Rules { over_s: 3, of_s: 5, return_percent: 15, return_s: 30, doublings: 5, forget_s: 900, overruns: 3 }
    }
}

/// The policy for a handler that is over its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// It goes to a g-core, one that is computation-centric also where none has room; otherwise, or if its place is fixed, it
    /// stays and is limited.
    #[default]
    Move,
    /// It is stopped.
    Stop,
}

/// A handler in one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerSample {
    /// Its name.
    pub name: String,
    /// Its context.
    pub context: usize,
    /// Its needs: its load is what was measured.
    pub need: Need,
    /// Where it is to be. Only those that may be anywhere are moved.
    pub place: ContextChoice,
    /// The flow that reached it.
    pub arriving: Flow,
    /// The flow that it made.
    pub leaving: Flow,
    /// Steps that took longer than its budget.
    pub overruns: u32,
    /// Whether it takes so much more than it was admitted with that there is nothing to wait for.
    pub is_far_over: bool,
    /// Whether it is limited, since it went over its budget.
    pub is_limited: bool,
    /// The policy if it is over its budget.
    pub policy: Overrun,
    /// Time that its budget allows it in all, in ns per s.
    pub budget_ns_per_s: u64,
    /// Its rule for doing with less, if it has a rule for that.
    pub rule: Option<RuleSecond>,
}

/// A handler's own rule for when its context is overloaded, in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSecond {
    /// Whether it goes by it.
    pub is_applied: bool,
    /// The load of its messages if that were the other way round.
    pub otherwise: Load,
}

/// The measurements of one second.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// With nothing committed but the system work that was measured.
    pub contexts: &'a Contexts,
    /// All handlers.
    pub handlers: &'a [HandlerSample],
    /// For each context whether runnable batches have waited too long for it. One that is not there counts as `false`.
    pub delayed: &'a [bool],
}

/// A change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A handler goes to another context.
    Move {
        /// The handler.
        handler: String,
        /// The context that it leaves.
        from: String,
        /// The one that it goes to.
        to: String,
        /// Why, for people.
        why: String,
    },
    /// A handler that is over its budget stays where it is, and gets no more than its budget allows; or that is over.
    Limit {
        /// The handler.
        handler: String,
        /// Time that it may take, in ns per s; `None`: as much as there is, again.
        ns_per_s: Option<u64>,
        /// Why, for people.
        why: String,
    },
    /// A handler goes by its own rule for doing with less, or no longer.
    Degrade {
        /// The handler.
        handler: String,
        /// Whether it goes by it from now on.
        applies: bool,
        /// Why, for people.
        why: String,
    },
    /// A handler is stopped.
    Stop {
        /// The handler.
        handler: String,
        /// Why, for people.
        why: String,
    },
}

/// The state that is kept from second to second. It starts anew with the daemon.
#[derive(Clone, Debug)]
pub struct Balance {
    rules: Rules,
    contexts: BTreeMap<String, Watched>,
    /// Handlers that had to leave a context.
    trips: BTreeMap<String, Displacement>,
    /// By handler: overruns of the last seconds, the latest first.
    overruns: BTreeMap<String, Vec<u32>>,
    /// Handlers that are on g-cores since they went over their budgets.
    exceeded: BTreeSet<String>,
    /// Handlers that are limited: for how long they have been within their budgets.
    limited: BTreeMap<String, u32>,
    /// By degraded handler: for how long there has been room for it as it was meant.
    headroom_streak_s: BTreeMap<String, u32>,
}

/// A bit for each of the last seconds, the latest lowest.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// It was over its capacity less its margin.
    over: u32,
    /// Batches waited for it too long.
    delayed: u32,
}

#[derive(Clone, Debug)]
struct Displacement {
    /// Where it was.
    home: String,
    /// Where it was sent.
    away: String,
    /// How often it had to leave.
    times: u32,
    /// For how long there has been room for it at home, or it has been there.
    for_s: u32,
    was_home: bool,
}

impl Balance {
    /// Without a past.
    #[must_use]
    pub fn new(rules: Rules) -> Balance {
        let (contexts, trips) = (BTreeMap::new(), BTreeMap::new());
        let (overruns, exceeded, limited) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Balance { rules, contexts, trips, overruns, exceeded, limited, headroom_streak_s: BTreeMap::new() }
    }

    /// One more second has passed. Gives the changes to be made now; those that were not made are decided again while
    /// they are right.
    ///
    /// Of handlers and contexts over the bounds the last ones are not looked at.
    pub fn second(&mut self, second: &Sample<'_>) -> Vec<Decision> {
        let handlers = &second.handlers[..second.handlers.len().min(MAX_HANDLERS)];
        let mut contexts = second.contexts.clone();
        let here = |handler: &&HandlerSample| handler.context < contexts.list().len();
        let handlers: Vec<&HandlerSample> = handlers.iter().filter(here).collect();
        handlers.iter().for_each(|handler| contexts.commit(handler.context, handler.need.committed(Load::default())));
        self.watch(&contexts, second.delayed);
        let mut now = Now { contexts, handlers, bound: Vec::new(), decisions: Vec::new(), decided: Vec::new() };
        self.overruns(&mut now);
        let is_bound = |handler: &&HandlerSample| self.exceeded.contains(&handler.name);
        now.bound = now.handlers.iter().copied().filter(is_bound).map(|handler| handler.name.as_str()).collect();
        self.offload(&mut now);
        self.reclaim(&mut now);
        self.degrade(&mut now);
        self.restore(&mut now);
        now.decisions
    }

    fn watch(&mut self, contexts: &Contexts, delayed: &[bool]) {
        self.contexts.retain(|name, _| contexts.find(name).is_some());
        for (at, context) in contexts.list().iter().enumerate().take(MAX_CONTEXTS) {
            let watched = self.contexts.entry(context.name.clone()).or_default();
            watched.over = watched.over << 1 | u32::from(contexts.excess(at) != Load::default());
            watched.delayed = watched.delayed << 1 | u32::from(delayed.get(at).copied().unwrap_or(false));
        }
    }

    /// The last `of_s` of some bits.
    fn window(&self, bits: u32) -> u32 {
        bits & u32::MAX.checked_shr(32u32.saturating_sub(self.rules.of_s)).unwrap_or(0)
    }

    /// Whether at least `over_s` of the last `of_s` bits are set.
    fn is_lasting(&self, bits: u32) -> bool {
        self.window(bits).count_ones() >= self.rules.over_s
    }

    /// Whether batches waited too long in the last seconds, for a context or one on its CPU.
    fn was_delayed(&self, contexts: &Contexts, at: usize) -> bool {
        let is_delayed = |context: &str| self.contexts.get(context).is_some_and(|seen| self.window(seen.delayed) != 0);
        let mut list = contexts.list().iter().enumerate();
        list.any(|(other, context)| contexts.is_same_cpu(at, other) && is_delayed(&context.name))
    }

    fn overruns(&mut self, now: &mut Now<'_>) {
        let known: Vec<&str> = now.handlers.iter().map(|handler| handler.name.as_str()).collect();
        self.overruns.retain(|name, _| known.contains(&name.as_str()));
        self.limited.retain(|name, _| known.contains(&name.as_str()));
        let is_away = |name: &str| now.handlers.iter().any(|of| of.name == name && now.is_g_core(of.context));
        self.exceeded.retain(|name| is_away(name));
        for handler in now.handlers.clone() {
            self.unlimit(now, handler);
            if handler.overruns == 0 && !handler.is_far_over && !self.overruns.contains_key(&handler.name) {
                continue;
            }
            let past = self.overruns.entry(handler.name.clone()).or_default();
            past.insert(0, handler.overruns);
            past.truncate(self.rules.of_s as usize);
            let sum = past.iter().fold(0, |sum: u32, one| sum.saturating_add(*one));
            if sum == 0 && !handler.is_far_over {
                self.overruns.remove(&handler.name);
            } else if sum >= self.rules.overruns || handler.is_far_over {
                let why = match handler.is_far_over {
                    true => format!("{} takes far more than it was admitted with", handler.name),
                    false => {
                        format!("{} exceeded its budget {sum} times in the last {} s", handler.name, self.rules.of_s)
                    }
                };
                if Self::answer_overrun(now, handler, why) {
                    self.overruns.remove(&handler.name);
                    self.trips.remove(&handler.name);
                    self.exceeded.extend(now.is_decided(&handler.name).then(|| handler.name.clone()));
                }
            }
        }
    }

    /// A limit ends where its handler has been within its budget for long, or is not at a c-core any more.
    fn unlimit(&mut self, now: &mut Now<'_>, handler: &HandlerSample) {
        if !handler.is_limited {
            self.limited.remove(&handler.name);
            return;
        }
        let calm_s = self.limited.entry(handler.name.clone()).or_default();
        let is_over = handler.overruns > 0 || handler.is_far_over;
        *calm_s = if is_over { 0 } else { calm_s.saturating_add(1) };
        let why = match now.is_g_core(handler.context) {
            true => format!("{} is on a g-core", handler.name),
            false if *calm_s >= self.rules.return_s => format!("it has been within its budget for {calm_s} s"),
            false => return,
        };
        self.limited.remove(&handler.name);
        now.decisions.push(Decision::Limit { handler: handler.name.clone(), ns_per_s: None, why });
    }

    /// The answer of its policy to a handler that is over its budget. `false`: nothing that is new.
    fn answer_overrun<'a>(now: &mut Now<'a>, handler: &'a HandlerSample, why: String) -> bool {
        if handler.policy == Overrun::Stop {
            now.stop(handler, why);
            return true;
        }
        if now.is_g_core(handler.context) {
            // It holds only those that are there too.
            return false;
        }
        if let Some(to) = now.g_core_for(handler) {
            now.send(handler, to, handler.arriving.crossing(), &why);
            return true;
        }
        if let Some(to) = now.emptiest_g_core(handler) {
            let why =
                format!("{why}, and no g-core has room for it: it goes to the g-core that has the most time left");
            now.send(handler, to, handler.arriving.crossing(), &why);
            return true;
        }
        if handler.is_limited {
            return false;
        }
        let reason = match handler.place {
            ContextChoice::Auto => "no g-core has room for it",
            ContextChoice::Named(_) => "its place is fixed",
        };
        let limit = Time(handler.budget_ns_per_s);
        let why = format!("{why}, and {reason}: it gets the {limit} that its budget allows");
        let ns_per_s = Some(handler.budget_ns_per_s);
        now.decisions.push(Decision::Limit { handler: handler.name.clone(), ns_per_s, why });
        true
    }

    fn offload(&mut self, now: &mut Now<'_>) {
        for at in 0..now.contexts.list().len() {
            let name = now.contexts.list()[at].name.clone();
            let over = self.contexts.get(&name).map_or(0, |watched| watched.over);
            let excess = now.contexts.excess(at);
            if !self.is_lasting(over) || excess == Load::default() {
                continue;
            }
            let seconds = format!("in {} of the last {} s", self.rules.over_s, self.rules.of_s);
            let why = format!("{name} exceeded its capacity by {} {seconds}", too_much(excess));
            let sent = now.offload(at, self.rules.return_percent, &why);
            for (handler, to) in &sent {
                self.leave(&handler.name, &now.contexts.list()[handler.context].name, &now.contexts.list()[*to].name);
            }
            if !sent.is_empty() {
                // The changes of this second show from the next second on.
                self.forget(&now.contexts, at);
            }
        }
    }

    fn leave(&mut self, handler: &str, from: &str, to: &str) {
        let home = from.to_owned();
        let new = Displacement { home, away: String::new(), times: 0, for_s: 0, was_home: true };
        let trip = self.trips.entry(handler.to_owned()).or_insert(new);
        (trip.away, trip.for_s) = (to.to_owned(), 0);
        // Being sent on from where it was sent is not leaving again.
        trip.times += u32::from(trip.was_home);
        trip.was_home = false;
    }

    /// The past of a context, and of those on its CPU, counts no more.
    fn forget(&mut self, contexts: &Contexts, at: usize) {
        for (other, context) in contexts.list().iter().enumerate() {
            if contexts.is_same_cpu(at, other) {
                self.contexts.insert(context.name.clone(), Watched::default());
            }
        }
    }

    fn reclaim(&mut self, now: &mut Now<'_>) {
        let at_work: BTreeMap<&str, &HandlerSample> =
            now.handlers.iter().map(|handler| (handler.name.as_str(), *handler)).collect();
        let rules = self.rules;
        let mut coming = Vec::new();
        let delayed: Vec<bool> = (0..now.contexts.list().len()).map(|at| self.was_delayed(&now.contexts, at)).collect();
        self.trips.retain(|name, trip| {
            let Some(handler) = at_work.get(name.as_str()).filter(|handler| handler.place == ContextChoice::Auto)
            else {
                return false;
            };
            let Some(home) = now.contexts.find(&trip.home) else { return false };
            if now.is_decided(name) {
                return true;
            }
            let is_home = handler.context == home;
            trip.for_s = if is_home == trip.was_home { trip.for_s.saturating_add(1) } else { 1 };
            trip.was_home = is_home;
            if is_home {
                return trip.for_s < rules.forget_s;
            }
            if now.contexts.list()[handler.context].name != trip.away {
                return false;
            }
            // First the handlers there are to be whole again.
            let is_less = |other: &&&HandlerSample| {
                other.rule.is_some_and(|rule| rule.is_applied) && now.contexts.is_same_cpu(other.context, home)
            };
            let is_whole = !delayed.get(home).copied().unwrap_or(false) && now.handlers.iter().find(is_less).is_none();
            let has_room = is_whole && now.has_room(handler, home, rules.return_percent);
            trip.for_s = if has_room { trip.for_s } else { 0 };
            let waits_s = rules.return_s.saturating_mul(1 << trip.times.saturating_sub(1).min(rules.doublings.min(31)));
            if trip.for_s >= waits_s {
                coming.push((*handler, home, trip.for_s));
            }
            true
        });
        coming.sort_by_key(|(handler, ..)| (handler.need.class, handler.need.load.time_ns_per_s));
        for (handler, home, for_s) in coming {
            // Of several that have room each by itself, those that have it together.
            if now.has_room(handler, home, rules.return_percent) {
                let name = &now.contexts.list()[home].name;
                let why = format!("{name} has had the capacity for it for {for_s} s");
                now.send(handler, home, Load::default(), &why);
            }
        }
    }

    /// Where batches have waited too long, has the handler go by its own rule that gains most by it, of those at the context
    /// and on its CPU.
    fn degrade(&mut self, now: &mut Now<'_>) {
        for at in 0..now.contexts.list().len() {
            let name = now.contexts.list()[at].name.clone();
            let delayed = self.contexts.get(&name).map_or(0, |watched| watched.delayed);
            if !self.is_lasting(delayed) || delayed & 1 == 0 {
                continue;
            }
            let gain = |handler: &HandlerSample| {
                let rule = handler.rule.filter(|rule| !rule.is_applied)?;
                let is_there = now.contexts.is_same_cpu(at, handler.context) && !now.is_decided(&handler.name);
                Some(handler.need.load - rule.otherwise).filter(|gain| is_there && gain.time_ns_per_s > 0)
            };
            let best = now.handlers.iter().filter_map(|handler| Some((gain(handler)?, *handler)));
            let best = best.max_by_key(|(gain, handler)| (gain.time_ns_per_s, Reverse(&handler.name)));
            let Some((gain, handler)) = best else { continue };
            let (over_s, of_s) = (self.rules.over_s, self.rules.of_s);
            let why = format!("batches waited too long for {name} in {over_s} of the last {of_s} s");
            now.contexts.release(handler.context, gain);
            now.decisions.push(Decision::Degrade { handler: handler.name.clone(), applies: true, why });
            self.headroom_streak_s.remove(&handler.name);
            self.forget(&now.contexts, at);
        }
    }

    /// Handlers are as they were meant again where there has been room for that, those that take least first.
    fn restore(&mut self, now: &mut Now<'_>) {
        let applied = |handler: &HandlerSample| handler.rule.filter(|rule| rule.is_applied);
        let degraded = now.handlers.iter().filter_map(|handler| Some((*handler, applied(handler)?)));
        let mut degraded: Vec<(&HandlerSample, RuleSecond)> = degraded.collect();
        degraded.sort_by_key(|(handler, _)| (handler.need.load.time_ns_per_s, Reverse(&handler.name)));
        self.headroom_streak_s.retain(|name, _| degraded.iter().any(|(handler, _)| handler.name == *name));
        for (handler, rule) in degraded {
            let more = rule.otherwise - handler.need.load;
            let has_room = more.is_within(now.headroom(handler.context, self.rules.return_percent))
                && !self.was_delayed(&now.contexts, handler.context);
            let streak_s = self.headroom_streak_s.entry(handler.name.clone()).or_default();
            *streak_s = if has_room { streak_s.saturating_add(1) } else { 0 };
            if *streak_s >= self.rules.return_s {
                now.contexts.commit(handler.context, more);
                let context = &now.contexts.list()[handler.context].name;
                let why = format!("{context} has had the capacity for it for {streak_s} s");
                now.decisions.push(Decision::Degrade { handler: handler.name.clone(), applies: false, why });
                *streak_s = 0;
            }
        }
    }
}

/// One second, with what was decided so far as if it were done.
struct Now<'a> {
    contexts: Contexts,
    handlers: Vec<&'a HandlerSample>,
    /// Handlers that go to no c-core by themselves, since they went over their budgets.
    bound: Vec<&'a str>,
    decisions: Vec<Decision>,
    /// Handlers about which something was decided.
    decided: Vec<&'a str>,
}

impl<'a> Now<'a> {
    fn is_decided(&self, handler: &str) -> bool {
        self.decided.contains(&handler)
    }

    /// The headroom of a context with a margin wider by `extra_percent` percent.
    fn headroom(&self, at: usize, extra_percent: u8) -> Load {
        let margin = self.contexts.list()[at].capacity.margin_percent;
        self.contexts.headroom_with(at, margin.saturating_add(extra_percent))
    }

    fn has_room(&self, handler: &HandlerSample, at: usize, extra_percent: u8) -> bool {
        let has = self.headroom(at, extra_percent);
        fit_within(&handler.need, Load::default(), &self.contexts.list()[at], has).is_ok()
    }

    fn send(&mut self, handler: &'a HandlerSample, to: usize, crossing: Load, why: &str) {
        let takes = handler.need.committed(crossing);
        let has = Time(self.contexts.headroom(to).time_ns_per_s);
        self.contexts.release(handler.context, handler.need.committed(Load::default()));
        self.contexts.commit(to, takes);
        let name = |at: usize| self.contexts.list()[at].name.clone();
        let time = Time(takes.time_ns_per_s);
        let why = format!("{why}; {} takes {time}; {} has {has}", handler.name, name(to));
        self.decisions.push(Decision::Move {
            handler: handler.name.clone(),
            from: name(handler.context),
            to: name(to),
            why,
        });
        self.decided.push(&handler.name);
    }

    fn unsend(&mut self, handler: &'a HandlerSample, to: usize) {
        self.contexts.release(to, handler.need.committed(handler.arriving.crossing()));
        self.contexts.commit(handler.context, handler.need.committed(Load::default()));
        self.decided.retain(|name| *name != handler.name);
        self.decisions
            .retain(|decision| !matches!(decision, Decision::Move { handler: name, .. } if *name == handler.name));
    }

    /// Sends handlers away from a context, and from those on its CPU, until it has its headroom again. Each
    /// handler with where it was sent.
    ///
    /// Computation-centric ones go first, then those with nothing reserved, then any that is enough by itself, then those whose
    /// messages cost least to be taken over. A handler that turns out not to be needed stays.
    fn offload(&mut self, at: usize, extra_percent: u8, why: &str) -> Vec<(&'a HandlerSample, usize)> {
        let excess = self.contexts.excess(at);
        let may_go = |handler: &&&HandlerSample| {
            handler.place == ContextChoice::Auto
                && self.contexts.is_same_cpu(at, handler.context)
                && !self.is_decided(&handler.name)
        };
        let mut candidates: Vec<&'a HandlerSample> = self.handlers.iter().filter(may_go).copied().collect();
        candidates.sort_by_cached_key(|handler| {
            let HandlerSample { need, arriving, leaving, .. } = handler;
            let is_enough = excess.is_within(need.committed(Load::default()));
            let crossing = (arriving.crossing() + leaving.crossing()).time_ns_per_s;
            let is_reserved = need.reserve != Load::default();
            (Reverse(need.class), is_reserved, !is_enough, crossing, handler.name.as_str())
        });
        let mut sent = Vec::new();
        for handler in candidates {
            let excess = self.contexts.excess(at);
            if excess == Load::default() {
                break;
            }
            if let Some(to) = self.target(handler, extra_percent) {
                self.send(handler, to, handler.arriving.crossing(), why);
                if self.contexts.excess(at) == excess {
                    // The handler uses none of the resources that are in excess.
                    self.unsend(handler, to);
                } else {
                    sent.push((handler, to));
                }
            }
        }
        // One by one, the last to have been chosen first: whoever can stay stays.
        let mut needed = Vec::new();
        for (handler, to) in sent.into_iter().rev() {
            let mut with = self.contexts.clone();
            with.commit(handler.context, handler.need.committed(Load::default()));
            if with.excess(at) == Load::default() {
                self.unsend(handler, to);
            } else {
                needed.push((handler, to));
            }
        }
        needed
    }

    /// Another context that has room: with more than its margin left if there is one, so that it does not have to offload in
    /// its turn.
    fn target(&self, handler: &HandlerSample, extra_percent: u8) -> Option<usize> {
        let order = order(&self.contexts, None);
        let mut others = [extra_percent, 0].into_iter().flat_map(|extra| order.iter().map(move |&at| (at, extra)));
        others.find_map(|(at, extra)| {
            let context = &self.contexts.list()[at];
            let fits = || fit_within(&handler.need, handler.arriving.crossing(), context, self.headroom(at, extra));
            let may_go = self.is_g_core(at) || !self.bound.contains(&handler.name.as_str());
            (at != handler.context && may_go && fits().is_ok()).then_some(at)
        })
    }

    fn is_g_core(&self, at: usize) -> bool {
        self.contexts.list().get(at).is_some_and(|context| context.capacity.kind == CoreKind::GCore)
    }

    /// A g-core that has room for a handler, which may go there.
    fn g_core_for(&self, handler: &HandlerSample) -> Option<usize> {
        let crossing = handler.arriving.crossing();
        let fits = |at: usize| fit_within(&handler.need, crossing, &self.contexts.list()[at], self.headroom(at, 0));
        let mut order = order(&self.contexts, None).into_iter();
        order.find(|at| handler.place == ContextChoice::Auto && self.is_g_core(*at) && fits(*at).is_ok())
    }

    /// The g-core with the most time left, for a computation-centric handler that has room at none: there it takes time from
    /// handlers that may take long as well, and not from the network and from handlers of bounded steps.
    fn emptiest_g_core(&self, handler: &HandlerSample) -> Option<usize> {
        let may_go = handler.place == ContextChoice::Auto && handler.need.class == Class::Computation;
        // One that is lost leaves all of its time free, which nobody gets.
        let is_lost = |at: usize| self.contexts.list()[at].capacity.margin_percent >= 100;
        order(&self.contexts, None).into_iter().find(|at| may_go && self.is_g_core(*at) && !is_lost(*at))
    }

    fn stop(&mut self, handler: &'a HandlerSample, why: String) {
        self.contexts.release(handler.context, handler.need.committed(Load::default()));
        self.decisions.push(Decision::Stop { handler: handler.name.clone(), why });
        self.decided.push(&handler.name);
    }
}

/// The resource that is overloaded.
fn too_much(excess: Load) -> String {
    match excess {
        Load { time_ns_per_s, .. } if time_ns_per_s > 0 => Time(time_ns_per_s).to_string(),
        Load { buffers, .. } if buffers > 0 => format!("{buffers} buffers"),
        Load { bytes_per_s, .. } => Bandwidth(bytes_per_s).to_string(),
    }
}
