//! Which context a client that attaches is given to.

use crate::graph::gauges::ContextGauges;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old the sample of the contexts' load may be by which a client is placed.
const SAMPLE_LASTS: Duration = Duration::from_millis(100);

/// The known load of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ContextLoad {
    /// Time in which it worked between the last two samples, in whole eighths of the time between them: what differs by less counts
    /// as the same load.
    busy_eighths: u64,
    /// Clients placed there since the last sample. Each counts as one eighth of a core until the next sample shows what it takes.
    new_clients: u64,
    /// Clients placed there so far.
    clients: u64,
    /// Whether it takes no more clients now.
    is_full: bool,
}

/// The context with the least load of those that have room; of several, that where the fewest clients were placed.
fn least_loaded(loads: impl Iterator<Item = ContextLoad>) -> usize {
    let by_load = |(_, load): &(usize, ContextLoad)| (load.is_full, load.busy_eighths + load.new_clients, load.clients);
    loads.enumerate().min_by_key(by_load).map_or(0, |(at, _)| at)
}

/// A context that clients can be given to.
struct CandidateContext {
    gauges: Arc<ContextGauges>,
    /// Time in which it had worked when the last sample was taken, in ns.
    busy_ns: u64,
    /// The turns that it had begun when it did not answer; it gets no clients until it has begun another.
    stuck_at: Option<u64>,
    load: ContextLoad,
}

/// Chooses contexts for clients.
pub(crate) struct Placement {
    places: Vec<CandidateContext>,
    /// The context with the mailboxes, tasks, syncs and host conditions.
    home: usize,
    /// Clients that a context takes.
    most_clients: u32,
    sampled_at: Instant,
}

impl Placement {
    /// Clients are given to contexts with these gauges; each takes `most_clients`, and the `home`-th has the
    /// mailboxes.
    pub(crate) fn new(
        gauges: impl IntoIterator<Item = Arc<ContextGauges>>,
        (home, most_clients): (usize, u32),
        now: Instant,
    ) -> Placement {
        let place = |gauges: Arc<ContextGauges>| CandidateContext {
            busy_ns: gauges.busy_ns.get(),
            gauges,
            stuck_at: None,
            load: ContextLoad::default(),
        };
        let places: Vec<CandidateContext> = gauges.into_iter().map(place).collect();
        debug_assert!(home < places.len(), "the home is one of the contexts");
        Placement { places, home, most_clients, sampled_at: now }
    }

    /// The context for a client: the home if it uses mailboxes, else the one with the least load.
    pub(crate) fn choose(&mut self, uses_mailboxes: bool, now: Instant) -> usize {
        if uses_mailboxes {
            return self.home;
        }
        self.sample(now);
        for place in &mut self.places {
            let is_stuck = place.stuck_at == Some(place.gauges.turns.get());
            place.load.is_full = is_stuck || place.gauges.clients.get() >= u64::from(self.most_clients);
        }
        least_loaded(self.places.iter().map(|place| place.load))
    }

    /// A client was placed at a context.
    pub(crate) fn note_placed(&mut self, at: usize) {
        if let Some(CandidateContext { load, .. }) = self.places.get_mut(at) {
            load.new_clients += 1;
            load.clients += 1;
        }
    }

    /// A context did not take a client.
    pub(crate) fn note_unanswered(&mut self, at: usize) {
        if let Some(place) = self.places.get_mut(at) {
            place.stuck_at = Some(place.gauges.turns.get());
        }
    }

    /// Samples the load anew, unless that was done a short time ago.
    fn sample(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.sampled_at);
        if elapsed <= SAMPLE_LASTS {
            return;
        }
        self.sampled_at = now;
        for place in &mut self.places {
            let busy_ns = place.gauges.busy_ns.get();
            let since_ns = u128::from(busy_ns.wrapping_sub(place.busy_ns));
            place.busy_ns = busy_ns;
            place.load.busy_eighths = u64::try_from(since_ns * 8 / elapsed.as_nanos()).unwrap_or(u64::MAX);
            place.load.new_clients = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_context_is_chosen() {
        let load = |(busy_eighths, new_clients, clients): (u64, u64, u64)| ContextLoad {
            busy_eighths: busy_eighths % 100,
            new_clients,
            clients,
            is_full: busy_eighths >= 100,
        };
        for (loads, chosen, why) in [
            (&[(0, 0, 0)][..], 0, "the only one"),
            (&[(0, 0, 0), (0, 0, 0), (0, 0, 0)], 0, "all the same: the first"),
            (&[(3, 0, 0), (2, 0, 9), (4, 0, 0)], 1, "the least busy, however many clients it was given"),
            (&[(0, 3, 3), (2, 0, 0)], 1, "a new client counts as an eighth of a core"),
            (&[(0, 2, 2), (2, 0, 5)], 0, "the same load, fewer clients"),
            (&[(1, 1, 7), (0, 2, 6), (2, 0, 8)], 1, "the same load, fewer clients, of either kind"),
            (&[(8, 0, 0), (7, 1, 0), (8, 0, 0)], 0, "busy, all of them"),
            (&[(100, 0, 0), (7, 1, 0), (102, 0, 0)], 1, "the only one that takes clients"),
        ] {
            assert_eq!(least_loaded(loads.iter().copied().map(load)), chosen, "{why}: {loads:?}");
        }
        assert_eq!(least_loaded(std::iter::empty()), 0);
    }

    #[test]
    fn load_is_what_the_gauges_say_between_samples_and_clients_in_between() {
        let gauges: [Arc<ContextGauges>; 3] = std::array::from_fn(|_| Arc::default());
        gauges[2].busy_ns.set(1 << 40); // before it is known
        let start = Instant::now();
        let mut placement = Placement::new(gauges.clone(), (1, 1000), start);
        let mut place = |uses_mailboxes, at_ms: u64| {
            let at = placement.choose(uses_mailboxes, start + Duration::from_millis(at_ms));
            placement.note_placed(at);
            at
        };
        // Idle, all of them: in turn, and beside those that must be at home.
        assert_eq!([(); 3].map(|()| place(true, 0)), [1; 3]);
        assert_eq!([(); 6].map(|()| place(false, 1)), [0, 2, 0, 2, 0, 2]);
        // Not sampled yet.
        gauges[0].busy_ns.add(150_000_000);
        assert_eq!([(); 3].map(|()| place(false, 100)), [0, 1, 2]);
        // Now: three quarters of 200 ms are six clients, spread over the others.
        assert_eq!([(); 12].map(|()| place(false, 200)), [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
        assert_eq!([(); 3].map(|()| place(false, 300)), [0, 1, 2]);
        // It has done nothing since, another as good as nothing, and the third three eighths.
        gauges[1].busy_ns.add(10_000_000);
        gauges[2].busy_ns.add(80_000_000);
        assert_eq!([(); 6].map(|()| place(false, 401)), [0, 1, 0, 1, 0, 1]);
        assert_eq!([(); 3].map(|()| place(false, 402)), [0, 2, 1]);
    }
}
