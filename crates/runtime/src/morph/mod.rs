//! Morphing in transit: subscriptions that accept certain formats only, and the conversions that bring records there.
//!
//! A subscription may say which formats it accepts; its query is then planned for those. For each format that its
//! stream brings there is a [`Route`]: direct, through a chain of conversions, or none. Routes are planned anew,
//! between two batches, whenever a conversion or a format comes or goes ([`ways`]); chains are compiled then, and
//! shared by all subscriptions that take the same one, so that a batch is converted once for all of them ([`chain`]).
//! A chain makes only the fields that one of their queries or a later step reads, so that the needed fields are
//! extracted before they are reformatted ([`narrow`]).
//!
//! For a format without a route, the applications on the stream are asked for a conversion (the paper's request for a
//! handler, 4.2.3). Until one answers, records wait in a bounded store or are dropped, by the subscription's policy
//! ([`waiting`]).

pub(crate) mod chain;
pub(crate) mod compile;
pub(crate) mod hold;
pub(crate) mod lists;
mod narrow;
pub(crate) mod requests;
pub(crate) mod waiting;
mod ways;

use crate::catalog::Conversions;
use crate::config::ByName;
use chain::ChainRun;
use crossdock_control::conversions::{Chain, Cost};
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::{Format, FormatId};
use crossdock_mailbox::Pool;
use crossdock_transport::{FormatName, Unreadable};
use hold::Hold;
use slab::Slab;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How records of one format come to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The query takes them.
    Direct,
    /// Through a chain of the stream, by its key.
    Chain(usize),
    /// Not now.
    None,
}

/// How the formats of one stream come to its subscriptions here.
#[derive(Default)]
pub(crate) struct Morphing {
    /// As the catalog has them.
    pub(crate) conversions: Arc<Conversions>,
    /// The costs of plans by name between two versions, where there are any: such a plan is always the same.
    by_name: RefCell<BTreeMap<(FormatId, FormatId), Option<Cost>>>,
    /// The chains in use; one that runs is taken out meanwhile.
    pub(crate) chains: Slab<Option<Box<ChainRun>>>,
    /// Keys of the peers that are notified of wanted conversions.
    pub(crate) listeners: Vec<usize>,
    /// The conversions wanted now: from a format that came, to one that is accepted.
    pub(crate) wanted: Vec<(Format, Format)>,
}

impl std::fmt::Debug for Morphing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Morphing")
            .field("conversions", &self.conversions)
            .field("chains", &self.chains.len())
            .finish_non_exhaustive()
    }
}

impl Morphing {
    /// The cheapest chain from a format of the stream to an accepted one. `versions` are the stream's formats, `accept`
    /// the accepted ones.
    pub(crate) fn chain(
        &self,
        from: &Format,
        accept: &[Format],
        versions: &[Format],
        by_name: ByName,
    ) -> Option<Chain> {
        let ids: Vec<FormatId> = accept.iter().map(Format::id).collect();
        let known = |id| versions.iter().find(|version| version.id() == id);
        let plan = |from, to| match by_name {
            ByName::Off => None,
            ByName::VersionsOfStream => *self.by_name.borrow_mut().entry((from, to)).or_insert_with(|| {
                let plan = Plan::by_name(known(from)?, known(to)?, &Rules::none()).ok()?;
                Some(compile::plan_cost(&plan))
            }),
        };
        self.conversions.graph().chain(from.id(), &ids, &plan)
    }
}

/// The formats that a subscription accepts, and its waiting records.
#[derive(Debug)]
pub(crate) struct Accept {
    /// As they were named; those that were not known yet may be later.
    pub(crate) names: Vec<FormatName>,
    /// Those that are known and that the query fits.
    pub(crate) targets: Vec<Format>,
    pub(crate) unreadable: Unreadable,
    /// By the id of the format that comes.
    pub(crate) ways: Vec<(u64, Route)>,
    /// Formats that came and have no route; the subscriber has been notified.
    pub(crate) missed: Vec<Format>,
    pub(crate) hold: Hold,
    /// Whether the waiting records are leaving for the subscriber now.
    pub(crate) drains: bool,
    /// Whether the stream's publishers are held back until it has left.
    pub(crate) blocks: bool,
    /// Whether a publisher's end is still to be reported to the subscriber, after the waiting records.
    pub(crate) end_pending: bool,
}

impl Accept {
    pub(crate) fn new(names: Vec<FormatName>, unreadable: Unreadable) -> Accept {
        Accept {
            names,
            targets: Vec::new(),
            unreadable,
            ways: Vec::new(),
            missed: Vec::new(),
            hold: Hold::default(),
            drains: false,
            blocks: false,
            end_pending: false,
        }
    }

    /// How records of this format come.
    #[inline]
    pub(crate) fn way(&self, format: u64) -> Route {
        self.ways.iter().find(|(id, _)| *id == format).map_or(Route::None, |(_, way)| *way)
    }

    /// Whether a batch of this format may go its way at once: nothing of it waits that came before.
    #[inline]
    pub(crate) fn is_open(&self, format: u64) -> bool {
        self.hold.is_empty() || !self.hold.has(format)
    }
}

/// The state that all chains of a context share.
pub(crate) struct Morph {
    /// The memory between the parts of the chain that runs; taken out meanwhile.
    pub(crate) pool: Option<Pool>,
    /// Keys of subscriptions for which something waits.
    pub(crate) holding: Vec<usize>,
    /// The size of the waiting records of all subscriptions, in bytes.
    pub(crate) held_bytes: u64,
    /// When the oldest of it is to be dropped, in ns.
    pub(crate) expires_ns: u64,
    /// Whether records began to leave, or expired, that the context has not handled yet.
    pub(crate) is_due: bool,
    /// Keys of streams that subscriptions have left since their ways were planned.
    pub(crate) stale: BTreeSet<usize>,
}

impl Morph {
    pub(crate) fn new(pool: Pool) -> Morph {
        Morph {
            pool: Some(pool),
            holding: Vec::new(),
            held_bytes: 0,
            expires_ns: u64::MAX,
            is_due: false,
            stale: BTreeSet::new(),
        }
    }
}
