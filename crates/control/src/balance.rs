//! What is moved, sampled or stopped while everything runs, second by second.
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
//! - A context that nears its capacity all the same has handlers do with less that have a rule for it, other values of their
//!   parameters. Where that is not enough it has streams sampled that allow it, one message of 2, of 4 and so on. When there is
//!   room they are whole again, in the opposite order; before that no handler comes back there.
//! - A handler over its budget goes to a g-core or is stopped, as its policy says, and does not come back by itself.
//!
//! It has no clock: who calls it every second, with what was measured in that second, makes time pass.

use crate::admission::{Need, Place, fit_within, order};
use crate::figures::{Bandwidth, Time};
use crate::load::{Contexts, Flow, Kind, Load, MAX_CONTEXTS, MAX_HANDLERS};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// When something is done, and when it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A context counts as over if it was over in this many seconds …
    pub over_s: u32,
    /// … of the last `of_s`, at most 32. A handler's overruns are counted over the same seconds.
    pub of_s: u32,
    /// What else is to be left free where something comes back, in percent, besides the margin.
    pub return_percent: u8,
    /// How long there has to have been room for what comes back, in s.
    pub return_s: u32,
    /// How often that doubles, each time that it had to leave again.
    pub doublings: u32,
    /// After so long without having to leave, none of that counts any more, in s.
    pub forget_s: u32,
    /// Streams are sampled where less than this is left of the capacity, in percent.
    pub sample_percent: u8,
    /// Number of overruns in the last seconds that is too many.
    pub overruns: u32,
}

impl Default for Rules {
    /// Over in 3 of 5 s; back after 30 s with 15 percent more than the margin; sampling from 95 percent on.
    fn default() -> Rules {
        Rules {
            over_s: 3,
            of_s: 5,
            return_percent: 15,
            return_s: 30,
            doublings: 5,
            forget_s: 900,
            sample_percent: 5,
            overruns: 3,
        }
    }
}

/// What becomes of a handler that is over its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// It goes to a g-core, or is stopped where none has room.
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
    /// What it needs: its load is what was measured.
    pub need: Need,
    /// Where it is to be. Only those that may be anywhere are moved.
    pub place: Place,
    /// What reached it.
    pub arriving: Flow,
    /// What it made.
    pub leaving: Flow,
    /// Steps that took longer than its budget.
    pub overruns: u32,
    /// What becomes of it if those are too many.
    pub policy: Overrun,
}

/// A stream in one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSample {
    /// Its name.
    pub name: String,
    /// The context that it arrives at.
    pub context: usize,
    /// What its messages took there.
    pub load: Load,
    /// One of this many messages is let through: 1 if all are.
    pub one_in: u32,
    /// The largest `one_in` that the stream allows: 1 if all of its messages are wanted.
    pub one_in_most: u32,
    /// What its handler does with less, if it has a rule for that.
    pub rule: Option<RuleSecond>,
}

/// A handler's own rule for when its context nears its capacity, in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSecond {
    /// Whether it goes by it.
    pub is_applied: bool,
    /// What its messages would take if that were the other way round.
    pub otherwise: Load,
}

/// What was measured in one second.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// With nothing committed but the system work that was measured.
    pub contexts: &'a Contexts,
    /// All handlers.
    pub handlers: &'a [HandlerSample],
    /// All streams that may be sampled, or whose handlers have rules of their own.
    pub streams: &'a [StreamSample],
}

/// What is to be done.
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
    /// Of a stream's messages only one in `one_in` is let through.
    Sample {
        /// The stream.
        stream: String,
        /// 1: all of them again.
        one_in: u32,
        /// Why, for people.
        why: String,
    },
    /// A handler goes by its own rule for doing with less, or no longer.
    Degrade {
        /// Its stream.
        stream: String,
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

/// What is remembered from second to second. It starts anew with the daemon.
#[derive(Clone, Debug)]
pub struct Balance {
    rules: Rules,
    contexts: BTreeMap<String, Watched>,
    /// Handlers that had to leave a context.
    trips: BTreeMap<String, Displacement>,
    /// By handler: overruns of the last seconds, the latest first.
    overruns: BTreeMap<String, Vec<u32>>,
    /// By stream: for how long there has been room for more of it.
    headroom_streak_s: BTreeMap<String, u32>,
}

/// A bit for each of the last seconds, the latest lowest.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// It was over its capacity less its margin.
    over: u32,
    /// It was near its capacity.
    near: u32,
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
        Balance { rules, contexts, trips, overruns: BTreeMap::new(), headroom_streak_s: BTreeMap::new() }
    }

    /// One more second has passed. What is to be done now; what was not done is decided again as long as it is right.
    ///
    /// Of handlers and contexts over the bounds the last ones are not looked at.
    pub fn second(&mut self, second: &Sample<'_>) -> Vec<Decision> {
        let handlers = &second.handlers[..second.handlers.len().min(MAX_HANDLERS)];
        let mut contexts = second.contexts.clone();
        let here = |handler: &&HandlerSample| handler.context < contexts.list().len();
        let handlers: Vec<&HandlerSample> = handlers.iter().filter(here).collect();
        handlers.iter().for_each(|handler| contexts.commit(handler.context, handler.need.committed(Load::default())));
        self.watch(&contexts);
        let streams: Vec<&StreamSample> =
            second.streams.iter().filter(|stream| stream.context < contexts.list().len()).collect();
        let mut now = Now { contexts, handlers, decisions: Vec::new(), decided: Vec::new() };
        self.overruns(&mut now);
        self.offload(&mut now);
        self.reclaim(&mut now, &streams);
        self.sample(&mut now, streams);
        now.decisions
    }

    fn watch(&mut self, contexts: &Contexts) {
        self.contexts.retain(|name, _| contexts.find(name).is_some());
        for (at, context) in contexts.list().iter().enumerate().take(MAX_CONTEXTS) {
            let watched = self.contexts.entry(context.name.clone()).or_default();
            let add = |bits: u32, excess: Load| bits << 1 | u32::from(excess != Load::default());
            watched.over = add(watched.over, contexts.excess(at));
            watched.near = add(watched.near, contexts.excess_with(at, self.rules.sample_percent));
        }
    }

    /// Whether at least `over_s` of the last `of_s` bits are set.
    fn is_lasting(&self, bits: u32) -> bool {
        let window = u32::MAX.checked_shr(32u32.saturating_sub(self.rules.of_s)).unwrap_or(0);
        (bits & window).count_ones() >= self.rules.over_s
    }

    fn overruns(&mut self, now: &mut Now<'_>) {
        let known: Vec<&str> = now.handlers.iter().map(|handler| handler.name.as_str()).collect();
        self.overruns.retain(|name, _| known.contains(&name.as_str()));
        for handler in now.handlers.clone() {
            if handler.overruns == 0 && !self.overruns.contains_key(&handler.name) {
                continue;
            }
            let past = self.overruns.entry(handler.name.clone()).or_default();
            past.insert(0, handler.overruns);
            past.truncate(self.rules.of_s as usize);
            let sum = past.iter().fold(0, |sum: u32, one| sum.saturating_add(*one));
            if sum == 0 {
                self.overruns.remove(&handler.name);
            } else if sum >= self.rules.overruns {
                let why = format!("{} was over its budget {sum} times in the last {} s", handler.name, self.rules.of_s);
                if now.stop_or_move(handler, why) {
                    self.overruns.remove(&handler.name);
                    self.trips.remove(&handler.name);
                }
            }
        }
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
            let why = format!("{name} had {} more to do than it should have {seconds}", too_much(excess));
            let sent = now.offload(at, self.rules.return_percent, &why);
            for (handler, to) in &sent {
                self.leave(&handler.name, &now.contexts.list()[handler.context].name, &now.contexts.list()[*to].name);
            }
            if !sent.is_empty() {
                // What has been done shows from the next second on.
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

    fn reclaim(&mut self, now: &mut Now<'_>, streams: &[&StreamSample]) {
        let at_work: BTreeMap<&str, &HandlerSample> =
            now.handlers.iter().map(|handler| (handler.name.as_str(), *handler)).collect();
        let rules = self.rules;
        let mut coming = Vec::new();
        self.trips.retain(|name, trip| {
            let Some(handler) = at_work.get(name.as_str()).filter(|handler| handler.place == Place::Auto) else {
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
            // First the streams there are to be whole again.
            let is_less = |stream: &&&StreamSample| stream.one_in > 1 || stream.is_degraded();
            let is_whole = !streams.iter().filter(is_less).any(|stream| now.contexts.is_same_cpu(stream.context, home));
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
                let why = format!("{name} has had room for it for {for_s} s");
                now.send(handler, home, Load::default(), &why);
            }
        }
    }

    fn sample(&mut self, now: &mut Now<'_>, mut streams: Vec<&StreamSample>) {
        self.headroom_streak_s.retain(|name, _| streams.iter().any(|stream| stream.name == *name));
        streams.sort_by_key(|stream| (Reverse(stream.load.time_ns_per_s), &stream.name));
        for at in 0..now.contexts.list().len() {
            let name = now.contexts.list()[at].name.clone();
            let near = self.contexts.get(&name).map_or(0, |watched| watched.near);
            if !self.is_lasting(near) || now.contexts.excess_with(at, self.rules.sample_percent) == Load::default() {
                continue;
            }
            let before = now.decisions.len();
            let degraded = self.degrade(now, at, &streams);
            for stream in streams.iter().filter(|stream| !degraded.contains(&stream.name.as_str())) {
                let doubled = stream.one_in.max(1).saturating_mul(2);
                let is_there = now.contexts.is_same_cpu(at, stream.context);
                let excess = now.contexts.excess(at);
                let helps = is_there && excess.min(half(stream.load)) != Load::default();
                if helps && doubled <= stream.one_in_most {
                    now.contexts.release(stream.context, half(stream.load));
                    let why = format!("{name} has {} more to do than it should", too_much(excess));
                    now.decisions.push(Decision::Sample { stream: stream.name.clone(), one_in: doubled, why });
                    self.headroom_streak_s.remove(&stream.name);
                }
            }
            if now.decisions.len() > before {
                self.forget(&now.contexts, at);
            }
        }
        streams.reverse();
        let is_less = |stream: &&&StreamSample| stream.one_in > 1 || stream.is_degraded();
        streams.iter().filter(is_less).for_each(|stream| self.let_through(now, stream));
    }

    /// Has those handlers of a context, and of those on its CPU, go by their own rules that gain something by it. Their streams.
    fn degrade<'a>(&mut self, now: &mut Now<'_>, at: usize, streams: &[&'a StreamSample]) -> Vec<&'a str> {
        let mut degraded = Vec::new();
        let name = now.contexts.list()[at].name.clone();
        for stream in streams {
            let Some(rule) = stream.rule.filter(|rule| !rule.is_applied) else { continue };
            let (excess, gain) = (now.contexts.excess(at), stream.load - rule.otherwise);
            if now.contexts.is_same_cpu(at, stream.context) && excess.min(gain) != Load::default() {
                now.contexts.release(stream.context, gain);
                let why = format!("{name} has {} more to do than it should", too_much(excess));
                now.decisions.push(Decision::Degrade { stream: stream.name.clone(), applies: true, why });
                self.headroom_streak_s.remove(&stream.name);
                degraded.push(stream.name.as_str());
            }
        }
        degraded
    }

    /// Twice as much of a stream, or else its handler as it was meant, if there has been room for it.
    fn let_through(&mut self, now: &mut Now<'_>, stream: &StreamSample) {
        let extra = self.rules.return_percent;
        let more = match stream.rule {
            Some(rule) if stream.one_in <= 1 => rule.otherwise - stream.load,
            _ => stream.load,
        };
        let has_room = more.is_within(now.headroom(stream.context, extra));
        let headroom_streak_s = self.headroom_streak_s.entry(stream.name.clone()).or_default();
        *headroom_streak_s = if has_room { headroom_streak_s.saturating_add(1) } else { 0 };
        if *headroom_streak_s >= self.rules.return_s {
            now.contexts.commit(stream.context, more);
            let context = &now.contexts.list()[stream.context].name;
            let why = format!("{context} has had room for more of it for {headroom_streak_s} s");
            now.decisions.push(match stream.one_in {
                2.. => Decision::Sample { stream: stream.name.clone(), one_in: stream.one_in / 2, why },
                _ => Decision::Degrade { stream: stream.name.clone(), applies: false, why },
            });
            *headroom_streak_s = 0;
        }
    }
}

impl StreamSample {
    /// Whether its handler does with less, by its own rule.
    fn is_degraded(&self) -> bool {
        self.rule.is_some_and(|rule| rule.is_applied)
    }
}

/// One second, with what was decided so far as if it were done.
struct Now<'a> {
    contexts: Contexts,
    handlers: Vec<&'a HandlerSample>,
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

    /// Sends handlers away from a context, and from those on its CPU, until it has its headroom again. Who was sent where.
    ///
    /// Computation-centric ones go first, then those with nothing reserved, then any that is enough by itself, then those whose
    /// messages cost least to be taken over. Who turns out not to be needed stays.
    fn offload(&mut self, at: usize, extra_percent: u8, why: &str) -> Vec<(&'a HandlerSample, usize)> {
        let excess = self.contexts.excess(at);
        let may_go = |handler: &&&HandlerSample| {
            handler.place == Place::Auto
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

    /// Another context that has room: with more than its margin left if there is one, so that it does not have to give away in
    /// its turn.
    fn target(&self, handler: &HandlerSample, extra_percent: u8) -> Option<usize> {
        let order = order(&self.contexts, None);
        let mut others = [extra_percent, 0].into_iter().flat_map(|extra| order.iter().map(move |&at| (at, extra)));
        others.find_map(|(at, extra)| {
            let context = &self.contexts.list()[at];
            let fits = || fit_within(&handler.need, handler.arriving.crossing(), context, self.headroom(at, extra));
            (at != handler.context && fits().is_ok()).then_some(at)
        })
    }

    /// What its policy says about a handler that is over its budget. `false`: nothing, since it is on a g-core, where it holds
    /// only those that are there too.
    fn stop_or_move(&mut self, handler: &'a HandlerSample, why: String) -> bool {
        let is_g_core = |at: usize| self.contexts.list()[at].capacity.kind == Kind::GCore;
        if handler.policy == Overrun::Move && is_g_core(handler.context) {
            return false;
        }
        let crossing = handler.arriving.crossing();
        let has_room = |at: &usize| {
            is_g_core(*at)
                && fit_within(&handler.need, crossing, &self.contexts.list()[*at], self.headroom(*at, 0)).is_ok()
        };
        let to = order(&self.contexts, None).into_iter().find(has_room).filter(|_| handler.policy == Overrun::Move);
        if let Some(to) = to {
            self.send(handler, to, crossing, &why);
            return true;
        }
        let why = match handler.policy {
            Overrun::Move => format!("{why}, and no g-core has room for it"),
            Overrun::Stop => why,
        };
        self.contexts.release(handler.context, handler.need.committed(Load::default()));
        self.decisions.push(Decision::Stop { handler: handler.name.clone(), why });
        self.decided.push(&handler.name);
        true
    }
}

fn half(load: Load) -> Load {
    let Load { time_ns_per_s, buffers, bytes_per_s } = load;
    Load { time_ns_per_s: time_ns_per_s / 2, buffers: buffers / 2, bytes_per_s: bytes_per_s / 2 }
}

/// The resource that is overloaded.
fn too_much(excess: Load) -> String {
    match excess {
        Load { time_ns_per_s, .. } if time_ns_per_s > 0 => Time(time_ns_per_s).to_string(),
        Load { buffers, .. } if buffers > 0 => format!("{buffers} buffers"),
        Load { bytes_per_s, .. } => Bandwidth(bytes_per_s).to_string(),
    }
}
