//! The conversions between the formats of one stream, and the chains through them.
//!
//! Applications register conversions between two formats. Each belongs to the session that registered it and goes away
//! with it, or is kept. Of several between the same two formats the one that a session registered last is in force; the
//! kept one lies under those of sessions and is in force again when they have gone.
//!
//! A [`Chain`] leads from the format that a message has to one that its reader accepts: the cheapest there is, and of
//! several equally cheap ones the shortest, and of those the first by the ids of its formats, so that the same graph gives
//! the same chain everywhere.
//!
//! **By name.** A plan by field name needs nobody to register it, but nobody has said either that what it hands on may be
//! handed on. So it is only ever the last step of a chain, from a format that no registered conversion leaves, or ever left
//! ([`Graph::is_guarded`]): who registered one from there said how that format is to be read, and a step that strips private
//! fields must not be gone round, also not once the session that registered it has ended.

use crossdock_format::FormatId;
use std::collections::{BTreeMap, BTreeSet};

/// Conversions of one graph at most, those that lie under others included.
pub const MAX_CONVERSIONS: usize = 1024;
/// Steps of a chain at most.
pub const MAX_STEPS: usize = crossdock_format::registry::MAX_STEPS;
/// Formats whose guard is remembered at most; a graph in which more were left by conversions plans nothing by name.
pub const MAX_GUARDED: usize = 4096;
/// The cost of moving a byte between two steps, in ps: about what a core copies from its cache. With it a chain that
/// extracts first is cheaper than one that first reformats all that it will then drop.
pub const MOVE_PS_PER_BYTE: u64 = 32;

/// The expected cost of a conversion for a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time, in ps.
    pub ps: u64,
    /// Length of the record that it reads, in bytes, as far as the format says.
    pub in_bytes: u32,
    /// Length of the record that it makes, in bytes.
    pub out_bytes: u32,
}

impl Cost {
    /// Time and moved bytes as one number, in ps.
    #[must_use]
    pub fn weight(self) -> u64 {
        let bytes = u64::from(self.in_bytes) + u64::from(self.out_bytes);
        self.ps.saturating_add(bytes * MOVE_PS_PER_BYTE)
    }
}

/// Whose a conversion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Nobody's: it stays until it is removed.
    Kept,
    /// A session's, by a number that is given once: it goes with the session.
    Session(u64),
}

/// A registered conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Given once in a graph; later ones are higher.
    pub number: u64,
    /// The format that it reads.
    pub from: FormatId,
    /// The format that it makes.
    pub to: FormatId,
    /// Whose it is.
    pub owner: Owner,
    /// Its expected cost.
    pub cost: Cost,
}

/// Why a conversion is not taken into the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It leads nowhere.
    #[error("a conversion from format {0} to itself changes nothing: name two formats")]
    Loop(FormatId),
    /// The table is full.
    #[error("the stream has {MAX_CONVERSIONS} conversions, the bound: remove one")]
    Full,
}

/// One step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionStep {
    /// The format that it reads.
    pub from: FormatId,
    /// The format that it makes.
    pub to: FormatId,
    /// The registered conversion that it is; `None` for the plan by field name.
    pub conversion: Option<u64>,
}

/// The way from one format to another. Without steps where the reader accepts the format as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// In the order in which they run; each makes what the next one reads.
    pub steps: Vec<ConversionStep>,
    /// The sum of the steps' [`Cost::weight`], in ps.
    pub weight: u64,
}

/// The conversions of one stream.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// In the order of their numbers.
    conversions: Vec<Conversion>,
    last_number: u64,
    guarded: BTreeSet<FormatId>,
    all_guarded: bool,
}

impl Graph {
    /// Takes a conversion in, and gives it its number. One of the same owner between the same formats is replaced: its number
    /// is the second.
    ///
    /// # Errors
    /// It leads from a format to itself, or the table is full; then nothing has changed.
    pub fn add(
        &mut self,
        from: FormatId,
        to: FormatId,
        owner: Owner,
        cost: Cost,
    ) -> Result<(u64, Option<u64>), Refused> {
        if from == to {
            return Err(Refused::Loop(from));
        }
        let replaced = self.conversions.iter().position(|c| (c.from, c.to, c.owner) == (from, to, owner));
        if replaced.is_none() && self.conversions.len() >= MAX_CONVERSIONS {
            return Err(Refused::Full);
        }
        let replaced = replaced.map(|at| self.conversions.remove(at).number);
        self.last_number += 1;
        let number = self.last_number;
        self.conversions.push(Conversion { number, from, to, owner, cost });
        self.guard(from);
        Ok((number, replaced))
    }

    /// Whether [`Graph::add`] would take the conversion.
    ///
    /// # Errors
    /// As there.
    pub fn would_take(&self, from: FormatId, to: FormatId, owner: Owner) -> Result<(), Refused> {
        match () {
            () if from == to => Err(Refused::Loop(from)),
            () if self.conversions.len() < MAX_CONVERSIONS || self.find(from, to, owner).is_some() => Ok(()),
            () => Err(Refused::Full),
        }
    }

    /// Takes a conversion out.
    pub fn remove(&mut self, from: FormatId, to: FormatId, owner: Owner) -> Option<Conversion> {
        let at = self.conversions.iter().position(|c| (c.from, c.to, c.owner) == (from, to, owner))?;
        Some(self.conversions.remove(at))
    }

    /// Takes out what belongs to a session that has ended; what that was.
    pub fn remove_session(&mut self, session: u64) -> Vec<Conversion> {
        let of_session = |c: &mut Conversion| c.owner == Owner::Session(session);
        self.conversions.extract_if(.., of_session).collect()
    }

    /// The conversion of this owner between two formats.
    #[must_use]
    pub fn find(&self, from: FormatId, to: FormatId, owner: Owner) -> Option<&Conversion> {
        self.conversions.iter().find(|c| (c.from, c.to, c.owner) == (from, to, owner))
    }

    /// All conversions in the order in which they were registered.
    #[must_use]
    pub fn conversions(&self) -> &[Conversion] {
        &self.conversions
    }

    /// Whether a conversion is the one in force between its formats.
    #[must_use]
    pub fn is_in_force(&self, conversion: &Conversion) -> bool {
        self.in_force().get(&(conversion.from, conversion.to)).is_some_and(|c| c.number == conversion.number)
    }

    /// The conversions that chains may use, by their formats.
    fn in_force(&self) -> BTreeMap<(FormatId, FormatId), &Conversion> {
        let mut in_force: BTreeMap<(FormatId, FormatId), &Conversion> = BTreeMap::new();
        for conversion in &self.conversions {
            let over = |other: &&Conversion| other.owner == Owner::Kept || conversion.owner != Owner::Kept;
            let formats = (conversion.from, conversion.to);
            if in_force.get(&formats).is_none_or(over) {
                in_force.insert(formats, conversion);
            }
        }
        in_force
    }

    /// Whether messages of this format may only be converted by what was registered, since a conversion leaves it or once did.
    #[must_use]
    pub fn is_guarded(&self, format: FormatId) -> bool {
        self.all_guarded || self.guarded.contains(&format)
    }

    /// Remembers that a conversion left this format, before any that is registered now.
    pub fn guard(&mut self, format: FormatId) {
        if self.guarded.len() < MAX_GUARDED {
            self.guarded.insert(format);
        } else {
            self.all_guarded |= !self.guarded.contains(&format);
        }
    }

    /// Forgets that a conversion left this format: it is no version of the stream any more.
    pub fn unguard(&mut self, format: FormatId) {
        self.guarded.remove(&format);
    }

    /// The formats whose guard is remembered.
    pub fn guarded(&self) -> impl Iterator<Item = FormatId> {
        self.guarded.iter().copied()
    }

    /// The cheapest chain from a format to one of those that are accepted. `by_name` says what the plan by field name between
    /// two formats would cost, where there is one and the stream allows it.
    #[must_use]
    pub fn chain(
        &self,
        from: FormatId,
        accept: &[FormatId],
        by_name: &dyn Fn(FormatId, FormatId) -> Option<Cost>,
    ) -> Option<Chain> {
        if accept.contains(&from) {
            return Some(Chain::default());
        }
        let edges = self.in_force();
        let mut best: Option<Candidate> = None;
        // The cheapest routes of exactly `n` steps in round `n`, by the format they lead to; all have equal length, so
        // the bound on steps costs no exactness. A route that returns to a format loses to the same route without the
        // circle, which is shorter.
        let mut ways = BTreeMap::from([(from, Candidate { weight: 0, formats: vec![from], numbers: Vec::new() })]);
        for _ in 0..MAX_STEPS {
            let mut longer: BTreeMap<FormatId, Candidate> = BTreeMap::new();
            for (&at, way) in &ways {
                for (&(_, to), conversion) in edges.range((at, FormatId(0))..=(at, FormatId(u64::MAX))) {
                    keep_cheaper(&mut longer, way.on(to, Some(conversion.number), conversion.cost));
                }
                if !self.is_guarded(at) {
                    let plans = accept.iter().filter(|&&to| to != at).filter_map(|&to| Some((to, by_name(at, to)?)));
                    plans.for_each(|(to, cost)| keep_cheaper(&mut longer, way.on(to, None, cost)));
                }
            }
            for end in accept.iter().filter_map(|to| longer.get(to)) {
                if best.as_ref().is_none_or(|best| end.key() < best.key()) {
                    best = Some(end.clone());
                }
            }
            // A format that may be read is read: nothing leads on from there.
            longer.retain(|to, _| !accept.contains(to));
            ways = longer;
        }
        best.map(Candidate::chain)
    }
}

/// A chain that is being looked for.
#[derive(Clone, Debug)]
struct Candidate {
    weight: u64,
    /// One more than steps.
    formats: Vec<FormatId>,
    numbers: Vec<Option<u64>>,
}

impl Candidate {
    fn on(&self, to: FormatId, number: Option<u64>, cost: Cost) -> Candidate {
        let mut way = self.clone();
        way.weight = way.weight.saturating_add(cost.weight());
        way.formats.push(to);
        way.numbers.push(number);
        way
    }

    /// The order of chains: the lower, the better.
    fn key(&self) -> (u64, usize, &[FormatId]) {
        (self.weight, self.formats.len(), &self.formats)
    }

    fn chain(self) -> Chain {
        let pairs = self.formats.windows(2).zip(self.numbers);
        let step = |(pair, conversion): (&[FormatId], _)| ConversionStep { from: pair[0], to: pair[1], conversion };
        Chain { steps: pairs.map(step).collect(), weight: self.weight }
    }
}

fn keep_cheaper(ways: &mut BTreeMap<FormatId, Candidate>, way: Candidate) {
    let Some(&end) = way.formats.last() else { return };
    if ways.get(&end).is_none_or(|known| way.key() < known.key()) {
        ways.insert(end, way);
    }
}
